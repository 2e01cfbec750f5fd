package deploycli

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/installer"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// machineVerbs put an installation in mode system on this machine and take it off.
type machineVerbs struct{ *program }

func (p *machineVerbs) host() installer.Host { return installer.Host{Say: p.print} }

// asRoot refuses an account that cannot change the machine.
func asRoot() error {
	if os.Getuid() != 0 {
		return api.Errorf(api.CodeInvalid, "only root changes the installation of a machine").WithHint("repeat the command with sudo")
	}
	return nil
}

func (p *machineVerbs) installCommand(v *console.Verb) {
	t, root := installer.Tree{Prefix: "/usr/local"}, ""
	v.Do(func(ctx context.Context, _ []string) (err error) {
		if t.From == "" {
			t.From = p.Beside
		}
		if t.From, err = filepath.Abs(t.From); err != nil {
			return err
		}
		if !filepath.IsAbs(t.Prefix) {
			return api.Errorf(api.CodeInvalid, "--prefix %s: want an absolute path", t.Prefix)
		}
		if root != "" {
			return t.Install(ctx, root)
		}
		if err := asRoot(); err != nil {
			return err
		}
		if err := t.Install(ctx, "/"); err != nil {
			return err
		}
		if err := p.host().Accounts(ctx); err != nil {
			return err
		}
		p.print("installed in %s; next: sudo bailiwick-deploy setup", t.Prefix)
		return p.host().Systemctl(ctx, "daemon-reload")
	})
	v.Flag(&t.Prefix, "prefix")
	v.Flag(&t.From, "from")
	v.Flag(&root, "root")
}

func (p *machineVerbs) removeCommand(v *console.Verb) {
	t := installer.Tree{Prefix: "/usr/local"}
	v.Do(func(ctx context.Context, _ []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		if t.Prefix == "/usr" {
			return api.Errorf(api.CodeInvalid, "/usr has the programs of a package").WithHint("apt remove bailiwick, or: dnf remove bailiwick")
		}
		if err := p.host().Stop(ctx); err != nil {
			return err
		}
		if err := t.Remove("/"); err != nil {
			return api.Errorf(api.CodeUnavailable, "remove: %w", err).WithHint("repeat the command when the cause is gone")
		}
		for _, place := range installer.Data(api.SystemDirs(p.getenv)) {
			p.print("%s stays; bailiwick-deploy purge removes it", place)
		}
		p.print("the accounts bailiwick and bailiwick-web and the group bailiwick-deploy stay")
		return p.host().Systemctl(ctx, "daemon-reload")
	})
	v.Flag(&t.Prefix, "prefix")
}

// getenv is the value of a variable of the environment.
func (p *program) getenv(name string) string {
	for _, kv := range p.Env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func (p *machineVerbs) setupCommand(v *console.Verb) {
	from, yes := "", false
	v.Do(func(ctx context.Context, _ []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		s := installer.Setup{Dirs: api.SystemDirs(p.getenv), Version: p.Version, Catalog: p.emptyCatalog}
		if err := s.AlreadySetUp(); err != nil {
			return err
		}
		if err := p.host().Accounts(ctx); err != nil {
			return api.Errorf(api.CodeUnavailable, "%w", err).WithHint("install the package first, or: bailiwick-deploy install")
		}
		ask := installer.Asker{In: bufio.NewReader(p.Stdin), Out: p.Stderr}
		var err error
		if from != "" {
			s.Answers, err = installer.ReadAnswers(from)
		} else {
			s.Answers, err = ask.Answers()
		}
		if err == nil {
			err = s.Show(p.print)
		}
		if err == nil && !yes {
			err = ask.Confirm("Write this")
		}
		if err == nil {
			err = s.Write(ctx, p.host())
		}
		if err != nil {
			return err
		}
		p.print("this machine is set up; its people run: bailiwick can")
		return p.host().Systemctl(ctx, "enable", "--now", "bailiwick.service")
	})
	v.Flag(&from, "from")
	v.Flag(&yes, "yes")
}

// emptyCatalog creates the catalog unless an interrupted setup has.
func (p *program) emptyCatalog(dir string, root seal.TrustRoot) error {
	cfg := deploy.Config{Dir: dir, TrustRoot: root, Now: p.Now}
	c, err := deploy.Open(cfg)
	if errors.Is(err, blob.ErrNoStore) || errors.Is(err, fs.ErrNotExist) {
		c, err = deploy.Create(cfg)
	}
	if err != nil {
		return err
	}
	return c.Close()
}

func (p *machineVerbs) backupCommand(v *console.Verb) {
	b := installer.Backup{Dirs: api.SystemDirs(p.getenv), Version: p.Version, Now: p.Now}
	v.Do(func(ctx context.Context, args []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		path, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		if found, err := exists(b.Dirs.TrustRoot()); err != nil || !found {
			return errors.Join(api.Errorf(api.CodeNotFound, "this machine is not set up: %s is missing", b.Dirs.TrustRoot()), err)
		}
		err = b.Write(ctx, path, func(rest func() error) error {
			return p.host().Stopping(ctx, true, func() error { return installer.Stopped(b.Dirs, rest) })
		})
		if err == nil {
			p.print("written: %s; it has the service's key: keep it as you keep that", visible(path))
		}
		return err
	})
	v.Flag(&b.Identity, "identity")
}

func (p *machineVerbs) restoreCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, args []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		path, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		if err := p.host().Accounts(ctx); err != nil {
			return err
		}
		r := installer.Restore{Dirs: api.SystemDirs(p.getenv), Version: p.Version, Now: p.Now, Say: p.print}
		if err := p.host().Stopping(ctx, false, func() error {
			return installer.Stopped(r.Dirs, func() error { return r.Run(ctx, path) })
		}); err != nil {
			return err
		}
		p.print("next: sudo systemctl start bailiwick.service; it refuses this state while an anchor has more: see bailiwick anchor lost")
		return nil
	})
}

func (p *machineVerbs) upgradeCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		u := installer.Upgrade{Dirs: api.SystemDirs(p.getenv), Version: p.Version, Now: p.Now, Host: p.host()}
		if found, err := exists(u.Dirs.TrustRoot()); err != nil || !found {
			p.print("this machine is not set up: sudo bailiwick-deploy setup")
			return err
		}
		return u.Run(ctx)
	})
}

func (p *machineVerbs) purgeCommand(v *console.Verb) {
	yes := false
	v.Do(func(ctx context.Context, _ []string) error {
		if err := asRoot(); err != nil {
			return err
		}
		d := api.SystemDirs(p.getenv)
		for _, place := range installer.Data(d) {
			p.print("removes %s", place)
		}
		if !yes {
			ask := installer.Asker{In: bufio.NewReader(p.Stdin), Out: p.Stderr}
			if err := ask.Confirm("Remove the trust roots, the log, all work and all secrets of this machine"); err != nil {
				return err
			}
		}
		if err := p.host().Stop(ctx); err != nil {
			return err
		}
		if err := installer.Stopped(d, func() error { return installer.Purge(d) }); err != nil {
			return err
		}
		p.print("the programs, the accounts bailiwick and bailiwick-web and the group bailiwick-deploy stay; people keep their keys")
		return nil
	})
	v.Flag(&yes, "yes")
}
