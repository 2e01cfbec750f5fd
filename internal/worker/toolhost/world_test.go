package toolhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bailiwick-toolhost-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bailiwick-toolhost")
	return path, prebuilt.Program(path, "../../../cmd/bailiwick-toolhost")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, _ := program(); path != "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

const manifest = `version: 1
project: test
tools:
  - server: warehouse
    http: {url: "URL"}
    allow:
      - {tool: change, roles: [transform], tier: stateful, approval: true}
      - {tool: drop, roles: [transform], tier: irreversible, approval: true}
      - {tool: query, roles: [transform], tier: observe}
roles: [transform, other]
subagents:
  - {name: changer, agent: command, command: ["true"], role: transform, tier: irreversible}
targets:
  - {name: local, executor: jail, level: full, mode: open}
grants:
  - {principal: "human:ann", subagents: [changer], targets: [local], ceiling: irreversible}
  - {principal: "human:bob", approve: [transform]}
  - {principal: "local:bob", approve: [transform]}
  - {principal: "human:carol", approve: [transform]}
`

// world is an installation: a signed catalog with a server over HTTP, the keys of its
// people, and their decisions. The service is the test, which is the attacker.
type world struct {
	t       *testing.T
	gate    record.ToolGate
	server  api.ToolServer
	deploy  seal.Signer
	people  map[api.Principal]seal.Signer
	service seal.Signer

	records  [][]byte
	previous api.Digest
	keys     seal.TrustRoot // in force
	sets     uint64

	mu    sync.Mutex
	calls []string // that reached the server; guarded by mu
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, deploy: newKey(t), service: newKey(t), people: map[api.Principal]seal.Signer{}}
	s := mcp.NewServer(&mcp.Implementation{Name: "warehouse", Version: "1"}, nil)
	for _, name := range []string{"change", "drop", "query"} {
		s.AddTool(&mcp.Tool{Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			w.mu.Lock()
			w.calls = append(w.calls, name+" "+string(r.Params.Arguments))
			w.mu.Unlock()
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
	}
	front := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	w.keys = seal.TrustRoot{V: 1, Threshold: 1}
	for _, p := range []api.Principal{"local:root", "human:bob", "human:carol", "human:eve", "human:ann"} {
		w.people[p] = newKey(t)
		of := seal.KeyOf(w.people[p], "key")
		of.Principal = p
		w.keys.Keys = append(w.keys.Keys, of)
	}
	w.people["local:bob"] = w.people["human:bob"]
	dir := t.TempDir()
	w.gate = record.ToolGate{Catalog: filepath.Join(dir, "catalog"), Service: string(w.service.KeyID()), Kept: filepath.Join(dir, "kept"), Trust: encode(t, seal.RootOf(seal.KeyOf(w.deploy, "ann"))), Operators: encode(t, w.keys)}
	w.sets = 1
	w.must(os.Mkdir(w.gate.Kept, 0o700))
	w.publish(strings.Replace(manifest, "URL", front.URL+"/mcp", 1))
	for _, p := range []api.Principal{"human:bob", "human:carol", "human:eve", "human:ann"} {
		w.decide("local:root", api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: p})
	}
	return w
}

