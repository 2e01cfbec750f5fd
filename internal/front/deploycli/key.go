package deploycli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// keyKind is a use of keys: deploy keys sign catalogs, operator keys decisions.
type keyKind struct {
	name  string
	power string // what a signature can do
	path  string // of the default key
	make  string // the commands that create one
}

func (p *program) deployKey() keyKind {
	return keyKind{"deploy key", "sign catalogs", p.Dirs.DeployKey(), "bailiwick init, or bailiwick key create"}
}

func (p *program) operatorKey() keyKind {
	return keyKind{"operator key", "sign an operator's decisions, such as raising its own ceiling,", p.Dirs.OperatorKey(), "bailiwick init"}
}

// createCommand makes the verb that creates a key.
func (p *program) createCommand(kind keyKind) func(*console.Verb) {
	return func(v *console.Verb) {
		var unencrypted bool
		var name string
		v.Do(func(ctx context.Context, _ []string) error {
			file, err := p.keyPath(kind)
			if err != nil {
				return err
			}
			phrase, err := p.newKeyPassphrase(ctx, unencrypted, kind, file)
			if err != nil {
				return err
			}
			k, err := p.createKey(kind, file, name, phrase)
			if err != nil {
				return err
			}
			return p.showKey(seal.KeyOf(k, p.keyName(name)), file)
		})
		v.Flag(&unencrypted, "insecure-unencrypted")
		v.Flag(&name, "name")
		p.formatFlag(v)
	}
}

// showKeyCommand makes the verb that shows a key.
func (p *program) showKeyCommand(kind keyKind) func(*console.Verb) {
	return func(v *console.Verb) {
		v.Do(func(context.Context, []string) error {
			file, err := p.keyPath(kind)
			if err != nil {
				return err
			}
			k, err := seal.LoadPublic(file)
			if err != nil {
				return kind.missing(err)
			}
			return p.showKey(k, file)
		})
		p.formatFlag(v)
	}
}

// keyPaths are the keys to sign with.
func (p *program) keyPaths(kind keyKind) []string {
	if len(p.keys) > 0 {
		return p.keys
	}
	return []string{kind.path}
}

// keyPath is the one key that a command creates or shows.
func (p *program) keyPath(kind keyKind) (string, error) {
	paths := p.keyPaths(kind)
	if len(paths) != 1 {
		return "", api.Errorf(api.CodeInvalid, "--key: want one here, got %d", len(paths))
	}
	return paths[0], nil
}

func (p *program) keyName(name string) string {
	if name == "" {
		return p.Login
	}
	return name
}

// passphrase protects a new key. The zero value creates no key.
type passphrase struct {
	text        string
	unencrypted bool // explicitly without a passphrase
}

// newKeyPassphrase asks twice for the passphrase of a new key, unless it is to be
// unencrypted.
func (p *program) newKeyPassphrase(ctx context.Context, unencrypted bool, kind keyKind, path string) (passphrase, error) {
	if unencrypted {
		return passphrase{unencrypted: true}, nil
	}
	if found, err := exists(path); found || err != nil { // before the user types
		if err == nil {
			err = alreadyExists(fmt.Errorf("key %s: %w", path, fs.ErrExist))
		}
		return passphrase{}, err
	}
	text, err := newPassphrase(ctx, "the "+kind.name+" "+visible(path))
	return passphrase{text: text}, err
}

func (p *program) createKey(kind keyKind, path, name string, phrase passphrase) (*seal.FileKey, error) {
	k, err := seal.CreateKey(path, seal.NewKey{Name: p.keyName(name), Unencrypted: phrase.unencrypted, Passphrase: phrase.text})
	if errors.Is(err, fs.ErrExist) {
		return nil, alreadyExists(err)
	}
	if err == nil && phrase.unencrypted {
		p.warnUnencrypted(path, kind)
	}
	return k, err
}

func alreadyExists(err error) error {
	return api.Errorf(api.CodeConflict, "%w", err).WithHint("existing keys are never overwritten; use another path with --key")
}

func (p *program) warnUnencrypted(path string, kind keyKind) {
	p.print("WARNING: %s is NOT ENCRYPTED. Anyone who can read that file, including any agent", visible(path))
	p.print("WARNING: with a shell under your account, can %s in your name. For demos and CI only.", kind.power)
}

func (p *program) showKey(k seal.Key, path string) error {
	return p.answer(k, func(o *out) {
		o.row("id", string(k.ID))
		o.row("name", k.Name)
		o.row("public", base64.StdEncoding.EncodeToString(k.Public))
		o.row("file", path)
	}, string(k.ID))
}

// signers opens every key to sign with. shown is printed before the first use of
// each key: with the prompt for its passphrase, which ends with purpose, or on
// standard error if it has no passphrase.
func (p *program) signers(ctx context.Context, kind keyKind, shown, purpose string) ([]seal.Signer, error) {
	var all []seal.Signer
	for _, uri := range p.keyPaths(kind) {
		k, err := seal.OpenSigner(ctx, uri, func(ctx context.Context, name string) (string, error) {
			return prompt(ctx, shown+"Passphrase of the "+kind.name+" "+visible(name)+purpose+": ")
		})
		if errors.Is(err, seal.ErrPassphrase) {
			return nil, api.Errorf(api.CodeUnauthenticated, "%w", err)
		}
		if err != nil {
			return nil, kind.missing(err)
		}
		if !k.Encrypted {
			if shown != "" {
				p.print("%s", shown)
			}
			p.warnUnencrypted(k.Path, kind)
			p.print("WARNING: It signs this without asking a person, on a terminal or without one.")
		}
		all = append(all, k)
	}
	return all, nil
}

// missing says how to create a key that does not exist.
func (k keyKind) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeNotFound, "%w", err).WithHint("make one with: %s; or name another with --key", k.make)
	}
	return err
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
