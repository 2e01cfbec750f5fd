package deploycli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/installer"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// trustVerbs show and change who signs the catalog. Root replaces trust.json; the holders of
// the keys sign a set that follows the one in force.
type trustVerbs struct{ *machineVerbs }

func (p *trustVerbs) showCommand(v *console.Verb) {
	v.Do(func(context.Context, []string) error {
		root, err := seal.LoadDeployKeys(p.dirs())
		if err != nil {
			return err
		}
		proposed, err := p.proposed()
		if err != nil {
			return err
		}
		return p.answer(root, func(o *out) {
			o.linef("set %d in force", root.DeploySetNumber())
			showKeys(o.linef, root)
			if proposed != nil {
				o.linef("proposed: set %d, signed by %s; see: bailiwick-deploy trust sign", proposed.set.Number, proposed.signers())
			}
		}, each(root.Keys, func(k seal.Key) string { return string(k.ID) })...)
	})
	p.formatFlag(v)
}

func showKeys(line func(format string, args ...any), root seal.TrustRoot) {
	line("%d of %d must sign", root.Threshold, len(root.Keys))
	for _, k := range root.Keys {
		line("%s  %s", k.ID, visible(k.Name))
	}
}

func (p *trustVerbs) addCommand(v *console.Verb) {
	p.changeCommand(v, func(root *seal.TrustRoot, file string) error {
		k, err := installer.ReadPublic(file)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		root.Keys = append(slices.Clip(root.Keys), k)
		return nil
	})
}

func (p *trustVerbs) removeCommand(v *console.Verb) {
	p.changeCommand(v, func(root *seal.TrustRoot, id string) error {
		n := len(root.Keys)
		root.Keys = slices.DeleteFunc(slices.Clone(root.Keys), func(k seal.Key) bool { return string(k.ID) == id })
		if len(root.Keys) == n {
			return api.Errorf(api.CodeNotFound, "the trust root has no key %q", id).WithHint("see: bailiwick-deploy trust show")
		}
		return nil
	})
}

// changeCommand is a verb that changes the set of deploy keys and takes one argument.
func (p *trustVerbs) changeCommand(v *console.Verb, alter func(*seal.TrustRoot, string) error) {
	threshold, yes, sign := 0, false, false
	v.Do(func(ctx context.Context, args []string) error {
		d := p.dirs()
		if !sign {
			if err := asRoot(); err != nil {
				return api.Errorf(api.CodeInvalid, "%w", err).WithHint("repeat the command with sudo, or with --sign as a holder of a deploy key")
			}
			d = api.SystemDirs(p.getenv)
		}
		root, err := seal.LoadDeployKeys(d)
		if err != nil {
			return api.Errorf(api.CodeNotFound, "%w", err).WithHint("set up this machine: sudo bailiwick-deploy setup")
		}
		next := root
		if err := alter(&next, args[0]); err != nil {
			return err
		}
		if threshold != 0 {
			next.Threshold = threshold
		}
		if err := next.Validate(); err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		if err := stillVerifies(ctx, d, next); err != nil {
			return err
		}
		if sign {
			payload, err := root.NextDeploySet(next, p.Now())
			if err != nil {
				return err
			}
			return p.signSet(ctx, d, root, next, &proposal{payload: payload})
		}
		showKeys(p.print, next)
		if !yes {
			ask := installer.Asker{In: bufio.NewReader(p.Stdin), Out: p.Stderr}
			if err := ask.Confirm("Let these keys sign the catalog of this machine"); err != nil {
				return err
			}
		}
		return p.replaceRoot(d, next)
	})
	v.Flag(&threshold, "threshold")
	v.Flag(&yes, "yes")
	v.Flag(&sign, "sign")
}

// replaceRoot makes next the first set, which no other precedes. Between its two writes the
// chain of the old trust.json follows nothing, so nothing is dispatched.
func (p *trustVerbs) replaceRoot(d api.Dirs, next seal.TrustRoot) error {
	first, err := seal.LoadTrustRoot(d.TrustRoot())
	if err != nil {
		return err
	}
	was, errs := first.Digest()
	is, err := next.Digest()
	if err := errors.Join(errs, err); err != nil {
		return err
	}
	if was == is {
		return api.Errorf(api.CodeConflict, "these are the keys of trust.json, which set 2 replaced: nothing that saw a newer set takes it").
			WithHint("let the holders of the keys sign the change with --sign, or change the threshold, too")
	}
	b, err := next.Encode()
	if err == nil {
		err = durable.Replace(d.TrustRoot(), b, 0o644)
	}
	for _, path := range []string{d.TrustChain(), proposalPath(d)} {
		if err == nil {
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "trust root: %w", err)
	}
	p.print("changed: %s", d.TrustRoot())
	return nil
}

