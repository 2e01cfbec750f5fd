package runverbs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// runService answers requests about one run as the service does.
type runService struct {
	run        api.Run
	dispatches map[api.DispatchID]api.Dispatch
	patches    map[api.DispatchID]string
	logs       map[api.DispatchID]string
	events     []api.RunEvent
	plan       string
	waiting    []api.Waiting
	open       atomic.Pointer[[]api.OpenApproval]           // instead of those of run
	seen       atomic.Int32                                 // how often a client looked at the settled run
	page       int                                          // tasks in an answer
	steer      func(verb string, body []byte) (any, error)  // what is asked of the operator's side
	submit     func(req api.RunRequest) (any, error)        //
	list       func(q url.Values) ([]api.Run, error)        // runs, as the query selects them; nil: the one run
	waits      func(w http.ResponseWriter, r *http.Request) // called when a client waits for more events
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newRunService(tasks ...api.RunTask) *runService {
	s := &runService{dispatches: map[api.DispatchID]api.Dispatch{}, patches: map[api.DispatchID]string{}, logs: map[api.DispatchID]string{}}
	s.run = api.Run{RunID: "r-one", State: api.RunDone, Queue: "default", Principal: "local:ann", Plan: api.DigestOf(nil), Revision: 3, SubmittedAt: testStart, Tasks: tasks}
	s.count()
	return s
}

// count derives the counts and the state from the tasks.
func (s *runService) count() {
	s.run.Total, s.run.Counts = len(s.run.Tasks), map[api.TaskState]int{}
	settled := true
	for i := range s.run.Tasks {
		s.run.Counts[s.run.Tasks[i].State]++
		settled = settled && s.run.Tasks[i].State.Settled()
	}
	if at := testStart.Add(time.Minute); settled {
		s.run.SettledAt = &at
	}
}

// serve answers until the end of the test, and returns the socket.
func (s *runService) serve(t *testing.T) string {
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, v any, err error) {
		if err != nil {
			var e *api.Error
			if b, ok := err.(*api.Error); ok { //nolint:errorlint // made by the test itself
				e = b
			}
			w.WriteHeader(api.Table()[e.Code].HTTP)
			v = e
		}
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("POST /v1/runtime/runs", func(w http.ResponseWriter, r *http.Request) {
		var req api.RunRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		v, err := s.submit(req)
		say(w, v, err)
	})
	mux.HandleFunc("GET /v1/runtime/runs", func(w http.ResponseWriter, r *http.Request) {
		if s.list != nil {
			list, err := s.list(r.URL.Query())
			say(w, list, err)
			return
		}
		head := s.run
		head.Tasks = []api.RunTask{}
		say(w, []api.Run{head}, nil)
	})
	mux.HandleFunc("GET /v1/runtime/runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		run, from := s.run, 0
		from, _ = strconv.Atoi(r.URL.Query().Get("after"))
		to := len(run.Tasks)
		if s.page > 0 && from+s.page < to {
			to = from + s.page
			run.Next = strconv.Itoa(to)
		}
		run.Tasks = run.Tasks[from:to]
		if open := s.open.Load(); open != nil {
			run.Approvals = *open
		}
		say(w, run, nil)
	})
	mux.HandleFunc("GET /v1/runtime/runs/{id}/plan", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.plan) })
	mux.HandleFunc("GET /v1/runtime/runs/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("after"))
		page := api.RunEvents{Events: s.events[from:], Next: strconv.Itoa(len(s.events)), Done: s.run.SettledAt != nil}
		if len(page.Events) == 0 && !page.Done && r.URL.Query().Get("wait") != "" {
			s.waits(w, r)
			return
		}
		say(w, page, nil)
	})
	mux.HandleFunc("GET /v1/runtime/dispatches/{id}", func(w http.ResponseWriter, r *http.Request) {
		d, ok := s.dispatches[api.DispatchID(r.PathValue("id"))]
		if !ok {
			say(w, nil, api.Errorf(api.CodeNotFound, "no dispatch"))
			return
		}
		say(w, d, nil)
	})
	mux.HandleFunc("GET /v1/runtime/dispatches/{id}/patch", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, s.patches[api.DispatchID(r.PathValue("id"))])
	})
	mux.HandleFunc("GET /v1/runtime/dispatches/{id}/output", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "content of "+r.URL.Query().Get("path"))
	})
	mux.HandleFunc("GET /v1/runtime/waiting", func(w http.ResponseWriter, _ *http.Request) { say(w, s.waiting, nil) })
	mux.HandleFunc("GET /v1/runtime/dispatches/{id}/log", func(w http.ResponseWriter, r *http.Request) {
		text := s.logs[api.DispatchID(r.PathValue("id"))]
		from, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		for i := from; i < len(text); i++ { // byte by byte, as far apart as a service may do it
			say(w, api.Chunk{Offset: int64(i), Data: []byte(text[i : i+1])}, nil)
		}
		say(w, api.Chunk{Offset: int64(len(text)), Ended: true}, nil)
	})
	steered := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		v, err := s.steer(strings.TrimPrefix(r.URL.Path, "/v1/operator/"), body)
		say(w, v, err)
	}
	mux.HandleFunc("POST /v1/operator/", steered)
	mux.HandleFunc("POST /v1/operator/runs/{id}/seen", func(w http.ResponseWriter, _ *http.Request) {
		s.seen.Add(1)
		say(w, struct{}{}, nil)
	})
	mux.HandleFunc("GET /v1/operator/", steered)
	return serve(t, mux.ServeHTTP)
}

