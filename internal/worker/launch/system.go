package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launchsetting"
)

// System is what a launcher has that does not trust its service.
type System struct {
	Settings    launchsetting.Settings
	Groups      *account.Groups // where those of attempts are made
	Credentials string          // $CREDENTIALS_DIRECTORY; empty without one
}

// Identity is the file in Dirs.LauncherState that decrypts secrets.
const Identity = "identity"

type system struct {
	cfg       *Config
	marks     *Marks
	operators *operators
	blocks    *blocks
}

func newSystem(cfg *Config) *system {
	s, state := cfg.System, cfg.Dirs.LauncherState()
	return &system{
		cfg: cfg, marks: &Marks{path: filepath.Join(state, "marks"), service: s.Settings.Service, grace: s.Settings.Grace},
		operators: &operators{root: cfg.Dirs.OperatorRoot(), dir: state},
		blocks:    &blocks{dir: filepath.Join(state, "blocks"), first: s.Settings.First, count: s.Settings.Blocks, groups: s.Groups},
	}
}

// own returns the limits of what a program uses itself, and of the disk that of is on.
func (s *system) own(o launchsetting.Own, of *os.File) account.Limits {
	return account.Limits{
		Memory: int64(o.Memory), Processes: o.Processes, CPU: o.CPU, Held: s.cfg.System.Settings.Held, Disk: account.Throughput{Of: of, Bytes: int64(s.cfg.System.Settings.Disk)},
	}
}

// limits returns those of a worker and its jail.
func (s *system) limits(m *record.Manifest, dir *os.File) account.Limits {
	l := s.own(s.cfg.System.Settings.Worker, dir)
	l.Memory, l.Processes, l.CPU = l.Memory+int64(m.Limits.Memory), l.Processes+m.Limits.Processes, l.CPU+m.Limits.CPU
	return l
}

// resolver returns the values of secrets: those that operators encrypted to the launcher, and
// systemd's credentials of its unit.
func (s *system) resolver(service seal.KeyID, sealed map[api.Name][]byte) func(context.Context, api.SecretRef) (string, error) {
	return func(_ context.Context, ref api.SecretRef) (string, error) {
		p, err := api.ParseSecretRef(ref.Ref)
		if err != nil {
			return "", err
		}
		return s.value(service, p, sealed)
	}
}

func (s *system) value(service seal.KeyID, p api.SecretPlace, sealed map[api.Name][]byte) (value string, err error) {
	switch p.Source { //nolint:exhaustive // the others belong to the service's account
	case api.SecretFile:
		want, err := s.operators.sealed(service, api.Name(p.Name))
		if err != nil {
			return "", err
		}
		content, ok := sealed[api.Name(p.Name)]
		switch {
		case !ok:
			return "", errors.New("the service gave no encrypted value")
		case api.DigestOf(content) != want:
			return "", fmt.Errorf("the encrypted value is %s, operators set %s", api.DigestOf(content).Short(), want.Short())
		}
		if value, err = seal.Unseal(filepath.Join(s.cfg.Dirs.LauncherState(), Identity), content, record.MaxSecret); err != nil {
			return "", err
		}
		return value, record.CheckSecret(value)
	case api.SecretCredential:
		if s.cfg.System.Credentials == "" {
			return "", errors.New("the launcher has no credentials: add LoadCredential= to bailiwick-launch.service")
		}
		b, err := blob.ReadBounded(filepath.Join(s.cfg.System.Credentials, p.Name), record.MaxSecret+2)
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("no credential %s: add it to LoadCredential= of bailiwick-launch.service", p.Name)
		}
		if err != nil {
			return "", err
		}
		value = record.TrimLine(string(b))
		return value, record.CheckSecret(value)
	}
	return "", fmt.Errorf("%s: references are read by the account of the service, which may not have values in mode system: use file:NAME with bailiwick secret set, or credential:NAME", p.Source)
}

// mounts returns what a worker sees of the machine beside the system's programs.
func (s *system) mounts(a *Attempt, v *verified, dir string, b *block) (account.Opened, error) {
	repository := ""
	if v.named.Source.Name != "" {
		repository = s.cfg.Dirs.Repository(v.named.Source)
	}
	scratch, err := account.Scratch(b.scratch, b.Block)
	if err != nil {
		return nil, err
	}
	mounts, err := account.Open(s.cfg.UID, account.WorkerPaths(s.cfg.Dirs, dir, a.Dir, repository, v.named.Target.ReadOnly))
	return append(mounts, scratch...), err
}
