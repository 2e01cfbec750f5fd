package e2e

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// counter is a tool server that counts what it is told to do, by dispatch and call: an
// MCP server over HTTP, and a port for a declared command.
type counter struct {
	mu   sync.Mutex
	seen map[string]map[string]int // calls by dispatch; guarded by mu
	url  string
	port string // IP:PORT
}

func (c *counter) add(dispatch, call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[dispatch] == nil {
		c.seen[dispatch] = map[string]int{}
	}
	c.seen[dispatch][call]++
}

// of returns how often each call of a dispatch arrived.
func (c *counter) of(dispatch string) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []int{}
	for _, n := range c.seen[dispatch] {
		list = append(list, n)
	}
	return list
}

// total returns how many calls of a tool arrived.
func (c *counter) total(tool string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, calls := range c.seen {
		for call, times := range calls {
			if strings.HasPrefix(call, tool) {
				n += times
			}
		}
	}
	return n
}

func newCounter(t testing.TB) *counter {
	t.Helper()
	c := &counter{seen: map[string]map[string]int{}}
	type input struct {
		Dispatch string `json:"dispatch"`
		Call     string `json:"call"`
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	for _, name := range []string{"add", "sign"} {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "Counts."}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			c.add(in.Dispatch, name+in.Call)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "counted"}}}, nil, nil
		})
	}
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(srv.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				line, _ := bufio.NewReader(conn).ReadString('\n')
				if dispatch, call, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
					c.add(dispatch, "tell"+call)
				}
			}()
		}
	}()
	c.url, c.port = srv.URL, l.Addr().String()
	return c
}

// tools is the lines of a manifest with the tools of the counter.
func (c *counter) tools() string {
	return fmt.Sprintf(`tools:
  - server: counter
    http: {url: %q}
    trust: trusted
    allow:
      - {tool: add, roles: [transform], tier: reversible}
      - {tool: sign, roles: [transform], tier: reversible, approval: {wait: 1s}}
  - command: tell
    description: Counts.
    run: [bash, -c, 'read -r a; d=${a##*dispatch\":\"}; c=${a##*call\":\"}; exec 3<>/dev/tcp/127.0.0.1/7000; echo "${d%%%%\"*} ${c%%%%\"*}" >&3; echo told']
    connect: {7000: %q}
    input: {type: object, properties: {dispatch: {type: string}, call: {type: string}}}
    roles: [transform]
    tier: reversible
    trust: trusted
`, c.url, c.port)
}

// toolScript is how agents of a trial call tools. A call that gets no answer is not made
// again.
const toolScript = `
call() {
	arguments=$(printf '{"dispatch":"%s","call":"%d"}' "$BAILIWICK_DISPATCH" "$2")
	[ "$1" != report ] || arguments='{"text":"at work"}'
	printf '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s}}' "$2" "$1" "$arguments" |
		curl -sS -m 30 -o /dev/null -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2025-11-25' --data-binary @- http://127.0.0.1:19514/mcp 2>/dev/null || true
}
`

// toolNeeds names the kind of dispatch that passes a failpoint of a call.
func toolNeeds(name failpoint.Name) string {
	if name == failpoint.ToolAsk || name == failpoint.ToolAsked {
		return "requests"
	}
	return "tools"
}

// wrongCalls checks the tool calls of a dispatch: numbers without gaps, for each allowed
// call one end before that of its attempt, and a server that saw none twice, and none
// that the log does not have.
func (s *story) wrongCalls(say func(string, ...any)) {
	type call struct {
		attempt int
		number  int64
	}
	last, out, ended := map[int]int64{}, map[call]bool{}, map[int]bool{}
	called := 0
	for _, e := range s.entries {
		c := call{e.Attempt, e.Detail.Number}
		switch e.Kind {
		case "tool.called", "tool.denied":
			if last[c.attempt]++; c.number != last[c.attempt] || ended[c.attempt] {
				say("UNTRUE: call %d of attempt %d is the %dth, or after its end", c.number, c.attempt, last[c.attempt])
			}
			if e.Kind == "tool.called" {
				out[c] = true
				called++
			}
		case "tool.returned", "tool.unknown":
			if !out[c] {
				say("DOUBLED: %s of call %d of attempt %d, which is not out", e.Kind, c.number, c.attempt)
			}
			delete(out, c)
		default:
			if _, end := endEvent(e.Kind); end {
				ended[c.attempt] = true
				if len(out) > 0 {
					say("LOST: attempt %d ended, and %d calls have no end", c.attempt, len(out))
				}
			}
		}
	}
	seen := 0
	for _, n := range s.arrived {
		if seen += n; n > 1 {
			say("DOUBLED: a call arrived %d times", n)
		}
	}
	if seen > called {
		say("UNTRUE: %d calls arrived, the log has %d", seen, called)
	}
	if s.record.Calls != nil && s.record.Calls.Record == nil && s.record.State.Ended() {
		say("LOST: no record of its calls")
	}
}