// did adds a done task with a patch.
func (s *runService) did(task api.TaskID, commit, patch string, after ...api.TaskID) *api.RunTask {
	id := api.DispatchID("d-" + strings.ToLower(string(task)))
	d := api.Dispatch{ID: id, State: api.EventFinished, Attempt: 1, Principal: "local:ann", Subagent: "edit", Role: "coder", Tier: api.Reversible, Target: "local", Manifest: api.DigestOf(nil), Result: api.DigestOf([]byte(task)), AcceptedAt: testStart, Outcome: &api.ResultSummary{Captured: true}}
	d.Source = &api.PinnedSource{Name: "service", Commit: commit}
	if patch != "" {
		d.Outcome.Patch = &api.Artifact{Size: int64(len(patch)), Digest: api.DigestOf([]byte(patch))}
		for line := range strings.Lines(patch) {
			if path, ok := strings.CutPrefix(line, "+++ b/"); ok {
				d.Outcome.Files = append(d.Outcome.Files, api.FileChange{Path: strings.TrimSuffix(path, "\n"), Change: "modified"})
			}
		}
	}
	s.dispatches[id], s.patches[id] = d, patch
	s.run.Tasks = append(s.run.Tasks, api.RunTask{Task: task, State: api.TaskDone, Subagent: "edit", DispatchID: id, Attempt: 1, Attempts: 1, After: after, StartedAt: &testStart, EndedAt: &testStart})
	s.count()
	return &s.run.Tasks[len(s.run.Tasks)-1]
}

// invocation is a command line and the process that it runs in.
type invocation struct {
	console.Output
	Stdin io.Reader
	args  []string
}

// run executes it as bailiwick does.
func (v *invocation) run(ctx context.Context) int {
	var socket string
	connect := func() *client.Conn { return client.New(client.Config{Socket: socket, UIDs: []int{os.Getuid()}}) }
	root := console.ParseManual("# bailiwick\n", Manual).Command(Verbs(Config{Output: &v.Output, Stdin: v.Stdin, Connect: connect, Start: connect}))
	root.PersistentFlags().StringVar(&socket, "socket", "", "")
	root.PersistentFlags().StringVarP(&v.Format, "output", "o", "text", "")
	if v.Now == nil {
		v.Now = time.Now
	}
	return console.Run(ctx, root, &v.Output, v.args)
}

// do runs a command line, given as words, against the service.
func do(t *testing.T, socket string, words ...string) (int, string, string) {
	t.Helper()
	return with(t, invocation{Output: console.Output{Env: os.Environ()}}, socket, words...)
}

func with(t *testing.T, v invocation, socket string, words ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	v.args, v.Stdout, v.Stderr = append([]string{"--socket", socket}, words...), &out, &errs
	status := v.run(t.Context())
	return status, out.String(), errs.String()
}

// at runs a command line, given as a string, against a service.
func at(t *testing.T, socket, line string) (int, string, string) {
	t.Helper()
	return with(t, invocation{}, socket, strings.Fields(line)...)
}

// serve answers on a unix socket as a service does, and returns its path.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h} //nolint:gosec // G112: only this test calls
	go srv.Serve(l)                 //nolint:errcheck // ends with the test
	t.Cleanup(func() { _, _ = srv.Close(), os.RemoveAll(dir) })
	return socket
}

func event(seq int, kind string, task api.TaskID, dispatch api.DispatchID, attempt int) api.RunEvent {
	return api.RunEvent{Seq: uint64(seq), At: testStart, Event: kind, Task: task, DispatchID: dispatch, Attempt: attempt, Text: fmt.Sprintf("%s of %s [#%d]", kind, task, seq)}
}
