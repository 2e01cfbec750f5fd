package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

const worldManifest = `version: 1
project: test
tools:
  - server: warehouse
    description: The warehouse.
    stdio: {command: [/bin/warehouse]}
    allow:
      - {tool: query, roles: [quality, transform], tier: observe}
      - {tool: load, roles: [transform], tier: stateful}
      - {tool: apply_change, roles: [transform], tier: stateful, approval: {wait: 1s}}
      - {tool: forget, roles: [transform], tier: stateful, tainted: forbid}
      - {tool: drop, roles: [transform], tier: irreversible, approval: true}
  - server: search
    description: Search.
    stdio: {command: [/bin/search]}
    trust: trusted
    allow:
      - {tool: find, roles: [quality, transform], tier: observe}
      - {tool: write, roles: [transform], tier: stateful}
roles: [quality, transform]
subagents:
  - {name: checker, agent: command, command: ["true"], role: quality, tier: observe}
  - {name: changer, agent: command, command: ["true"], role: transform, tier: irreversible}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
  - {name: free, executor: jail, level: full, mode: open}
  - {name: look, executor: jail, level: full, mode: readonly}
grants:
  - {principal: "local:ann", subagents: [checker, changer], targets: [local, free, look], ceiling: irreversible}
`

// definitions is what the servers of worldManifest say.
func definitions() map[api.Name][]api.ToolDefinition {
	def := func(name string) api.ToolDefinition {
		return api.ToolDefinition{
			Name: name, Title: strings.ToUpper(name), Description: "Does " + name + ".", Annotations: json.RawMessage(`{"readOnlyHint":true}`),
			InputSchema: json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string"},"n":{"type":"integer"}},"additionalProperties":false}`),
		}
	}
	found := def("find")
	found.OutputSchema = json.RawMessage(`{"type":"object","required":["hits"],"properties":{"hits":{"type":"integer"}}}`)
	return map[api.Name][]api.ToolDefinition{
		"warehouse": {def("apply_change"), def("drop"), def("forget"), def("load"), def("query")},
		"search":    {found, def("write")},
	}
}

// revision is the verified catalog revision of a manifest, whose servers say what
// definitions returns.
func revision(t testing.TB, manifest string) *catalog.Revision {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	key, err := seal.NewEphemeral()
	must(err)
	root := seal.RootOf(seal.KeyOf(key, "ann"))
	cfg := deploy.Config{Dir: filepath.Join(dir, "catalog"), TrustRoot: root, Now: time.Now, Define: func(_ context.Context, s api.ToolServer, _ []deploy.ToolFile) (deploy.Offer, error) {
		return deploy.Offer{Tools: definitions()[s.Name]}, nil
	}}
	cat, err := deploy.Create(cfg)
	must(err)
	file := filepath.Join(dir, "bailiwick.yaml")
	load := func() *deploy.Manifest {
		must(os.WriteFile(file, []byte(manifest), 0o600))
		m, err := deploy.Load(t.Context(), file)
		must(err)
		return m
	}
	_, err = cat.Plan(t.Context(), load(), deploy.Options{SourcesElsewhere: true})
	if unpinned, ok := errors.AsType[*deploy.UnpinnedError](err); ok {
		for _, u := range unpinned.Servers {
			line := "  - server: " + string(u.Server)
			manifest = strings.Replace(manifest, line, line+"\n    pin: "+string(u.Pin), 1)
		}
	} else {
		must(err)
	}
	plan, err := cat.Plan(t.Context(), load(), deploy.Options{SourcesElsewhere: true})
	must(err)
	_, err = cat.Apply(t.Context(), plan, deploy.Approval{Author: "ann", Signers: []deploy.Signer{key}})
	must(err)
	must(cat.Close())
	blobs, err := blob.Open(blob.Config{Dir: cfg.Dir})
	must(err)
	defer blobs.Close()
	opened, err := catalog.Open(blobs, root)
	must(err)
	rev, err := opened.Current(t.Context())
	must(err)
	return rev
}