func newKey(t *testing.T) seal.Signer {
	t.Helper()
	k, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := canon.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// publish signs a revision of the catalog.
func (w *world) publish(manifest string) {
	w.t.Helper()
	root := seal.RootOf(seal.KeyOf(w.deploy, "ann"))
	cfg := deploy.Config{Dir: w.gate.Catalog, TrustRoot: root, Now: time.Now, Define: func(context.Context, api.ToolServer, []deploy.ToolFile) (deploy.Offer, error) {
		var o deploy.Offer
		for _, name := range []string{"change", "drop", "query"} {
			o.Tools = append(o.Tools, api.ToolDefinition{Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
		return o, nil
	}}
	cat, err := deploy.Open(cfg)
	if err != nil {
		cat, err = deploy.Create(cfg)
	}
	w.must(err)
	file := filepath.Join(w.t.TempDir(), "bailiwick.yaml")
	load := func() *deploy.Manifest {
		w.must(os.WriteFile(file, []byte(manifest), 0o600))
		m, err := deploy.Load(w.t.Context(), file)
		w.must(err)
		return m
	}
	plan, err := cat.Plan(w.t.Context(), load(), deploy.Options{SourcesElsewhere: true})
	if unpinned, ok := errors.AsType[*deploy.UnpinnedError](err); ok {
		manifest = strings.Replace(manifest, "  - server: warehouse", "  - server: warehouse\n    pin: "+string(unpinned.Servers[0].Pin), 1)
		plan, err = cat.Plan(w.t.Context(), load(), deploy.Options{SourcesElsewhere: true})
	}
	w.must(err)
	_, err = cat.Apply(w.t.Context(), plan, deploy.Approval{Author: "ann", Signers: []deploy.Signer{w.deploy}})
	w.must(err)
	w.must(cat.Close())
	blobs, err := blob.Open(blob.Config{Dir: cfg.Dir})
	w.must(err)
	defer blobs.Close()
	opened, err := catalog.Open(blobs, root)
	w.must(err)
	rev, err := opened.Current(w.t.Context())
	w.must(err)
	w.gate.Revision = rev.Digest()
	w.server, _, err = rev.ToolServer("warehouse")
	w.must(err)
}

// sign signs a decision as the next one.
func (w *world) sign(by seal.Signer, r api.OperatorRecord) (envelope []byte, digest api.Digest) {
	w.t.Helper()
	r.V, r.At, r.Service, r.Number, r.Previous = 1, time.Now().UTC().Truncate(time.Second), string(w.service.KeyID()), uint64(len(w.records))+1, w.previous
	payload := encode(w.t, r)
	envelope, err := seal.Sign(w.t.Context(), seal.Operator, payload, by)
	w.must(err)
	return envelope, api.DigestOf(payload)
}

// decide adds a decision of a person.
func (w *world) decide(by api.Principal, r api.OperatorRecord) {
	w.t.Helper()
	envelope, digest := w.sign(w.people[by], r)
	w.records, w.previous = append(w.records, envelope), digest
}

// retire puts a set of operator keys without those of p in force.
func (w *world) retire(p api.Principal) {
	w.t.Helper()
	digest, err := w.keys.Digest()
	w.must(err)
	next := seal.TrustRoot{V: 1, Threshold: 1}
	for _, k := range w.keys.Keys {
		if k.Principal != p {
			next.Keys = append(next.Keys, k)
		}
	}
	w.sets++
	w.decide("local:root", api.OperatorRecord{Verb: api.VerbOperatorSet, Set: &api.OperatorSet{Number: w.sets, Previous: digest, Root: encode(w.t, next)}})
	w.keys = next
}

// action is what people approve: a call of a tool in dispatch d-01.
func (w *world) action(tool string) api.ToolAction {
	w.t.Helper()
	a := api.ToolAction{
		V: api.ToolActionVersion, ID: newID(), Tool: "warehouse/" + tool, Arguments: json.RawMessage(`{"sql":"x"}`), Tier: api.Stateful, Dispatch: "d-01", Subagent: "changer", Role: "transform", Target: "local",
		Principal: "human:ann", Revision: w.gate.Revision, Policies: []string{"approval"}, Expires: time.Now().UTC().Add(time.Hour).Truncate(time.Second),
	}
	for _, allow := range w.server.Allow {
		if allow.Tool == tool {
			a.Tier = allow.Tier
		}
	}
	a.Needs = policy.ToolApprovers(a.Tier)
	for _, d := range w.server.Definitions {
		if d.Name == tool {
			var err error
			a.Definition, err = catalog.DefinitionDigest(d)
			w.must(err)
		}
	}
	return a
}

var ids = struct {
	sync.Mutex
	n int
}{}

func newID() api.ApprovalID {
	ids.Lock()
	defer ids.Unlock()
	ids.n++
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	return api.ApprovalID("a-aaaaaaaaaa" + string(letters[ids.n/32%32]) + string(letters[ids.n%32]))
}

// vote adds the votes of people for an action.
func (w *world) vote(a api.ToolAction, voters ...api.Principal) {
	w.t.Helper()
	for _, p := range voters {
		w.decide(p, w.ballot(a, p))
	}
}

func (w *world) ballot(a api.ToolAction, p api.Principal) api.OperatorRecord {
	return api.OperatorRecord{Verb: api.VerbApprove, Principal: p, Approval: a.ID, Content: api.DigestOf(encode(w.t, a))}
}

func (w *world) reached() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

// toolhost is a bailiwick-toolhost that a lying service speaks to.
type toolhost struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *os.File
	out  *bufio.Reader
	errs *strings.Builder
	last int64
	told int
}

// start starts a tool host with a start that change may change.
func (w *world) start(change func(*record.ToolStart)) *toolhost {
	w.t.Helper()
	path, err := program()
	w.must(err)
	start := record.ToolStart{Server: w.server, Gate: &w.gate}
	if change != nil {
		gate := w.gate
		start.Gate = &gate
		change(&start)
	}
	theirIn, in, err := os.Pipe()
	w.must(err)
	out, theirOut, err := os.Pipe()
	w.must(err)
	fd3, doc, err := os.Pipe()
	w.must(err)
	h := &toolhost{t: w.t, cmd: exec.Command(path), in: in, out: bufio.NewReader(out), errs: &strings.Builder{}}
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr, h.cmd.ExtraFiles = theirIn, theirOut, h.errs, []*os.File{fd3}
	w.must(h.cmd.Start())
	for _, f := range []*os.File{theirIn, theirOut, fd3} {
		_ = f.Close()
	}
	_, err = doc.Write(append(encode(w.t, start), '\n'))
	w.must(errors.Join(err, doc.Close()))
	w.t.Cleanup(func() { h.end(); _ = out.Close() })
	return h
}

func (h *toolhost) end() {
	_ = h.in.Close()
	_ = h.cmd.Wait()
}

// ask sends a request and returns its reply; without one, the fault has what the tool host
// said at its end.
func (h *toolhost) ask(q record.ToolRequest) record.ToolReply {
	h.t.Helper()
	h.last++
	q.ID = h.last
	_, _ = h.in.Write(append(encode(h.t, q), '\n'))
	for {
		line, err := h.out.ReadBytes('\n')
		if err != nil {
			h.end()
			return record.ToolReply{Fault: &record.ToolFault{Kind: "gone", Reason: h.errs.String()}}
		}
		var r record.ToolReply
		if err := canon.DecodeExact(line[:len(line)-1], &r); err != nil {
			h.t.Fatal(err)
		}
		if r.ID == q.ID {
			return r
		}
	}
}

// give gives the tool host the decisions that it was not given.
func (h *toolhost) give(records [][]byte) record.ToolReply {
	h.t.Helper()
	r := h.ask(record.ToolRequest{Verb: record.ToolVerbRecords, Records: records[h.told:]})
	if r.Fault == nil {
		h.told = len(records)
	}
	return r
}

// use is a call with an approval.
func use(a *api.ToolAction) *record.ToolUse {
	return &record.ToolUse{Tool: strings.TrimPrefix(a.Tool, "warehouse/"), Arguments: a.Arguments, Dispatch: a.Dispatch, Approved: a}
}

// call opens a session and makes a call.
func (h *toolhost) call(u *record.ToolUse) record.ToolReply {
	h.t.Helper()
	if r := h.ask(record.ToolRequest{Verb: record.ToolVerbOpen, Session: h.last + 1}); r.Fault != nil {
		return r
	}
	return h.ask(record.ToolRequest{Verb: record.ToolVerbCall, Session: h.last, Call: u})
}
