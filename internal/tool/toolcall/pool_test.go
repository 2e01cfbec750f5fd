package toolcall

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// proves R-G5: the honest server is the control of the tests below
func TestAnHonestServerIsCalled(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			w := newWorld(t, nil)
			w.hostile("honest", revision)
			if got := w.text("hello \u00e9"); got != "hello \u00e9" {
				t.Errorf("got %q", got)
			}
			a, err := w.callAs("d-01", "second", "n")
			if err != nil || string(a.Result) != `{"content":[{"text":"n","type":"text"}],"structuredContent":{"n":7}}` {
				t.Errorf("got %s, %v", a.Result, err)
			}
			var progress []string
			a, err = w.pool.Call(t.Context(), Call{Owner: w.owner("d-01"), Tool: "do", Arguments: []byte(`{"v":"progress"}`), Progress: func(s string) { progress = append(progress, s) }})
			if err != nil || len(progress) != 1 || progress[0] != "half [redacted]" {
				t.Errorf("got %s, %v, progress %q", a.Result, err, progress)
			}
		})
	}
}

// proves R-G5: an unknown revision of the protocol, and one that a server made up
func TestAServerOfAnotherRevisionIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("honest", "2024-11-05")
	_, err := w.call("x")
	fault(t, err, "could not be started", true)
	if !strings.Contains(w.log.String(), "2024-11-05") {
		t.Error(w.log)
	}
}

// takeover both modes, tool server: no define, widen, replay, start, approve, read work, rewrite the log, forge evidence
//
// proves R-G5
func TestAServerIsAloneWithWhatItIsGiven(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("honest").Limits.Processes = 64
	env := w.text("env")
	for _, bad := range []string{"SERVICE_SECRET", password} {
		if strings.Contains(env, bad) {
			t.Errorf("the environment has %q:\n%s", bad, env)
		}
	}
	if !strings.Contains(env, "PLAIN=yes") || !strings.Contains(env, "PASSWORD=[redacted]") {
		t.Errorf("control: the environment lacks what it was given:\n%s", env)
	}
	if got := w.text("read /etc/hostname"); strings.Contains(got, "bailiwick-host") {
		t.Error(got)
	}
	for path, denied := range map[string]bool{"note": false, "/tmp/note": false, "/usr/note": true, "/etc/note": true} {
		if got := w.text("write " + path); (got != "<nil>") != denied {
			t.Errorf("write %s: %s, denied should be %v", path, got, denied)
		}
	}
	if got := w.text("dial 127.0.0.1:5432"); !strings.Contains(got, "refused") {
		t.Errorf("dial without connect: %s", got)
	}
}

// proves R-G5: sessions belong to one dispatch unless the server is shared
func TestADispatchHasASessionOfItsOwn(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("honest")
	pid := func(d api.DispatchID) string {
		a, err := w.callAs(d, "do", "pid")
		if err != nil {
			t.Fatal(err)
		}
		return textOf(t, a)
	}
	one, two := pid("d-01"), pid("d-02")
	if one == two || one != pid("d-01") {
		t.Errorf("one %s, two %s, one again %s", one, two, pid("d-01"))
	}
	w.pool.End("d-01")
	eventually(t, "one session is left", func() bool { return w.pool.Sessions() == 1 })
	if again := pid("d-01"); again == one || two != pid("d-02") {
		t.Error("the session was not ended, or another was")
	}
	w.server.Session = api.SessionShared
	if pid("d-01") != pid("d-02") {
		t.Error("a shared server has two sessions")
	}
}

func TestAnIdleSharedSessionIsEnded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Idle = 50 * time.Millisecond })
	w.hostile("honest")
	w.server.Session = api.SessionShared
	w.text("x")
	eventually(t, "the session has ended", func() bool { return w.pool.Sessions() == 0 })
	if got := w.text("again"); got != "again" {
		t.Error(got)
	}
}

// proves R-G5: a dead, slow, flooding or lying server is a clear fault, and nothing hangs
func TestAHostileServerIsAFault(t *testing.T) {
	for mode, c := range map[string]struct {
		part, log string
		unsent    bool
	}{
		"dead":      {"could not be started", "cannot open the database, password is [redacted]", true},
		"dies":      {"failed during the call", "the server ended", false},
		"huge":      {"invalid answer: a message of more than", "a message of more than", false},
		"large":     {"invalid answer", "canonical form", false},
		"duplicate": {"invalid answer: a duplicate member", "duplicate member", false},
		"utf8":      {"invalid answer: not strict JSON: not valid UTF-8", "not valid UTF-8", false},
		"wrongid":   {"failed during the call", "a request that was not made", false},
		"garbage":   {"no answer within 2s", "skipped message 1 of the server", false},
		"unknown":   {"invalid answer", "unknown type", false},
		"input":     {"invalid answer", "requests input", false},
		"flood":     {"failed during the call", "unsolicited messages", false},
		"slow":      {"no answer within 2s", "", false},
		"silent":    {"not ready in time", "", true},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.hostile(mode)
			if mode == "slow" || mode == "silent" || mode == "garbage" {
				w.server.Timeout = api.Duration(2 * time.Second)
			}
			began := time.Now()
			_, err := w.call("x")
			fault(t, err, c.part, c.unsent)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
			eventually(t, "the log has "+c.log, func() bool { return strings.Contains(w.log.String(), c.log) })
			if strings.Contains(w.log.String(), password) {
				t.Errorf("the log has the password:\n%s", w.log)
			}
		})
	}
}