// world is a gateway with a real store, log and catalog. Its servers, operators and
// worker are the test.
type world struct {
	*Gateway
	t      testing.TB
	rev    *catalog.Revision
	engine *policy.Engine

	mu       sync.Mutex
	consent  api.Tier
	stops    []string
	markErr  error
	marks    []Mark
	spent    []string
	asked    []api.Question
	calls    []toolcall.Call
	ended    []api.DispatchID
	closed   map[api.Name][]string                                         // tools, by server
	answer   func(context.Context, toolcall.Call) (toolcall.Answer, error) // nil: text
	dispatch int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, rev: revision(t, worldManifest), consent: api.Irreversible}
	w.open(t.TempDir())
	var err error
	w.engine, err = policy.New(policy.Rules{Targets: []api.Target{{Name: "local", Mode: api.Guarded}, {Name: "free", Mode: api.Open}, {Name: "look", Mode: api.ReadOnly}}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) open(dir string) {
	w.t.Helper()
	cfg := store.Config{Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{audit.Migration(), Migration()}}
	st, err := store.Create(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = st.Close() })
	ledger, err := audit.Open(w.t.Context(), audit.Config{Store: st, Now: time.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	blobs, err := blob.Create(blob.Config{Dir: filepath.Join(dir, "blobs"), Private: true, Swept: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = blobs.Close() })
	if w.Gateway, err = New(Config{Store: st, Ledger: ledger, Blobs: blobs, Registry: (*operators)(w), InForce: (*rules)(w), Upstream: (*servers)(w), Approvals: nobody{}, Now: time.Now}); err != nil {
		w.t.Fatal(err)
	}
}

// operators is what the operators of a world decided.
type operators world

func (o *operators) Consent(api.Principal) api.Tier {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.consent
}

func (o *operators) StopsFor(api.StopSubject) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.stops)
}

// rules are the policy in force of a world.
type rules world

func (r *rules) Engine(context.Context) (*policy.Engine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine, nil
}

// servers are the upstream servers of a world.
type servers world

func (s *servers) Call(ctx context.Context, c toolcall.Call) (toolcall.Answer, error) {
	s.mu.Lock()
	s.calls = append(s.calls, c)
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(ctx, c)
	}
	return text("ok"), nil
}

func (s *servers) Closed(o toolcall.Owner) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed[o.Server]
}

func (*servers) ClosedSince(toolcall.Revision, api.Name, string) time.Time { return time.Time{} }

func (s *servers) End(id api.DispatchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, id)
}

// nobody approves: no request can be made. A call that needs no approval does not get here.
type nobody struct{}

func (nobody) Ask(context.Context, api.ToolAction, int, string) (api.Approval, error) {
	return api.Approval{}, api.Errorf(api.CodeConflict, "nobody can be asked")
}

func (nobody) Wait(context.Context, api.ApprovalID) (api.Approval, error) {
	return api.Approval{}, errors.New("no request was made")
}

func (nobody) Use(*store.Tx, api.ApprovalID) error { return errors.New("no request was made") }

func text(s string) toolcall.Answer {
	return toolcall.Answer{Result: json.RawMessage(fmt.Sprintf(`{"content":[{"text":%q,"type":"text"}],"structuredContent":{"hits":1}}`, s))}
}