// The positive control of the check of tool calls: it reports each planted fault.
//
// proves R-G4
func TestKillChecksDetectFaultsOfToolCalls(t *testing.T) {
	t.Parallel()
	at := func(kind string, number int64) entry {
		e := entry{Kind: kind, Attempt: 1}
		e.Detail.Number = number
		return e
	}
	good := []entry{at("tool.called", 1), at("tool.returned", 1), at("tool.denied", 2), at("tool.called", 3), at("tool.unknown", 3), at("dispatch.finished", 0)}
	check := func(entries []entry, arrived ...int) (bad []string) {
		s := &story{entries: entries, arrived: arrived}
		s.record = &api.Dispatch{}
		s.wrongCalls(func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) })
		return bad
	}
	if bad := check(good, 1, 1); len(bad) > 0 {
		t.Errorf("a good story: %q", bad)
	}
	without := func(i int) []entry { return slices.Delete(slices.Clone(good), i, i+1) }
	for name, c := range map[string]struct {
		entries []entry
		arrived []int
		want    string
	}{
		"no call":             {without(0), nil, "DOUBLED"},
		"no return":           {without(1), nil, "LOST"},
		"no denial":           {without(2), nil, "UNTRUE"},
		"no unknown":          {without(4), nil, "LOST"},
		"two returns":         {append(slices.Clone(good[:2]), good[1:]...), nil, "DOUBLED"},
		"after the end":       {append(slices.Clone(good), at("tool.called", 4)), nil, "UNTRUE"},
		"it arrived twice":    {good, []int{2}, "DOUBLED"},
		"it arrived unlogged": {good, []int{1, 1, 1}, "UNTRUE"},
	} {
		if bad := strings.Join(check(c.entries, c.arrived...), "\n"); !strings.Contains(bad, c.want) {
			t.Errorf("%s: the check says %q, want %s", name, bad, c.want)
		}
	}
}

// toolPoints are the failpoints of a call.
func toolPoints() []failpoint.Name {
	return slices.DeleteFunc(failpoint.Names(), func(n failpoint.Name) bool {
		return !strings.HasPrefix(string(n), "tool.") && n != failpoint.CollectCalls
	})
}

// A kill of the service, of a worker or of both at every failpoint of a tool call leaves
// one truthful history: each call is logged at most once, with one return, or as unknown;
// its server saw it at most once, and none that is not logged; nothing is left behind.
//
// proves R-G4, R-O6
func TestKillsNeverChangeAToolCall(t *testing.T) {
	t.Parallel()
	k := newTrial(t, 0, *seedFlag)
	k.up(func() {})
	sum := &tally{kills: map[string]int{}, outcomes: map[string]int{}, reached: map[failpoint.Name]bool{}}
	points, n := toolPoints(), 0
	round := func(name failpoint.Name, who string) {
		k.round(n, k.planAt(name, who), sum)
		n++
	}
	for _, name := range points {
		for _, who := range []string{"service", "both"} {
			round(name, who)
		}
	}
	for sum.count() < *killsFlag/4 {
		round(points[k.rng.IntN(len(points))], []string{"service", "service", "both"}[k.rng.IntN(3)])
	}
	for _, b := range k.logFaults(sum.seen) {
		t.Error(b)
	}
	for _, e := range sum.seen {
		if e.Kind == "evidence.refused" {
			t.Errorf("the evidence of what was killed does not verify: %s", e.leaf)
		}
	}
	if k.counter.total("add") == 0 || k.counter.total("tell") == 0 || k.counter.total("sign") != 0 {
		t.Errorf("%d calls of the server arrived, %d of the command, %d that no human approved", k.counter.total("add"), k.counter.total("tell"), k.counter.total("sign"))
	}
	t.Logf("seed %d: %s; tool calls: %s", *seedFlag, sum, callTally(sum.seen))
	fmt.Printf("kills of tool calls, seed %d: %s; tool calls: %s\n", *seedFlag, sum, callTally(sum.seen))
	for _, name := range points {
		if !sum.reached[name] {
			t.Errorf("no process was killed at %s", name)
		}
	}
}

// callTally counts the entries about tools.
func callTally(log []entry) string {
	count := map[string]int{}
	for _, e := range log {
		if strings.HasPrefix(e.Kind, "tool.") || strings.HasPrefix(e.Kind, "approval.") {
			count[e.Kind]++
		}
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, count[kind]))
	}
	return strings.Join(parts, ", ")
}