// stillVerifies refuses a trust root under which the catalog in force would not count:
// nothing could be dispatched, and no revision could follow it.
func stillVerifies(ctx context.Context, d api.Dirs, root seal.TrustRoot) error {
	store, err := blob.Open(blob.Config{Dir: d.Catalog()})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // only read
	c, err := catalog.Open(store, root)
	if err == nil {
		_, err = c.Current(ctx)
	}
	if err != nil && catalog.FaultOf(err) != catalog.FaultEmpty {
		return api.Errorf(api.CodeConflict, "the catalog in force would not verify: %w", err).
			WithHint("first publish a revision that the keys which stay have signed: bailiwick catalog apply")
	}
	return nil
}

// proposal is a set of deploy keys that has too few signatures.
type proposal struct {
	envelope, payload []byte
	set               api.OperatorSet
}

func proposalPath(d api.Dirs) string { return d.TrustChain() + ".proposal" }

// proposed returns the set that waits for signatures; nil without one. It is not verified.
func (p *trustVerbs) proposed() (*proposal, error) {
	b, err := blob.ReadBounded(proposalPath(p.dirs()), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // usually there is no proposal
	}
	q := &proposal{envelope: bytes.TrimSuffix(b, []byte("\n"))}
	if err == nil {
		q.payload, err = seal.Payload(q.envelope, seal.DeploySet)
	}
	if err == nil {
		var rec seal.DeploySetRecord
		rec, err = seal.ParseDeploySet(q.payload)
		q.set = rec.Set
	}
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "proposed deploy keys: %w", err).WithHint("propose them again: bailiwick-deploy trust add --sign")
	}
	return q, nil
}

// signers are the ids of the keys that signed, as the proposal claims.
func (q *proposal) signers() string {
	ids, err := seal.Signers(q.envelope, seal.DeploySet)
	if err != nil {
		return "nobody"
	}
	return strings.Join(each(ids, func(id seal.KeyID) string { return string(id) }), ", ")
}

func (p *trustVerbs) signCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		d := p.dirs()
		root, err := seal.LoadDeployKeys(d)
		if err != nil {
			return err
		}
		q, err := p.proposed()
		if err != nil {
			return err
		}
		if q == nil {
			return api.Errorf(api.CodeNotFound, "no set of deploy keys is proposed").WithHint("propose one: bailiwick-deploy trust add FILE --sign")
		}
		next, err := seal.ParseTrustRoot(q.set.Root)
		if err != nil {
			return api.Errorf(api.CodeIntegrity, "proposed deploy keys: %w", err)
		}
		if err := stillVerifies(ctx, d, next); err != nil {
			return err
		}
		return p.signSet(ctx, d, root, next, q)
	})
}

// signSet adds this person's signatures to a proposal, and puts it in force when it has enough.
func (p *trustVerbs) signSet(ctx context.Context, d api.Dirs, root, next seal.TrustRoot, q *proposal) error {
	signers, err := p.keys.signers(ctx, deployKey(p.Dirs), changeOf(root, next), ", to sign this")
	if err != nil {
		return err
	}
	for _, s := range signers {
		if !root.Has(s.KeyID()) {
			return api.Errorf(api.CodeDenied, "key %s is not in the set of deploy keys in force", s.KeyID()).WithHint("see: bailiwick-deploy trust show")
		}
	}
	envelope, err := seal.CoSign(ctx, seal.DeploySet, q.payload, q.envelope, signers...)
	if err != nil {
		return err
	}
	ids, err := seal.VerifyDetached(q.payload, [][]byte{envelope}, seal.DeploySet, root)
	if errors.Is(err, seal.ErrThreshold) {
		if err := durable.Replace(proposalPath(d), append(envelope, '\n'), 0o644); err != nil {
			return err
		}
		p.print("proposed, signed by %d of %d; then: bailiwick-deploy trust sign", len(ids), root.Threshold)
		return nil
	}
	var now seal.TrustRoot
	if err == nil {
		now, err = seal.AppendDeploySet(d, envelope)
	}
	if err != nil {
		return api.Errorf(api.CodeConflict, "%w", err).WithHint("propose the change again: it has to follow the set in force; see: bailiwick-deploy trust show")
	}
	if err := os.Remove(proposalPath(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.print("set %d of the deploy keys is in force, signed by %d", now.DeploySetNumber(), len(ids))
	return nil
}

// changeOf describes the step from one set to the next, for a person who signs it.
func changeOf(root, next seal.TrustRoot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Deploy keys: %d of %d must sign, instead of %d of %d\n", next.Threshold, len(next.Keys), root.Threshold, len(root.Keys))
	for _, k := range next.Keys {
		if !root.Has(k.ID) {
			fmt.Fprintf(&b, "+ %s  %s\n", k.ID, visible(k.Name))
		}
	}
	for _, k := range root.Keys {
		if !next.Has(k.ID) {
			fmt.Fprintf(&b, "- %s  %s\n", k.ID, visible(k.Name))
		}
	}
	return b.String()
}
