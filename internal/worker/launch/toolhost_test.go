package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

// warehouse is a server of tools over HTTP that wants a key.
type warehouse struct {
	calls, refused atomic.Int32
}

func (h *warehouse) tools() []api.ToolDefinition {
	return []api.ToolDefinition{{Name: "change", Description: "change", InputSchema: json.RawMessage(`{"type":"object"}`)}}
}

const toolSecret = "hunter2hunter2"

// newToolWorld is a world in mode system with a warehouse, in the catalog, and its secret.
func newToolWorld(t *testing.T) (*world, *people, *warehouse, map[api.Name][]byte) {
	t.Helper()
	w, p := newSystemWorld(t)
	h := &warehouse{}
	s := mcp.NewServer(&mcp.Implementation{Name: "warehouse", Version: "1"}, nil)
	for _, d := range h.tools() {
		s.AddTool(&mcp.Tool{Name: d.Name, Description: d.Description, InputSchema: d.InputSchema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h.calls.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
	}
	mcpHandler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != toolSecret {
			h.refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mcpHandler.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	w.define = func(context.Context, api.ToolServer, []deploy.ToolFile) (deploy.Offer, error) {
		return deploy.Offer{Tools: h.tools()}, nil
	}
	pin, err := catalog.PinOf(h.tools())
	must(t, err)
	w.apply(testManifest + fmt.Sprintf("  - {principal: \"human:bob\", approve: [transform]}\ntools:\n  - {server: warehouse, pin: %q, http: {url: %q}, credential: {header: X-Key, secret: key}, allow: [{tool: change, roles: [transform], tier: observe, approval: true}]}\n  - {command: same, description: Says it again., run: [cat], input: {type: object}, roles: [transform], tier: observe}\n", pin, front.URL+"/mcp"))
	w.cfg.ToolHost = filepath.Join(t.TempDir(), "bailiwick-toolhost")
	must(t, prebuilt.Program(w.cfg.ToolHost, "../../../cmd/bailiwick-toolhost"))
	content := p.encrypt(toolSecret)
	p.decide(p.ann, api.OperatorRecord{Verb: api.VerbSecretSet, Secret: "key", Content: api.DigestOf(content)})
	return w, p, h, map[api.Name][]byte{"key": content}
}

func (w *world) head() *catalog.Revision {
	w.t.Helper()
	cat, err := catalog.Open(openStore(w.t, w.dirs.Catalog()), w.root)
	must(w.t, err)
	rev, err := cat.Current(context.Background())
	must(w.t, err)
	return rev
}

// pipes returns standard streams for a tool host, and their other ends.
func pipes(t *testing.T) (theirs []*os.File, in *os.File, out *bufio.Reader, errs *os.File) {
	t.Helper()
	var all [6]*os.File
	for i := 0; i < 6; i += 2 {
		var err error
		all[i], all[i+1], err = os.Pipe()
		must(t, err)
	}
	t.Cleanup(func() { unixframe.CloseAll(all[:]) })
	for _, f := range []*os.File{all[0], all[3], all[5]} {
		must(t, f.Chown(serviceUID, serviceUID))
	}
	return []*os.File{all[0], all[3], all[5]}, all[1], bufio.NewReader(all[2]), all[4]
}

// exchange sends a request to a tool host and returns its reply.
func exchange(t *testing.T, q record.ToolRequest, in *os.File, out *bufio.Reader, errs *os.File) (r record.ToolReply) {
	t.Helper()
	line, err := canon.Marshal(q)
	must(t, err)
	_, err = in.Write(append(line, '\n'))
	must(t, err)
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			said := make([]byte, 4096)
			n, _ := errs.Read(said)
			t.Fatalf("%v: %s", err, said[:n])
		}
		r = record.ToolReply{}
		must(t, canon.DecodeExact(line[:len(line)-1], &r))
		if r.ID == q.ID {
			return r
		}
	}
}

// A declared command runs in a jail of its own also below a uid block.
//
// proves R-S2, R-G5
func TestADeclaredCommandRunsInAJailUnderAUidBlock(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p, _, _ := newToolWorld(t)
	l := p.given(w.launcher())
	theirs, in, out, errs := pipes(t)
	proc, who, err := l.ToolHost(t.Context(), Order{Revision: w.head().Digest(), Source: "same"}, nil, theirs)
	must(t, err)
	unixframe.CloseAll(theirs)
	r := exchange(t, record.ToolRequest{ID: 1, Verb: record.ToolVerbCall, Call: &record.ToolUse{Arguments: json.RawMessage(`{"v":"x"}`), Dispatch: "disp-1"}}, in, out, errs)
	if r.Fault != nil || string(r.Answer) != `{"content":[{"text":"{\"v\":\"x\"}","type":"text"}]}` {
		t.Errorf("%s %+v", r.Answer, r.Fault)
	}
	must(t, in.Close())
	must(t, proc.Wait())
	must(t, l.sys.blocks.end(who))
}

// A tool host of mode system runs under a uid of its own, with the value that the launcher
// decrypted, and makes a call that people approve only with their votes. The test speaks to
// it in the place of the service.
//
// proves R-S2, R-D8, R-B9, R-P3, R-P6
func TestAToolHostRunsUnderItsOwnUidAndVerifiesApprovals(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p, h, sealed := newToolWorld(t)
	l := p.given(w.launcher())
	theirs, in, out, errs := pipes(t)
	order := Order{Revision: w.head().Digest(), Source: "warehouse"}
	proc, who, err := l.ToolHost(t.Context(), order, sealed, theirs)
	must(t, err)
	unixframe.CloseAll(theirs)
	ask := func(q record.ToolRequest) record.ToolReply { return exchange(t, q, in, out, errs) }
	if r := ask(record.ToolRequest{ID: 1, Verb: record.ToolVerbOpen, Session: 1}); r.Fault != nil || h.refused.Load() != 0 {
		t.Fatalf("%+v; %d requests without the key", r.Fault, h.refused.Load())
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", proc.PID))
	must(t, err)
	if first := fmt.Sprint(w.cfg.System.Settings.First); !strings.Contains(string(status), "Uid:\t"+first+"\t"+first) {
		t.Errorf("the tool host runs as another account than %s:\n%s", first, status)
	}
	definition, err := catalog.DefinitionDigest(h.tools()[0])
	must(t, err)
	a := api.ToolAction{
		V: api.ToolActionVersion, ID: "a-aaaaaaaaaaaa", Tool: "warehouse/change", Arguments: json.RawMessage(`{}`), Definition: definition, Dispatch: "disp-1", Subagent: "edit", Role: "transform",
		Target: "local", Principal: "local:ann", Revision: order.Revision, Policies: []string{"approval"}, Needs: 1, Expires: time.Now().UTC().Add(time.Hour).Truncate(time.Second),
	}
	call := func(id int64) record.ToolReply {
		return ask(record.ToolRequest{ID: id, Verb: record.ToolVerbCall, Session: 1, Call: &record.ToolUse{Tool: "change", Arguments: a.Arguments, Dispatch: a.Dispatch, Approved: &a}})
	}
	if r := call(2); r.Fault == nil || r.Fault.Kind != record.ToolFaultBehind {
		t.Errorf("without the decisions that the launcher has: %+v", r)
	}
	ask(record.ToolRequest{ID: 3, Verb: record.ToolVerbRecords, Records: p.records})
	if r := call(4); r.Fault == nil || !strings.Contains(r.Fault.Reason, "is not signed by 1 people") || h.calls.Load() != 0 {
		t.Errorf("without a vote: %+v", r.Fault)
	}
	doc, err := canon.Marshal(a)
	must(t, err)
	n := len(p.records)
	p.vote(p.bob, "human:bob", doc, api.VerbApprove)
	ask(record.ToolRequest{ID: 5, Verb: record.ToolVerbRecords, Records: p.records[n:]})
	if r := call(6); r.Fault != nil || h.calls.Load() != 1 {
		t.Errorf("control: with the vote: %+v, %d calls", r.Fault, h.calls.Load())
	}
	if r := call(7); r.Fault == nil || !strings.Contains(r.Fault.Reason, "was used before") {
		t.Errorf("again: %+v", r.Fault)
	}
	used, err := filepath.Glob(filepath.Join(w.dirs.LauncherState(), "toolservers", "warehouse", "used-*"))
	must(t, err)
	if len(used) != 1 {
		t.Fatalf("used: %q", used)
	}
	if st, err := os.Stat(w.dirs.LauncherState()); err != nil || ownerOf(st) != 0 || st.Mode().Perm() != 0o700 {
		t.Errorf("the service reaches what was used: %v, %v", st, err)
	}
	must(t, in.Close())
	must(t, proc.Wait())
	must(t, l.sys.blocks.end(who))
	if list, err := l.sys.blocks.running(); err != nil || len(list) > 0 {
		t.Errorf("running after its end: %v, %v", list, err)
	}
}

// A service starts no tool host of a server that is not signed, with another value, or of a
// revision that humans replaced. The control is the one before.
//
// proves R-B5, R-D8
func TestOnlyTheToolHostOfASignedServerStarts(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p, _, sealed := newToolWorld(t)
	head := w.head().Digest()
	theirs, _, _, _ := pipes(t)
	if _, _, err := w.launcher().ToolHost(t.Context(), Order{Revision: head, Source: "warehouse"}, sealed, theirs); err == nil || !strings.Contains(err.Error(), "knows no service yet") {
		t.Errorf("before the launcher knows its service: %v", err)
	}
	for name, c := range map[string]struct {
		want   string
		order  Order
		sealed map[api.Name][]byte
	}{
		"an unsigned revision": {"not", Order{Revision: api.DigestOf([]byte("x")), Source: "warehouse"}, sealed},
		"an unknown server":    {"not in revision", Order{Revision: head, Source: "other"}, sealed},
		"no value":             {"gave no encrypted value", Order{Revision: head, Source: "warehouse"}, nil},
		"another value":        {"operators set", Order{Revision: head, Source: "warehouse"}, map[api.Name][]byte{"key": p.encrypt("another one")}},
	} {
		theirs, _, _, _ := pipes(t)
		if _, _, err := p.given(w.launcher()).ToolHost(t.Context(), c.order, c.sealed, theirs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer file.Close()
	must(t, file.Chown(serviceUID, serviceUID))
	if _, _, err := p.given(w.launcher()).ToolHost(t.Context(), Order{Revision: head, Source: "warehouse"}, sealed, []*os.File{theirs[0], file, theirs[2]}); err == nil || !strings.Contains(err.Error(), "is no pipe") {
		t.Errorf("a file: %v", err)
	}
	l := p.given(w.launcher())
	proc, who, err := l.ToolHost(t.Context(), Order{Revision: head, Source: "warehouse"}, sealed, theirs)
	must(t, err)
	must(t, errors.Join(l.sys.blocks.end(who), proc.Wait()))

	first := t.TempDir()
	must(t, os.CopyFS(filepath.Join(first, "catalog"), os.DirFS(w.dirs.Catalog())))
	start := func(revision api.Digest) error {
		theirs, _, _, _ := pipes(t)
		proc, who, err := l.ToolHost(t.Context(), Order{Revision: revision, Source: "warehouse"}, sealed, theirs)
		if err == nil {
			must(t, errors.Join(l.sys.blocks.end(who), proc.Wait()))
		}
		return err
	}
	w.apply(strings.Replace(w.applied, "limits: {timeout: 1m}", "limits: {timeout: 2m}", 1))
	if err := start(head); err != nil { // within the grace
		t.Errorf("control: of an older revision, unchanged since: %v", err)
	}
	w.apply(strings.Replace(w.applied, "tier: observe, approval: true}", "tier: observe}", 1))
	refused(t, start(head), api.CodeIntegrity, `tool server "warehouse" of revision 2 is not in revision 4 any more`)
	must(t, start(w.head().Digest()))

	must(t, os.RemoveAll(w.dirs.Catalog())) // an older catalog, as it was signed
	must(t, os.CopyFS(w.dirs.Catalog(), os.DirFS(filepath.Join(first, "catalog"))))
	refused(t, start(head), api.CodeIntegrity, "revision 4")
	_, err = l.fetch(t.Context(), Order{Source: "code"}, "", nil)
	refused(t, err, api.CodeIntegrity, "revision 4")
}

// A launcher that ended when idle starts no tool host that accepts fewer decisions of the
// operators than it was given before.
//
// proves R-D8
func TestAToolHostOfARestartedLauncherKnowsTheDecisions(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p, h, sealed := newToolWorld(t)
	p.given(w.launcher())
	theirs, in, out, errs := pipes(t)
	l := w.launcher()
	proc, who, err := l.ToolHost(t.Context(), Order{Revision: w.head().Digest(), Source: "warehouse"}, sealed, theirs)
	must(t, err)
	unixframe.CloseAll(theirs)
	definition, err := catalog.DefinitionDigest(h.tools()[0])
	must(t, err)
	a := api.ToolAction{
		V: api.ToolActionVersion, ID: "a-aaaaaaaaaaaa", Tool: "warehouse/change", Arguments: json.RawMessage(`{}`), Definition: definition, Dispatch: "disp-1", Subagent: "edit", Role: "transform",
		Target: "local", Principal: "local:ann", Revision: w.head().Digest(), Policies: []string{"approval"}, Needs: 1, Expires: time.Now().UTC().Add(time.Hour).Truncate(time.Second),
	}
	use := func() *record.ToolFault {
		return exchange(t, record.ToolRequest{ID: 1, Verb: record.ToolVerbCall, Session: 1, Call: &record.ToolUse{Tool: "change", Arguments: json.RawMessage(`{}`), Dispatch: "disp-1", Approved: &a}}, in, out, errs).Fault
	}
	if r := exchange(t, record.ToolRequest{ID: 3, Verb: record.ToolVerbOpen, Session: 1}, in, out, errs); r.Fault != nil {
		t.Fatal(r.Fault)
	}
	if f := use(); f == nil || f.Kind != record.ToolFaultBehind {
		t.Errorf("without the decisions that the launcher was given: %+v", f)
	}
	exchange(t, record.ToolRequest{ID: 2, Verb: record.ToolVerbRecords, Records: p.records}, in, out, errs)
	if f := use(); f == nil || f.Kind == record.ToolFaultBehind {
		t.Errorf("control: with them: %+v", f)
	}
	must(t, errors.Join(in.Close(), proc.Wait(), l.sys.blocks.end(who)))
}
