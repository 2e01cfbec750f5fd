package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

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
	// No subagent is visible, so nothing about it is checked before the request.
	hidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/catalog/artifacts/subagent") {
			_, _ = w.Write([]byte(`{"items":[]}`))
			return
		}
		h(w, r)
	})
	srv := &http.Server{Handler: hidden} //nolint:gosec // G112: only this test calls
	go srv.Serve(l)                      //nolint:errcheck // ends with the test
	t.Cleanup(func() { _, _ = srv.Close(), os.RemoveAll(dir) })
	return socket
}

func attemptIs(state string, attempt int) string {
	return fmt.Sprintf(`{"dispatchId":"d-one","state":%q,"attempt":%d}`, state, attempt)
}

// at runs a command line against a service.
func at(t *testing.T, socket, line string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	status := Run(t.Context(), Config{
		Output: console.Output{Stdout: &out, Stderr: &errs, Now: time.Now}, Args: append([]string{"--socket", socket}, strings.Fields(line)...), UIDs: []int{os.Getuid()},
	})
	return status, out.String(), errs.String()
}

// Another caller may answer between the end of an attempt and the reading of its
// record. The command still reports the attempt that it followed.
//
// proves R-D6
func TestFollowReportsTheAttemptThatItFollows(t *testing.T) {
	looks := 0
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			_, _ = w.Write([]byte(attemptIs("accepted", 1)))
		case r.URL.Query().Get("attempt") == "1":
			_, _ = w.Write([]byte(attemptIs("needs_input", 1)))
		default:
			if looks++; looks > 2 { // the next attempt ends too, but it is not the followed one
				_, _ = w.Write([]byte(attemptIs("finished", 2)))
				return
			}
			_, _ = w.Write([]byte(attemptIs("started", 2)))
		}
	})
	status, out, errs := at(t, socket, "dispatch run asks -q --id d-one -o jsonl")
	if status != statusNeedsInput || !strings.Contains(out, `"event":"needs_input"`) || strings.Contains(out, `"attempt":2`) || strings.Contains(out, "finished") {
		t.Errorf("exit status %d, %s, %s", status, out, errs)
	}
}

// A command that stops waiting names the dispatch, and it may wait for longer than
// one request.
func TestTimeoutsNameTheDispatch(t *testing.T) {
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = w.Write([]byte(attemptIs("started", 1)))
			return
		}
		if wait, err := time.ParseDuration(r.URL.Query().Get("wait")); err != nil || wait > time.Minute {
			t.Errorf("a request waits for %s, %v", wait, err)
		}
		<-r.Context().Done()
	})
	for line, want := range map[string]string{
		"dispatch run asks -q --id d-one --wait 20ms": "dispatch d-one has not ended after 20ms",
		"dispatch cancel d-one --wait 20ms":           "dispatch d-one was cancelled but has not ended",
	} {
		if status, _, errs := at(t, socket, line); status != 8 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, %s", line, status, errs)
		}
	}
	for _, line := range []string{"dispatch run asks --wait -1s", "dispatch cancel d-one --wait -1s", "dispatch answer d-one yes --wait -1s"} {
		if status, _, errs := at(t, socket, line); status != 1 || !strings.Contains(errs, "no negative time") {
			t.Errorf("%s: exit status %d, %s", line, status, errs)
		}
	}
}

// proves R-O1
func TestAmbiguousArgumentsAreRefused(t *testing.T) {
	socket := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("unexpected request %s %s", r.Method, r.URL) })
	for line, want := range map[string]string{
		"dispatch run edit --source repo@":     "want NAME or NAME@COMMIT", // an empty variable is not the newest commit
		"dispatch run edit --source @main":     "want NAME or NAME@COMMIT",
		"dispatch outputs d-one x.txt --dir d": "want one of the two",
	} {
		if status, _, errs := at(t, socket, line); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, %s", line, status, errs)
		}
	}
}

func TestStepsArePrintedOnce(t *testing.T) {
	var out bytes.Buffer
	verbs := &followVerbs{&dispatchVerbs{&tree{Config: Config{Output: console.Output{Stdout: &out, Format: "jsonl"}}}}}
	now := time.Unix(0, 0).UTC()
	ev := verbs.newSteps()
	d := api.Dispatch{ID: "d-one", Attempt: 1, State: api.EventAccepted, AcceptedAt: now}
	tell := func() {
		t.Helper()
		if err := ev.print(d); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	d.State, d.StartedAt = api.EventStarted, &now
	tell()
	tell()
	d.State, d.Reason, d.EndedAt = api.EventFailed, api.ReasonAgent, &now
	tell()
	var got []string
	for line := range strings.Lines(out.String()) {
		var l runLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Event == nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, string(l.Event.Event))
	}
	if strings.Join(got, " ") != "accepted started failed" {
		t.Errorf("events %v", got)
	}
}

// A person who follows a dispatch learns within seconds that its model cannot be reached,
// once, and when it is again, also with -q. dispatch show has the number of tries.
func TestFollowSaysThatTheModelIsUnreachable(t *testing.T) {
	// A break in what a server says is escaped.
	const unreachable = `{"dispatchId":"d-one","state":"started","attempt":1,"unreachable":{"model":"local","host":"api.example:443","error":"connection\nrefused","tries":%d,"since":"2026-03-04T12:01:05Z"}}`
	var looks atomic.Int64
	ended := make(chan struct{})
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			_, _ = w.Write([]byte(attemptIs("accepted", 1)))
		case r.URL.Query().Get("wait") != "":
			<-ended
			_, _ = w.Write([]byte(attemptIs("failed", 1)))
		default:
			switch n := looks.Add(1); n {
			case 1, 2:
				_, _ = fmt.Fprintf(w, unreachable, n)
			case 3:
				_, _ = w.Write([]byte(attemptIs("started", 1)))
			default:
				_, _ = w.Write([]byte(attemptIs("started", 1)))
				if n == 5 {
					close(ended)
				}
			}
		}
	})
	_, _, errs := at(t, socket, "dispatch run asks -q --id d-one")
	for _, want := range []string{
		"model local at api.example:443 cannot be reached: connection\\x0arefused (1 try since 2026-03-04T12:01:05Z)\n",
		"model local at api.example:443 is reached again\n",
	} {
		if strings.Count(errs, want) != 1 {
			t.Errorf("%q has not one %q", errs, want)
		}
	}
	shown := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "approvals") {
			_, _ = w.Write([]byte(`[]`))
			return
		}
		_, _ = fmt.Fprintf(w, unreachable, 3)
	})
	_, out, errs := at(t, shown, "dispatch show d-one")
	if !strings.Contains(out, "local at api.example:443 cannot be reached: connection\\x0arefused (3 tries since 2026-03-04T12:01:05Z)") {
		t.Error(out, errs)
	}
	if _, out, _ = at(t, shown, "dispatch show d-one -o json"); !strings.Contains(out, `"tries": 3`) && !strings.Contains(out, `"tries":3`) {
		t.Error(out)
	}
}