// attempt is a started attempt of a new dispatch, with its entries in the log.
func (w *world) attempt(role, target api.Name, ceiling api.Tier) Attempt {
	w.t.Helper()
	w.mu.Lock()
	w.dispatch++
	m := &record.Manifest{
		ID: api.NewDispatchID(time.Now().Add(time.Duration(w.dispatch) * time.Millisecond)), Attempt: 1, Principal: "local:ann", Subagent: map[api.Name]api.Name{"quality": "checker", "transform": "changer"}[role],
		Role: role, Target: target, Ceiling: ceiling, RevisionDigest: w.rev.Digest(),
	}
	w.mu.Unlock()
	engine, err := policy.New(policy.Rules{Operator: "local:ann"})
	if err != nil {
		w.t.Fatal(err)
	}
	d := engine.Decide(policy.Request{Principal: "local:ann", Action: policy.ActionStatusRead})
	if _, err := w.cfg.Ledger.Commit(w.t.Context(), d, record.Entry{Kind: record.KindDispatchAccepted, Dispatch: m.ID, Attempt: 1, Detail: record.DispatchRequest{}}, nil); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.cfg.Ledger.Record(w.t.Context(), record.Entry{Kind: record.KindDispatchStarted, Dispatch: m.ID, Attempt: 1, Detail: record.DispatchStart{}}, nil); err != nil {
		w.t.Fatal(err)
	}
	return Attempt{Manifest: m, Revision: w.rev, Running: (*running)(w)}
}

// running is the attempts of a world.
type running world

func (r *running) Mark(_ *store.Tx, k Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.markErr != nil {
		return r.markErr
	}
	r.marks = append(r.marks, k)
	return nil
}

func (r *running) Ask(_ context.Context, q api.Question) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q)
	return nil
}

func (r *running) Spent(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent = append(r.spent, why)
}

// view opens the view of a new attempt.
func (w *world) view(role, target api.Name, ceiling api.Tier) *View {
	return w.viewOf(w.attempt(role, target, ceiling))
}

func (w *world) viewOf(a Attempt) *View {
	w.t.Helper()
	v, err := w.Open(w.t.Context(), a)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(v.Close)
	return v
}

// reply is the answer to a message.
type reply struct {
	status int
	Result struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Tools []map[string]json.RawMessage `json:"tools"`
		Meta  struct {
			Error *api.Error `json:"io.bailiwick/error"`
		} `json:"_meta"`
	} `json:"result"`
	Error *struct {
		Code    int        `json:"code"`
		Message string     `json:"message"`
		Data    *api.Error `json:"data"`
	} `json:"error"`
	raw string
}

func (r *reply) text() string {
	if r.Error != nil {
		return r.Error.Message
	}
	if len(r.Result.Content) == 0 {
		return ""
	}
	return r.Result.Content[0].Text
}

func post(t testing.TB, v http.Handler, message string) *reply {
	t.Helper()
	return postIn(t.Context(), t, v, message)
}

func postIn(ctx context.Context, t testing.TB, v http.Handler, message string) *reply {
	t.Helper()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(message))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	rec := httptest.NewRecorder()
	v.ServeHTTP(rec, req)
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	r := &reply{status: rec.Code, raw: string(body)}
	if i := bytes.LastIndex(body, []byte("data: ")); i >= 0 {
		body = body[i+len("data: "):]
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, r); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
	}
	return r
}

func message(id int, method string, params any) string {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func callMessage(tool string, arguments any) string {
	return message(1, "tools/call", map[string]any{"name": tool, "arguments": arguments})
}

func call1(t testing.TB, v http.Handler, tool string) *reply {
	t.Helper()
	return post(t, v, callMessage(tool, map[string]any{}))
}

// entries are the entries about tool calls, in their order.
func (w *world) entries() (list []audit.Committed) {
	w.t.Helper()
	all, err := w.cfg.Ledger.List(context.Background(), audit.Query{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		if strings.HasPrefix(string(c.Entry.Kind), "tool.") {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b audit.Committed) int { return int(a.Seq) - int(b.Seq) })
	return list
}

func (w *world) kinds() (kinds []record.Kind) {
	for _, c := range w.entries() {
		kinds = append(kinds, c.Entry.Kind)
	}
	return kinds
}

func (w *world) checkChains() {
	w.t.Helper()
	if _, err := w.cfg.Ledger.CheckChains(context.Background()); err != nil {
		w.t.Errorf("the log breaks its rules: %v", err)
	}
}
