package deploycli

import (
	"bufio"
	"context"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/installer"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// trustVerbs show and change who signs the catalog of this machine. Root changes it: the
// file is root's.
type trustVerbs struct{ *machineVerbs }

func (p *trustVerbs) showCommand(v *console.Verb) {
	v.Do(func(context.Context, []string) error {
		root, err := seal.LoadTrustRoot(p.trustPath())
		if err != nil {
			return err
		}
		return p.answer(root, func(o *out) { showKeys(o.linef, root) }, each(root.Keys, func(k seal.Key) string { return string(k.ID) })...)
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
		root.Keys = append(root.Keys, k)
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

// changeCommand is a verb that changes the trust root and takes one argument.
func (p *trustVerbs) changeCommand(v *console.Verb, alter func(*seal.TrustRoot, string) error) {
	threshold, yes := 0, false
	v.Do(func(ctx context.Context, args []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		d := api.SystemDirs(p.getenv)
		root, err := seal.LoadTrustRoot(d.TrustRoot())
		if err != nil {
			return api.Errorf(api.CodeNotFound, "%w", err).WithHint("set up this machine: sudo bailiwick-deploy setup")
		}
		if err := alter(&root, args[0]); err != nil {
			return err
		}
		if threshold != 0 {
			root.Threshold = threshold
		}
		b, err := root.Encode()
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		if err := stillVerifies(ctx, d, root); err != nil {
			return err
		}
		showKeys(p.print, root)
		if !yes {
			ask := installer.Asker{In: bufio.NewReader(p.Stdin), Out: p.Stderr}
			if err := ask.Confirm("Let these keys sign the catalog of this machine"); err != nil {
				return err
			}
		}
		if err := durable.Replace(d.TrustRoot(), b, 0o644); err != nil {
			return api.Errorf(api.CodeUnavailable, "trust root: %w", err)
		}
		p.print("changed: %s", d.TrustRoot())
		return nil
	})
	v.Flag(&threshold, "threshold")
	v.Flag(&yes, "yes")
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
