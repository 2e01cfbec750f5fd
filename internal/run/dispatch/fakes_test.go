package dispatch

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// readCatalog has the service read the catalog of its directory, which may not exist.
func (g gate) readCatalog(t testing.TB) {
	t.Helper()
	c := &g.cfg
	var err error
	if c.InForce, err = inforce.Open(t.Context(), inforce.Config{Dirs: c.Dirs, Store: c.Store, Ledger: c.Ledger, Operator: c.Operator, Logger: c.Logger}); err != nil {
		t.Fatal(err)
	}
}

// program starts a program as every worker, whatever the manifest says.
type program string

func (p program) Worker(_ context.Context, a *launch.Attempt) (*launch.Process, error) {
	cmd := exec.Command(string(p), "--attempt", a.Dir.Name())
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = []string{}, "/", a.Log, a.Log
	lock, err := durable.Lock(a.Dir.Name() + ".lock") // the test waits for its exit: see awaitWorkers
	if err != nil {
		return nil, err
	}
	defer lock.Close() //nolint:errcheck // the program has its own copy
	cmd.ExtraFiles = []*os.File{a.Control, lock}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &launch.Process{PID: cmd.Process.Pid, Wait: cmd.Wait, Kill: cmd.Process.Kill}, nil
}

func (program) Find(context.Context, launch.Running) (*launch.Process, error) {
	return nil, launch.ErrNoWorker // no test recovers a running one
}

func (program) Fetch(context.Context, launch.Order, string, string) (record.FetchResult, error) {
	return record.FetchResult{}, errors.New("no fetch")
}

// jobFor returns the job of a dispatch that program starts.
func jobFor(g gate, r *row) executor.Job {
	none := func(io.Writer) error { return nil }
	return executor.Job{Dir: g.files.dir(r), Files: map[string]executor.Content{record.WorkManifest: none}}
}

// noTools is a service whose agents have no tools.
type noTools struct{}

func (noTools) Open(context.Context, gateway.Attempt) (*gateway.View, error) {
	return nil, errors.New("no tools")
}

func (noTools) ClosedSince(*catalog.Revision, api.Tool) time.Time { return time.Time{} }

func (noTools) Seal(context.Context, api.DispatchID, int) (*api.Artifact, error) {
	return nil, nil //nolint:nilnil // no calls
}

func (noTools) Calls(context.Context, api.DispatchID, int, *api.Artifact, func(*api.ToolCallLine) error) error {
	return nil
}

// nobody approves, and was asked nothing.
type nobody struct{}

func (nobody) Shows(context.Context, api.Principal, api.RunID, api.DispatchID) (bool, error) {
	return false, nil
}

func (nobody) UseTask(*store.Tx, api.TaskAction) (bool, error) { return false, nil }

func (nobody) EndDispatch(*store.Tx, api.DispatchID) error { return nil }

func (nobody) ForgetDispatch(*store.Tx, api.DispatchID) error { return nil }

// noSecrets is a store without values.
type noSecrets struct{}

func (noSecrets) Resolve(context.Context, string) (string, error) {
	return "", errors.New("no such value")
}

// noObserver counts nothing.
type noObserver struct{}

func (noObserver) Accepted(api.Dispatch, time.Duration) {}
func (noObserver) Started(api.Dispatch)                 {}
func (noObserver) Ended(api.Dispatch)                   {}
func (noObserver) Recovered(string)                     {}