func TestASecondAnswerEndsTheSession(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("twice")
	if got := w.text("x"); got != "one" {
		t.Error(got)
	}
	eventually(t, "the log says so", func() bool { return strings.Contains(w.log.String(), "a second answer to one request") })
}

// takeover both modes, tool server: no define, widen, replay, start, approve, read work, rewrite the log, forge evidence
//
// proves R-G5: requests of a server are refused
func TestRequestsOfAServerAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("asks")
	if got := w.text("x"); got != "asked" {
		t.Fatal(got)
	}
	if got := w.text("said"); got != strings.TrimSuffix(strings.Repeat("this client answers no requests\n", 3), "\n") {
		t.Errorf("it was told %q", got)
	}
}

func TestACancelReachesTheServer(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("slow")
	w.text("count") // it is ready
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	_, err := w.pool.Call(ctx, Call{Owner: w.owner("d-01"), Tool: "do", Arguments: []byte(`{"v":"x"}`)})
	fault(t, err, "", false)
	eventually(t, "it counts one", func() bool { return w.text("count") == "1" })
}

func TestAnErrorOfAServerIsAnAnswer(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("refuses")
	a, err := w.call("x")
	if err != nil || !a.IsError || textOf(t, a) != "the server answers error -32602: no such column, password is [redacted]" {
		t.Errorf("got %s, %v", a.Result, err)
	}
}

// proves R-G7: a tool that its server defines otherwise is closed, and opened again
func TestAChangedDefinitionClosesTheTool(t *testing.T) {
	w := newWorld(t, nil)
	listed := make(chan api.DispatchID, 10)
	w.pool.cfg.Listed = func(_ api.Name, dispatch api.DispatchID) { listed <- dispatch }
	w.hostile("changes")
	if _, err := w.callAs("d-01", "do", "same"); err != nil {
		t.Fatal(err)
	}
	known := func(names int, closed bool) {
		t.Helper()
		if got := w.pool.Closed(w.owner("d-01")); len(got) != names || names == 1 && got[0] != "second" {
			t.Errorf("closed in the session: %q", got)
		}
		if w.pool.ClosedSince(w, "warehouse", "second").IsZero() == closed || !w.pool.ClosedSince(w, "warehouse", "do").IsZero() || len(w.pool.Closed(w.owner("d-02"))) > 0 {
			t.Errorf("second is closed since %s", w.pool.ClosedSince(w, "warehouse", "second"))
		}
	}
	known(0, false)
	w.text("change")
	_, err := w.callAs("d-01", "second", "x")
	fault(t, err, "is closed", true)
	if id := <-listed; id != "d-01" || len(listed) > 0 {
		t.Errorf("the closed tools of %q are others, then of %d more", id, len(listed))
	}
	known(1, true)
	w.text("back") // the other tool is as it was
	if _, err := w.callAs("d-01", "second", "x"); err != nil {
		t.Errorf("it is still closed: %v", err)
	}
	if id := <-listed; id != "d-01" {
		t.Errorf("the closed tools of %q are others", id)
	}
	known(0, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	pinned, err := catalog.DefinitionDigest(w.server.Definitions[1])
	if err != nil || len(w.changed) != 1 {
		t.Fatalf("changed: %v %v", w.changed, err)
	}
	if c := w.changed[0]; c.Tool != "second" || c.Pinned != pinned || c.Found == "" || c.Found == pinned {
		t.Errorf("changed: %+v, pinned is %s", c, pinned)
	}
}

// A server that changes a tool to and fro fills no log: in the end the tool stays closed.
// The controls are its other tool, and the test before.
//
// proves R-G7
func TestAToolThatKeepsChangingStaysClosed(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("changes")
	for range maxChanges {
		w.text("change")
		w.text("back")
	}
	w.text("back")
	_, err := w.callAs("d-01", "second", "x")
	fault(t, err, "is closed", true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.changed) > maxChanges/2+1 {
		t.Errorf("%d changes are reported", len(w.changed))
	}
}

// proves R-G7: nobody has to call for a change to be seen
func TestANoticeOfAChangeIsFollowed(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("changes")
	w.text("change")
	eventually(t, "the tool is closed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.changed) == 1
	})
}

