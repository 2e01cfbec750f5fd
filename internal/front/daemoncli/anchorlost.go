package daemoncli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/server"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
)

// anchorVerbs compare an anchor with the log while no service runs, and record that it is
// lost.
type anchorVerbs struct{ *tree }

func (t *anchorVerbs) showCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, args []string) error {
		return t.withAnchor(ctx, func(s *service) error {
			f, err := t.finding(ctx, s, args[0])
			if err != nil {
				return err
			}
			return t.Emit(f, string(f.Found), func() { t.printFinding(&f) })
		})
	})
	t.outputFlag(v)
}

func (t *anchorVerbs) printFinding(f *api.AnchorFinding) {
	if f.Found == "" {
		fmt.Fprintf(t.Stdout, "anchor %q agrees with the log\n", f.Name)
		return
	}
	fmt.Fprintln(t.Stdout, console.Line(f.Message))
	for _, one := range f.Findings {
		fmt.Fprintln(t.Stdout, "  "+console.Line(one))
	}
	fmt.Fprintln(t.Stdout, f.Found)
}

func (t *anchorVerbs) recordCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		return t.withAnchor(ctx, func(s *service) error { return t.record(ctx, s) })
	})
	t.outputFlag(v)
}

// withAnchor calls do with the state, the tree and the decisions open, while no
// service runs.
func (t *anchorVerbs) withAnchor(ctx context.Context, do func(*service) error) (err error) {
	s, err := t.openStopped(ctx, "compare an anchor")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTree(s.log.Load()), s.store.Close()) }()
	if err := s.reread(); err != nil {
		return err
	}
	if err := s.checkMemory(ctx); err != nil {
		return err
	}
	if err := s.openTree(ctx); err != nil {
		return err
	}
	if err := s.openRegistry(ctx); err != nil {
		return err
	}
	return do(s)
}

// finding says what an anchor holds that the log does not have.
func (t *anchorVerbs) finding(ctx context.Context, s *service, name string) (f api.AnchorFinding, err error) {
	f = api.AnchorFinding{Name: name, Head: s.registry.Head()}
	c, err := s.anchorComparer(ctx)
	if err != nil {
		return f, err
	}
	found, err := c.find(ctx, name)
	if found != nil {
		f.Found, f.Message, f.Findings = found.Found, found.Error(), found.All
		return f, nil // also if the rest cannot be reached: the start refuses it
	}
	if _, unfit := errors.AsType[*anchor.UnfitError](err); unfit {
		return f, nil
	}
	if errors.Is(err, anchor.ErrNoAnchor) {
		return f, api.Errorf(api.CodeNotFound, "no such anchor %q", name).WithHint("see anchors in %s", t.Dirs.ServiceConfig())
	}
	if err != nil {
		return f, api.Errorf(api.CodeUnavailable, "anchor %q cannot be compared: %w", name, err).WithHint("the service starts without an anchor that it cannot reach, and compares it first when it answers")
	}
	return f, nil
}

// maxEnvelope bounds an envelope, in bytes.
const maxEnvelope = 256 << 10

// record reads the signed decision that an anchor is lost, and logs it. Each line has an
// envelope of it, as several people sign under their own accounts.
func (t *anchorVerbs) record(ctx context.Context, s *service) error {
	text, err := io.ReadAll(io.LimitReader(t.Stdin, maxEnvelope))
	if err != nil {
		return err
	}
	var r api.OperatorRecord
	var payload []byte
	envelope, err := seal.Merge(seal.Operator, bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))...)
	if err == nil {
		payload, err = seal.Payload(envelope, seal.Operator)
	}
	if err == nil {
		err = canon.DecodeExact(payload, &r)
	}
	if err == nil && r.Verb != api.VerbAnchorLost {
		err = fmt.Errorf("its verb is %.40q", string(r.Verb))
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "want a signed decision of the verb %s: %w", api.VerbAnchorLost, err).WithHint("run: bailiwick anchor lost NAME")
	}
	f, err := t.finding(ctx, s, r.Anchor)
	if err != nil {
		return err
	}
	if f.Found != r.Found {
		return api.Errorf(api.CodeConflict, "anchor %q is not in the state that the decision names", r.Anchor).WithHint("run again: bailiwick anchor lost %s", r.Anchor)
	}
	me, err := server.LocalPrincipal(uint32(t.UID), t.Login) //nolint:gosec // G115: a uid
	if err != nil {
		return err
	}
	receipt, err := s.registry.Add(ctx, me, envelope, nil)
	if err != nil {
		return err
	}
	return t.Emit(receipt, fmt.Sprint(receipt.Number), func() {
		fmt.Fprintf(t.Stdout, "anchor %q is named as lost (decision %d, log entry #%d)\n", r.Anchor, receipt.Number, receipt.AuditEntry)
	})
}
