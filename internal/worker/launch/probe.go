package launch

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// SecretCheck asks whether a worker could have the value that a reference names, for its uses.
type SecretCheck struct {
	Ref  string           `json:"ref"`
	Uses []api.SecretKind `json:"uses,omitempty"`
}

// probe has a worker without an attempt try a jail under a uid block, with the limits of one that signs none. The report is the
// worker's, and not read here; lacks are the limits that the block's own groups do not hold.
func (l *Launcher) probe(ctx context.Context) (report []byte, lacks []string, err error) {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	disk, err := os.Open(l.cfg.Dirs.LauncherState())
	if err != nil {
		return nil, nil, err
	}
	defer disk.Close()                                                                                                                   //nolint:errcheck // only names the disk
	b, err := l.sys.blocks.take(Running{"probe", int(rand.Uint32())}, l.sys.limits(&record.Manifest{Limits: api.DefaultLimits()}, disk)) //nolint:gosec // G404: only a name
	if err != nil {
		return nil, nil, err
	}
	defer b.Close() //nolint:errcheck // held until the process has ended
	report, err = account.Ask(ctx, account.Program{Path: l.cfg.Worker, Args: []string{"--probe"}, Env: l.cfg.Env, Block: &b.Block, Group: b.group}, nil)
	return report, b.group.Lacks, err
}

// check reads the value that a reference names, and keeps nothing of it: no error has any of it.
func (s *system) check(ctx context.Context, c SecretCheck, sealed map[api.Name][]byte) error {
	value, err := s.resolver(s.marks.known(), sealed)(ctx, api.SecretRef{Ref: c.Ref})
	if err == nil {
		err = api.CheckSecretUses(c.Uses, value)
	}
	if err != nil {
		err = api.Errorf(api.CodeInvalid, "%s: %w", c.Ref, err)
	}
	return err
}