func TestAServerThatDoesNotMatchItsPinsIsClosedFromTheStart(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("honest")
	w.server.Definitions[0].Description = "Does something else."
	_, err := w.call("x")
	fault(t, err, "is closed", true)
	if _, err := w.callAs("d-01", "second", "n"); err != nil { // control
		t.Error(err)
	}
}

func TestAServerThatDiesIsStartedAgainLaterAndLater(t *testing.T) {
	now := &clock{at: time.Unix(1_700_000_000, 0)}
	w := newWorld(t, func(c *Config) { c.Now = now.now })
	w.hostile("dies")
	_, err := w.call("x")
	fault(t, err, "failed during the call", false)
	eventually(t, "the first end is logged", func() bool { return strings.Count(w.log.String(), "a tool server has ended") == 1 })
	_, err = w.call("x") // at once
	fault(t, err, "failed during the call", false)
	eventually(t, "the second end is logged", func() bool { return strings.Count(w.log.String(), "a tool server has ended") == 2 })
	_, err = w.call("x")
	fault(t, err, "is started again in 2s", true)
	now.add(3 * time.Second)
	_, err = w.call("x")
	fault(t, err, "failed during the call", false)
}

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

func TestParallelCallsOfAServerAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("slow")
	w.server.Parallel, w.server.Timeout = 1, api.Duration(3*time.Second)
	var calls sync.WaitGroup
	faults := make(chan error, maxWaiting+10)
	for range maxWaiting + 10 {
		calls.Go(func() {
			_, err := w.call("x")
			faults <- err
		})
	}
	calls.Wait()
	close(faults)
	count := map[string]int{}
	for err := range faults {
		for _, part := range []string{"too many calls", "busy with other calls", "no answer within"} {
			if strings.Contains(err.Error(), part) {
				count[part]++
			}
		}
	}
	if count["too many calls"] != 9 || count["no answer within"] == 0 || count["busy with other calls"] == 0 {
		t.Errorf("faults: %v", count)
	}
}

func TestProcessesOfThePoolAreBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Most = 1 })
	w.hostile("honest")
	w.server.Timeout = api.Duration(3 * time.Second)
	w.text("x")
	_, err := w.callAs("d-02", "do", "x")
	fault(t, err, "not ready in time", true)
	w.pool.End("d-01")
	if _, err := w.callAs("d-02", "do", "x"); err != nil {
		t.Error(err)
	}
}

func TestAStoppedPoolRefuses(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("stays") // killed, because it ignores the end of its input
	w.text("x")
	began := time.Now()
	w.pool.Close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	_, err := w.call("x")
	fault(t, err, "stopping", true)
}

// proves R-G5
func TestADeclaredCommandHasAJailForEachCall(t *testing.T) {
	w := newWorld(t, nil)
	host := w.hostile("command").ToolHost
	w.server.Run = &api.ToolCommand{Command: w.server.Stdio.Command, ToolHost: host}
	w.server.Stdio, w.server.Name = nil, "ticket"
	w.server.Allow = []api.ToolAllow{{}}
	w.server.Definitions = w.server.Definitions[1:]
	w.server.Definitions[0].Name = ""
	w.server.Timeout = api.Duration(5 * time.Second)
	a, err := w.callAs("d-01", "", "7")
	if err != nil || string(a.Result) != `{"content":[{"text":"{\"n\":7}","type":"text"}],"structuredContent":{"n":7}}` {
		t.Errorf("got %s, %v\n%s", a.Result, err, w.log)
	}
	a, err = w.callAs("d-01", "", "fail")
	if err != nil || !a.IsError || textOf(t, a) != "the command failed with exit status 4\nno such ticket [redacted]" {
		t.Errorf("got %s, %v", a.Result, err)
	}
	_, err = w.callAs("d-01", "", "huge")
	fault(t, err, "invalid answer: the command wrote more than", false)
	_, err = w.callAs("d-01", "", "9007199254740993")
	fault(t, err, "an integer above 2^53", false)
	_, err = w.callAs("d-01", "", "hang")
	fault(t, err, "no answer within 5s", false)
	w.server.Run.Command = api.Command{"bin/other"}
	_, err = w.callAs("d-01", "", "7")
	fault(t, err, "could not be run", true)
}

func TestDefinitionsAreListedForAPlan(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("exits") // at the first message that it does not know
	o, err := w.pool.order(Call{Owner: w.owner("d-01")})
	if err != nil {
		t.Fatal(err)
	}
	offer, err := toolclient.Definitions(t.Context(), w.pool.cfg.Client, w.pool.resolve(o))
	if err != nil || len(differing(w.server, offer.Tools)) > 0 || len(offer.Tools) != 2 || offer.Unused != nil {
		t.Errorf("%+v, %v", offer, err)
	}
}
