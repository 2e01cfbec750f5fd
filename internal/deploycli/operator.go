package deploycli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// maxRecord bounds what is handed in to be signed.
const maxRecord = 64 << 10

func (p *program) operatorCommand() *cobra.Command {
	cmd := group("operator", "Sign an operator's decisions, one by one")
	cmd.AddCommand(p.operatorSignCommand(), p.operatorKeygenCommand(), p.operatorShowCommand())
	return cmd
}

func (p *program) operatorSignCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sign",
		Short: "Sign one decision, which is read from the standard input",
		Long: `sign reads one operator record, canonical JSON, from the standard input, shows in plain
words what it decides, asks for the passphrase on the controlling terminal, and writes the
signed envelope to the standard output. Giving the passphrase is the consent, to this one
decision and nothing else. The verbs of bailiwick call it: principal add and
remove, token create, rotate and revoke, ceiling set, stop lift.

The operator's key is $XDG_CONFIG_HOME/bailiwick/operator.key unless --key names others.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.operatorSign(cmd.Context()) },
	}
}

func (p *program) operatorSign(ctx context.Context) error {
	payload, err := io.ReadAll(io.LimitReader(p.Stdin, maxRecord+1))
	if err != nil {
		return err
	}
	r, err := readRecord(payload, p.Now())
	if err != nil {
		return api.Errorf(api.CodeInvalid, "nothing was signed: %w", err).WithHint("the verbs of bailiwick make such a record; see: bailiwick token --help, bailiwick ceiling --help")
	}
	words := decision(r)
	var signers []seal.Signer
	for _, path := range p.operatorKeyPaths() {
		shown := false
		k, err := seal.OpenSigner(ctx, path, func(ctx context.Context, name string) (string, error) {
			shown = true
			return prompt(ctx, words+"\nPassphrase of the operator's key "+visible(name)+", to sign this: ")
		})
		if errors.Is(err, seal.ErrPassphrase) {
			return api.Errorf(api.CodeUnauthenticated, "%w", err)
		}
		if err != nil {
			return operatorKeyMissing(err)
		}
		if !shown {
			p.say("%s", words)
			p.warnPlain(k.Path, powerOf(operatorKey))
		}
		signers = append(signers, k)
	}
	envelope, err := seal.Sign(ctx, seal.Operator, payload, signers...)
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(append(envelope, '\n'))
	return err
}

// readRecord reads what is to be signed. Anything but the one canonical
// encoding of one whole decision of now is refused: what is shown must be what
// is signed, and a signature must not be of use later.
func readRecord(payload []byte, now time.Time) (r api.OperatorRecord, err error) {
	if len(payload) > maxRecord {
		return r, api.Errorf(api.CodeInvalid, "operator record: larger than %d bytes", maxRecord)
	}
	if err := canon.DecodeExact(payload, &r); err != nil {
		return r, api.Errorf(api.CodeInvalid, "operator record: %w", err)
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	if age := now.Sub(r.At); age > api.OperatorRecordMaxAge || age < -api.OperatorRecordMaxAge {
		return r, api.Errorf(api.CodeInvalid, "operator record: it is of %s, and now it is %s", r.At.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return r, nil
}

func (p *program) operatorKeygenCommand() *cobra.Command {
	var plain bool
	var name string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make an operator's key, protected by a passphrase",
		Long: `keygen makes an operator's key and writes its public half beside it. Its signatures count
once operators.json lists it: init writes that file for the first key, and where there are
several a person adds the line, as in trust.json.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := p.operatorKeyPath()
			if err != nil {
				return err
			}
			phrase, err := p.phraseFor(cmd.Context(), plain, operatorKey, path)
			if err != nil {
				return err
			}
			k, err := p.createKey(operatorKey, path, name, phrase)
			if err != nil {
				return err
			}
			return p.showKey(seal.KeyOf(k, p.keyName(name)), path)
		},
	}
	cmd.Flags().BoolVar(&plain, "insecure-unencrypted", false, "write the key in plain: whoever can read the file can sign")
	cmd.Flags().StringVar(&name, "name", "", "name of the key's holder, for people (default the login)")
	p.formatFlag(cmd, "text")
	return cmd
}

func (p *program) operatorShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the public half of an operator's key",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			path, err := p.operatorKeyPath()
			if err != nil {
				return err
			}
			k, err := seal.LoadPublic(path)
			if err != nil {
				return operatorKeyMissing(err)
			}
			return p.showKey(k, path)
		},
	}
	p.formatFlag(cmd, "text")
	return cmd
}

// operatorKeyPaths are the keys that sign a decision.
func (p *program) operatorKeyPaths() []string {
	if len(p.keys) > 0 {
		return p.keys
	}
	return []string{p.Dirs.OperatorKey()}
}

func (p *program) operatorKeyPath() (string, error) {
	paths := p.operatorKeyPaths()
	if len(paths) != 1 {
		return "", api.Errorf(api.CodeInvalid, "--key: want one here, got %d", len(paths))
	}
	return paths[0], nil
}

// initOperatorKey makes the operator's key unless it is there.
func (p *program) initOperatorKey(phrase passphrase) (made, error) {
	path := p.Dirs.OperatorKey()
	m := made{Path: path, What: operatorKey}
	if there, err := exists(path); there || err != nil {
		return m, err
	}
	m.Made = true
	_, err := p.createKey(operatorKey, path, "", phrase)
	return m, err
}

// initOperators writes the file of the operators' keys unless it is there.
func (p *program) initOperators() (made, error) {
	m := made{Path: p.operatorsPath(), What: "operators"}
	if there, err := exists(m.Path); there || err != nil {
		if err == nil {
			_, err = seal.LoadTrustRoot(m.Path)
		}
		return m, err
	}
	k, err := seal.LoadPublic(p.Dirs.OperatorKey())
	if err != nil {
		return m, err
	}
	m.Made = true
	return m, seal.CreateTrustRoot(m.Path, seal.RootOf(k))
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func operatorKeyMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeNotFound, "%w", err).WithHint("make one with: bailiwick init; or name another with --key")
	}
	return err
}
