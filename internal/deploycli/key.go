package deploycli

import (
	"context"
	"errors"
	"fmt"
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
			phrase, err := p.phraseFor(cmd.Context(), plain, deployKey, path)
			if err != nil {
				return err
			}
			k, err := p.createKey(deployKey, path, name, phrase)
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

// What a key is for, in words.
const (
	deployKey   = "deploy key"
	operatorKey = "operator key"
)

// passphrase protects a new key. The zero value makes no key.
type passphrase struct {
	text  string
	plain bool // none, as somebody asked for by name
}

// phraseFor asks, twice, for the passphrase of a new key, unless there is to
// be none. What is the words for the key.
func (p *program) phraseFor(ctx context.Context, plain bool, what, path string) (passphrase, error) {
	if plain {
		return passphrase{plain: true}, nil
	}
	if there, err := exists(path); there || err != nil { // before anybody types
		if err == nil {
			err = neverOverwritten(fmt.Errorf("key %s: %w", path, fs.ErrExist))
		}
		return passphrase{}, err
	}
	text, err := newPassphrase(ctx, "the "+what+" "+visible(path))
	return passphrase{text: text}, err
}

func (p *program) createKey(what, path, name string, phrase passphrase) (*seal.FileKey, error) {
	k, err := seal.CreateKey(path, seal.NewKey{Name: p.keyName(name), Unencrypted: phrase.plain, Passphrase: phrase.text})
	if errors.Is(err, fs.ErrExist) {
		return nil, neverOverwritten(err)
	}
	if err == nil && phrase.plain {
		p.warnPlain(path, powerOf(what))
	}
	return k, err
}

func neverOverwritten(err error) error {
	return api.Errorf(api.CodeConflict, "%w", err).WithHint("nothing is ever overwritten; use another path with --key")
}

// powerOf says what whoever has a key can do with it.
func powerOf(what string) string {
	if what == operatorKey {
		return "sign an operator's decisions, such as raising its own ceiling,"
	}
	return "sign catalogs"
}

func (p *program) warnPlain(path, power string) {
	p.say("WARNING: %s is NOT ENCRYPTED. Whoever can read that file, and that includes any agent", visible(path))
	p.say("WARNING: with a shell under your account, can %s in your name. For demos and CI only.", power)
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
		k, err := seal.OpenSigner(ctx, uri, func(ctx context.Context, name string) (string, error) {
			return prompt(ctx, "Passphrase of the deploy key "+visible(name)+": ")
		})
		if errors.Is(err, seal.ErrPassphrase) {
			return nil, api.Errorf(api.CodeUnauthenticated, "%w", err)
		}
		if err != nil {
			return nil, keyMissing(err)
		}
		if !k.Encrypted {
			p.warnPlain(k.Path, powerOf(deployKey))
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
