package deploycli

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

func (p *program) keyCommand() *cobra.Command {
	cmd := group("key", "Make and show deploy keys")
	var plain bool
	var name string
	create := &cobra.Command{
		Use:   "create",
		Short: "Make a deploy key, protected by a passphrase",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := p.keyPath()
			if err != nil {
				return err
			}
			k, err := p.createKey(cmd.Context(), path, name, plain)
			if err != nil {
				return err
			}
			return p.showKey(seal.KeyOf(k, p.keyName(name)), path)
		},
	}
	create.Flags().BoolVar(&plain, "insecure-unencrypted", false, "write the key in plain: whoever can read the file can sign")
	create.Flags().StringVar(&name, "name", "", "name of the key's holder, for people (default the login)")
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the public half of a deploy key",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			path, err := p.keyPath()
			if err != nil {
				return err
			}
			k, err := seal.LoadPublic(path)
			if err != nil {
				return keyMissing(err)
			}
			return p.showKey(k, path)
		},
	}
	p.formatFlag(create, "text")
	p.formatFlag(show, "text")
	cmd.AddCommand(create, show)
	return cmd
}

func (p *program) keyName(name string) string {
	if name == "" {
		return p.Login
	}
	return name
}

// createKey makes a key; the passphrase is asked for twice.
func (p *program) createKey(ctx context.Context, path, name string, plain bool) (*seal.FileKey, error) {
	how := seal.NewKey{Name: p.keyName(name), Unencrypted: plain}
	if plain {
		p.warnPlain(path)
	} else {
		phrase, err := newPassphrase(ctx, path)
		if err != nil {
			return nil, err
		}
		how.Passphrase = phrase
	}
	k, err := seal.CreateKey(path, how)
	if errors.Is(err, fs.ErrExist) {
		return nil, api.Errorf(api.CodeConflict, "%w", err).WithHint("nothing is ever overwritten; use another path with --key")
	}
	return k, err
}

func (p *program) warnPlain(path string) {
	p.say("WARNING: %s is NOT ENCRYPTED. Whoever can read that file, and that includes any agent", path)
	p.say("WARNING: with a shell under your account, can sign catalogs in your name. For demos and CI only.")
}

func (p *program) showKey(k seal.Key, path string) error {
	return p.answer(k, func(o *out) {
		o.row("id", string(k.ID))
		o.row("name", k.Name)
		o.row("public", encode64(k.Public))
		o.row("file", path)
	}, func(o *out) { o.line(string(k.ID)) })
}

// signers opens every key that was asked for.
func (p *program) signers(ctx context.Context) ([]seal.Signer, error) {
	var all []seal.Signer
	for _, uri := range p.keyPaths() {
		k, err := seal.OpenSigner(ctx, uri, askPassphrase)
		if errors.Is(err, seal.ErrPassphrase) {
			return nil, api.Errorf(api.CodeUnauthenticated, "%w", err)
		}
		if err != nil {
			return nil, keyMissing(err)
		}
		if !k.Encrypted {
			p.warnPlain(k.Path)
		}
		all = append(all, k)
	}
	return all, nil
}

func keyMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeNotFound, "%w", err).WithHint("make one with: bailiwick init, or bailiwick key create; or name another with --key")
	}
	return err
}

func setUpFirst(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNoStore) {
		return api.Errorf(api.CodeNotFound, "%w", err).WithHint("set up a catalog with: bailiwick init; or name another place with --data-dir")
	}
	return err
}
