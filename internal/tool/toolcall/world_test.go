package toolcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

const password = "correct horse battery"

// programs has the built programs: bailiwick-toolhost and the hostile server.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bailiwick-upstream-")
	if err != nil {
		return "", err
	}
	for out, pkg := range map[string]string{"bailiwick-toolhost": "../../../cmd/bailiwick-toolhost", "hostile": "./testdata/hostile"} {
		if err := prebuilt.Program(filepath.Join(dir, out), pkg); err != nil {
			return dir, err
		}
	}
	return dir, os.Chmod(dir, 0o755)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := programs(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// world is a pool with a catalog of one server.
type world struct {
	t       testing.TB
	pool    *Pool
	server  api.ToolServer
	store   *blob.Store
	program api.File // the hostile server
	log     *logBuffer

	mu      sync.Mutex
	secrets map[string]string
	changed []Change
}

type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func newWorld(t testing.TB, configure func(*Config)) *world {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, log: &logBuffer{}, secrets: map[string]string{"file:db": password}}
	if w.store, err = blob.Create(blob.Config{Dir: filepath.Join(t.TempDir(), "catalog")}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "hostile"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.store.Put(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	w.program = api.File{Path: "bin/server", Mode: 0o755, Size: int64(len(content)), Digest: d}
	cfg := Config{
		Client:  toolclient.Config{Start: toolclient.Plain{Program: filepath.Join(dir, "bailiwick-toolhost"), Env: []string{"PATH=" + os.Getenv("PATH"), "SERVICE_SECRET=of the service"}}},
		Catalog: w.store, Secrets: w, Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		Changed: func(_ api.Name, closed []Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed = append(w.changed, closed...)
		},
	}
	if configure != nil {
		configure(&cfg)
	}
	w.pool = New(cfg)
	t.Cleanup(w.pool.Close)
	return w
}

func (w *world) Resolve(_ context.Context, ref string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.secrets[ref]
	if !ok {
		return "", errors.New("not set")
	}
	return v, nil
}

func (w *world) ToolServer(name api.Name) (api.ToolServer, api.Digest, error) {
	doc, err := canon.Marshal(w.server)
	if name != w.server.Name {
		err = errors.New("no such server")
	}
	return w.server, api.DigestOf(doc), err
}

func (w *world) Digest() api.Digest { return "" } // in no catalog

func (w *world) Capability(name api.Name) (api.Capability, api.Digest, error) {
	return api.Capability{Name: name, Files: []api.File{w.program}}, w.program.Digest, nil
}

func (w *world) Secret(name api.Name) (api.Secret, api.Digest, error) {
	return api.Secret{Name: name, Ref: "file:" + string(name)}, api.DigestOf([]byte(name)), nil
}

// hostile declares the hostile server in a mode.
func (w *world) hostile(args ...string) *api.StdioServer {
	w.server = api.ToolServer{
		Name: "warehouse", Allow: []api.ToolAllow{{Tool: "do"}, {Tool: "second"}}, Timeout: api.Duration(20 * time.Second),
		Definitions: []api.ToolDefinition{
			{Name: "do", Title: "Do", Description: "Does.", InputSchema: json.RawMessage(`{"properties":{"v":{"type":"string"}},"type":"object"}`), Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
			{
				Name: "second", Description: "Harmless.", InputSchema: json.RawMessage(`{"properties":{"v":{"type":"string"}},"type":"object"}`),
				OutputSchema: json.RawMessage(`{"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"}`),
			},
		},
		Stdio: &api.StdioServer{
			Command:  append(api.Command{"bin/server"}, args...),
			ToolHost: api.ToolHost{Capability: "client", Env: map[string]string{"PLAIN": "yes"}, Secrets: map[string]api.Name{"PASSWORD": "db"}},
		},
	}
	return w.server.Stdio
}

func (w *world) owner(dispatch api.DispatchID) Owner {
	return Owner{Server: w.server.Name, Revision: w, Dispatch: dispatch}
}

func (w *world) callAs(dispatch api.DispatchID, tool, v string) (Answer, error) {
	arguments, err := canon.Marshal(map[string]string{"v": v})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.pool.Call(w.t.Context(), Call{Owner: w.owner(dispatch), Tool: tool, Arguments: arguments})
}

func (w *world) call(v string) (Answer, error) { return w.callAs("d-01", "do", v) }

// text calls the tool do and returns the text of its answer.
func (w *world) text(v string) string {
	w.t.Helper()
	a, err := w.call(v)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", v, err, w.log)
	}
	return textOf(w.t, a)
}

func textOf(t testing.TB, a Answer) string {
	t.Helper()
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("%s: %v", a.Result, err)
	}
	return result.Content[0].Text
}

// fault checks that an error is a fault with a part, and says whether it had no effect.
func fault(t *testing.T, err error, part string, unsent bool) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) || !strings.Contains(f.Message, part) || f.Unsent != unsent {
		t.Errorf("got %v (%+v), want a fault with %q, unsent %v", err, f, part, unsent)
		return
	}
	for _, bad := range []string{password, "/tmp", "127.0.0.1", "bin/server", "\n"} {
		if strings.Contains(f.Message, bad) {
			t.Errorf("fault %q has %q", f.Message, bad)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("never: %s", what)
}
