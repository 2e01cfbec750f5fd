package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const gatedLock = `{"tasks":[{"id":"p","subagent":"work","locks":["k"],"gate":{"verify":"work","fix":"work"}}]}`

// A task holds its lock until its gate is settled, whatever it is settled by and whether
// or not the service is killed after each step: no other task comes between the task and
// its fix. A fix takes no lock of its own, so it never waits for its task.
//
// proves R-O3, R-O9
func TestALockIsHeldUntilTheGateIsSettled(t *testing.T) {
	for name, c := range map[string]struct {
		green  bool
		cancel bool
		want   string
	}{
		"green":     {true, false, "p done, p.gate1 done, p.fix1 done, p.gate2 done: done"},
		"red":       {false, false, "p failed, p.gate1 done, p.fix1 done, p.gate2 done: failed"},
		"cancelled": {false, true, "p cancelled, p.gate1 done, p.fix1 cancelled, p.gate2 cancelled: cancelled"},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crash=%t", name, crash), func(t *testing.T) {
				inGrowing(t, func(g *growing) {
					g.crash = crash
					g.gives["p.gate1"], g.gives["p.gate2"] = `{"verdict":"red"}`, `{"verdict":"red"}`
					if c.green {
						g.gives["p.gate2"] = `{"verdict":"green"}`
					}
					g.hold["p.gate1"], g.hold["p.fix1"], g.hold["p.gate2"] = true, true, true
					r := g.run(gatedLock)
					other, err := g.o.Submit(context.Background(), as(ben), api.RunRequest{Plan: json.RawMessage(`{"tasks":[{"id":"o","subagent":"work","locks":["k"]}]}`)})
					g.must(err)
					waits := func(at string) {
						t.Helper()
						g.want(g.drive(r.RunID), at)
						now, err := g.o.Describe(context.Background(), ben, other.RunID, "", 10)
						g.must(err)
						if o := taskOf(now, "o"); o.State != api.TaskReady || !strings.Contains(o.Blocked, `lock "k"`) {
							t.Fatalf("at %s the other task is %s, blocked by %q", at, o.State, o.Blocked)
						}
					}
					waits("p growing, p.gate1 running: running")
					g.hold["p.gate1"] = false
					waits("p growing, p.gate1 done, p.fix1 running, p.gate2 pending: running")
					if c.cancel {
						_, err := g.o.Cancel(context.Background(), as(ann), r.RunID, api.RunCancel{})
						g.must(err)
					} else {
						g.hold["p.fix1"] = false
						waits("p growing, p.gate1 done, p.fix1 done, p.gate2 running: running")
					}
					g.hold["p.gate2"] = false
					g.want(g.drive(r.RunID), c.want)
					done, err := g.o.Describe(context.Background(), ben, other.RunID, "", 10)
					g.must(err)
					g.want(done, "o done: done")
				})
			})
		}
	}
}

// A key belongs to one request: repeated, it adds nothing; with other tasks it is a
// conflict that says what differs, before and after a restart.
//
// proves R-O8
func TestAKeyBelongsToOneAppend(t *testing.T) {
	inGrowing(t, func(g *growing) {
		g.hold["p"] = true
		r := g.run(`{"tasks":[{"id":"p","subagent":"work"}]}`)
		add := func(tasks string) error {
			_, err := g.o.Append(context.Background(), as(ann), true, r.RunID, api.RunAppend{Tasks: json.RawMessage(tasks), Key: "K"})
			return err
		}
		g.must(add(`[{"id":"x","subagent":"work"}]`))
		for range 2 {
			g.must(add(` [ {"subagent":"work", "id":"x"} ]`)) // the same in other words
			for tasks, want := range map[string]string{
				`[{"id":"y","subagent":"work"}]`:                                "it added x, and this request has y",
				`[{"id":"x","subagent":"work","priority":1}]`:                   "the tasks x have other content",
				`[{"id":"x","subagent":"work"},{"id":"z","subagent":"absent"}]`: "it added x, and this request has x, z",
			} {
				if err := add(tasks); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `key "K"`) {
					t.Errorf("append of %s: %v, want a conflict with %q", tasks, err, want)
				}
			}
			g.want(g.drive(r.RunID), "p running, x done: running")
			if g.kill(); !g.killed() {
				t.Fatal("not killed")
			}
		}
	})
}

// Likewise the key of a run, and of a retry.
//
// proves R-O8
func TestAKeyBelongsToOneRun(t *testing.T) {
	inGrowing(t, func(g *growing) {
		submit := func(id, task string) (api.Run, error) {
			return g.o.Submit(context.Background(), as(ann), api.RunRequest{Key: "K", Plan: json.RawMessage(fmt.Sprintf(`{"id":%q,"tasks":[{"id":%q,"subagent":"work"}]}`, id, task))})
		}
		retry := func(from api.TaskID) (api.Run, error) {
			return g.o.Retry(context.Background(), as(ann), "r1", api.RunRetry{RunID: "r2", Key: "L", From: []api.TaskID{from}})
		}
		for range 2 { // the second is the first, repeated
			r, err := submit("r1", "a")
			g.must(err)
			g.want(g.drive(r.RunID), "a done: done")
		}
		if _, err := submit("r1", "b"); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), `key "K"`) {
			t.Errorf("another plan with the same key: %v", err)
		}
		for range 2 {
			r, err := retry("a")
			g.must(err)
			g.want(g.drive(r.RunID), "a done: done")
		}
		if _, err := g.o.Retry(context.Background(), as(ann), "r1", api.RunRetry{RunID: "r2", Key: "L", Inputs: map[api.TaskID]json.RawMessage{"a": json.RawMessage(`{"x":1}`)}}); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), `key "L"`) {
			t.Errorf("another retry with the same key: %v", err)
		}
	})
}
