package cli

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// decideFlags are those of every verb that an operator signs.
type decideFlags struct {
	keys   []string
	reason string
}

func (f *decideFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.keys, "key", nil, "operator key to sign with; may be given several times (default "+"$XDG_CONFIG_HOME/bailiwick/operator.key)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the log")
}

// decided is an operator's decision that is in force.
type decided struct {
	record  api.OperatorRecord
	receipt api.OperatorReceipt
}

// decide has r signed and hands it in. This program has no key: it says what is
// to be decided, and bailiwick-deploy shows exactly that and asks for the
// passphrase on the terminal (R-B9).
func (t *tree) decide(ctx context.Context, f decideFlags, r api.OperatorRecord) (decided, error) {
	c := t.conn()
	defer c.Close()
	head, err := c.Operator().Head(ctx)
	if err != nil {
		return decided{}, err
	}
	r.V, r.Service, r.Number, r.Previous = 1, head.Service, head.Number+1, head.Digest
	r.At, r.Reason = t.Now().UTC().Truncate(time.Second), f.reason
	if err := r.Check(); err != nil {
		return decided{}, api.Errorf(api.CodeInvalid, "%w", err)
	}
	payload, err := canon.Marshal(r)
	if err != nil {
		return decided{}, err
	}
	envelope, err := t.sign(ctx, f.keys, payload)
	if err != nil {
		return decided{}, err
	}
	receipt, err := c.Operator().Record(ctx, envelope)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeUnavailable {
		return decided{}, e.WithHint("nobody knows whether it is in force; see: bailiwick audit list --kind operator.recorded")
	}
	return decided{r, receipt}, err
}

// sign has the program that may hold a key sign payload.
func (t *tree) sign(ctx context.Context, keys []string, payload []byte) ([]byte, error) {
	path := filepath.Join(t.Beside, "bailiwick-deploy")
	args := []string{"operator", "sign"}
	for _, k := range keys {
		args = append(args, "--key", k)
	}
	var envelope bytes.Buffer
	child := exec.CommandContext(ctx, path, args...) //nolint:gosec // G204: the program lies beside this one
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(payload), &envelope, t.Stderr
	// The terminal sends an interrupt to the child as well, which then gives the
	// terminal back.
	child.Cancel = func() error { return nil }
	err := child.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() < 0 {
			return nil, errSilent{1}
		}
		return nil, errSilent{exit.ExitCode()}
	}
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "%s: %w", path, err).WithHint("the programs of one installation lie in one folder")
	}
	return bytes.TrimSuffix(envelope.Bytes(), []byte("\n")), nil
}
