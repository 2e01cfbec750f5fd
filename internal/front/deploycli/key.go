package deploycli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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

func deployKey(d api.Dirs) keyKind {
	return keyKind{"deploy key", "sign catalogs", d.DeployKey(), "bailiwick init, or bailiwick key create"}
}

func operatorKey(d api.Dirs) keyKind {
	return keyKind{"operator key", "sign an operator's decisions, such as raising its own ceiling,", d.OperatorKey(), "bailiwick init"}
}

// keyVerbs are the verbs about the keys of a kind.
type keyVerbs struct {
	*program
	kind keyKind
}

func (p *keyVerbs) createCommand(v *console.Verb) {
	var unencrypted bool
	var name string
	v.Do(func(ctx context.Context, _ []string) error {
		file, err := p.keys.path(p.kind)
		if err != nil {
			return err
		}
		phrase, err := newKeyPassphrase(ctx, unencrypted, p.kind, file)
		if err != nil {
			return err
		}
		k, err := p.keys.create(p.kind, file, name, phrase)
		if err != nil {
			return err
		}
		return p.show(seal.KeyOf(k, p.keys.holder(name)), file)
	})
	v.Flag(&unencrypted, "insecure-unencrypted")
	v.Flag(&name, "name")
	p.formatFlag(v)
}

func (p *keyVerbs) showCommand(v *console.Verb) {
	v.Do(func(context.Context, []string) error {
		file, err := p.keys.path(p.kind)
		if err != nil {
			return err
		}
		k, err := seal.LoadPublic(file)
		if err != nil {
			return p.kind.missing(err)
		}
		return p.show(k, file)
	})
	p.formatFlag(v)
}

func (p *keyVerbs) show(k seal.Key, path string) error {
	return p.answer(k, func(o *out) {
		o.row("id", string(k.ID))
		o.row("name", k.Name)
		o.row("public", base64.StdEncoding.EncodeToString(k.Public))
		o.row("file", path)
	}, string(k.ID))
}

// keyring has the keys of a command line: those that --key names, or the default of a
// kind.
type keyring struct {
	named  []string
	login  string    // of the user, the holder of a key without a name
	stderr io.Writer // for warnings
}

// paths are the keys to sign with.
func (r *keyring) paths(kind keyKind) []string {
	if len(r.named) > 0 {
		return r.named
	}
	return []string{kind.path}
}

// path is the one key that a command creates or shows.
func (r *keyring) path(kind keyKind) (string, error) {
	paths := r.paths(kind)
	if len(paths) != 1 {
		return "", api.Errorf(api.CodeInvalid, "--key: want one here, got %d", len(paths))
	}
	return paths[0], nil
}

// holder is the name of a key's holder.
func (r *keyring) holder(name string) string {
	if name == "" {
		return r.login
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
func newKeyPassphrase(ctx context.Context, unencrypted bool, kind keyKind, path string) (passphrase, error) {
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

func (r *keyring) create(kind keyKind, path, name string, phrase passphrase) (*seal.FileKey, error) {
	k, err := seal.CreateKey(path, seal.NewKey{Name: r.holder(name), Unencrypted: phrase.unencrypted, Passphrase: phrase.text})
	if errors.Is(err, fs.ErrExist) {
		return nil, alreadyExists(err)
	}
	if err == nil && phrase.unencrypted {
		r.warnUnencrypted(path, kind)
	}
	return k, err
}

func alreadyExists(err error) error {
	return api.Errorf(api.CodeConflict, "%w", err).WithHint("existing keys are never overwritten; use another path with --key")
}

func (r *keyring) warnUnencrypted(path string, kind keyKind) {
	say(r.stderr, "WARNING: %s is NOT ENCRYPTED. Anyone who can read that file, including any agent", visible(path))
	say(r.stderr, "WARNING: with a shell under your account, can %s in your name. For demos and CI only.", kind.power)
}

// signers opens every key to sign with. shown is printed before the first use of
// each key: with the prompt for its passphrase, which ends with purpose, or on
// standard error if it has no passphrase.
func (r *keyring) signers(ctx context.Context, kind keyKind, shown, purpose string) ([]seal.Signer, error) {
	var all []seal.Signer
	for _, uri := range r.paths(kind) {
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
				say(r.stderr, "%s", shown)
			}
			r.warnUnencrypted(k.Path, kind)
			say(r.stderr, "WARNING: It signs this without asking a person, on a terminal or without one.")
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
