package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// The worker that is shipped runs an attempt to its end under a uid block, jail and all.
//
// proves R-S2
func TestTheShippedWorkerRunsInABlock(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	bin := t.TempDir()
	must(t, os.Chmod(bin, 0o755)) //nolint:gosec // G302: as on every machine
	for _, name := range []string{"bailiwick-worker", "bailiwick-tool"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, name), "../../../cmd/"+name)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	w.cfg.Worker = filepath.Join(bin, "bailiwick-worker")
	w.cfg.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "XDG_DATA_HOME=" + filepath.Dir(w.dirs.Data), "XDG_STATE_HOME=" + filepath.Dir(w.dirs.State)}
	must(t, seal.NewHistory(seal.KeyOf(w.key, "")).Save(w.dirs.State))
	m := w.manifest("edit")
	a := w.attempt(m)
	dir := a.Dir.Name()
	for name, content := range map[string][]byte{record.WorkManifest: a.Manifest, record.WorkInput: []byte("{}")} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		must(t, os.Chown(filepath.Join(dir, name), serviceUID, serviceUID))
	}
	proc, err := p.given(w.launcher()).Worker(t.Context(), a)
	must(t, err)
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", w.control)
	must(t, err)
	defer conn.Close() //nolint:errcheck // of a test
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var m record.WorkerMessage
		must(t, json.Unmarshal(in.Bytes(), &m))
		if m.Event == "ready" {
			_, err := conn.Write([]byte("{\"proceed\":true}\n"))
			must(t, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- proc.Wait() }()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	said, _ := os.ReadFile(a.Log.Name())
	sealed, err := os.ReadFile(filepath.Join(dir, record.WorkResult))
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	payload, err := seal.Payload(sealed, seal.Result)
	must(t, err)
	var r record.Result
	must(t, canon.Decode(payload, &r))
	if r.Outcome != api.EventFinished {
		t.Errorf("%s %s %s\n%s", r.Outcome, r.Reason, r.Message, said)
	}
}
