package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// calling is a world whose agents make three requests that are refused, wait at a
// gate, and make two more.
func calling(t *testing.T, uid int) *world {
	w := newWorld(t, uid)
	must(t, os.Chmod(w.dir, 0o755)) // so that the jail's account reaches the gate
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.mkdir("gate")
	w.init()
	script := `call() { exec 3<>/dev/tcp/127.0.0.1/19514; printf 'CONNECT evil%s.example:443 HTTP/1.1\r\nHost: evil%s.example:443\r\n\r\n' $1 $1 >&3; read -r line <&3; echo "$line"; exec 3>&-; }
for i in 1 2 3; do call $i; done
` + strings.ReplaceAll(waitAtGate, "GATE", w.path("gate")) + `
for i in 4 5; do call $i; done`
	w.manifest(subagent{name: "edit", script: script})
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: guarded}", "{name: local, executor: jail, level: full, mode: guarded, readOnly: ["+w.path("gate")+"], egress: [allowed.example:443]}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	return w
}

// hostsRefused returns the hosts of the refused requests of a dispatch, as the log and
// as its network record say.
func (w *world) hostsRefused(id string) (logged, recorded []string) {
	w.t.Helper()
	for line := range strings.Lines(w.must("audit", "list", "--dispatch", id, "--kind", "egress.refused", "-o", "jsonl")) {
		var e struct {
			Entry struct {
				Detail struct{ Host string } `json:"detail"`
			} `json:"entry"`
		}
		decode(w.t, line, &e)
		logged = append(logged, e.Entry.Detail.Host)
	}
	for line := range strings.Lines(w.must("dispatch", "network", id, "--refused", "-o", "jsonl")) {
		var l api.NetworkLine
		decode(w.t, line, &l)
		recorded = append(recorded, l.Host)
	}
	slices.Sort(logged)
	slices.Sort(recorded)
	return logged, recorded
}

func evils(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("evil%d.example:443", i+1))
	}
	return list
}

// Each request that a broker refuses is in the log once, while the agent runs, also
// where the service or the worker is killed; and the evidence requires it. The control:
// the requests before the gate are there while it is closed, those behind it are not.
//
// proves R-S3, R-D3, R-A7
func TestRefusedRequestsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := calling(t, uid)
		id, j := w.begun()
		logged, recorded := w.hostsRefused(id)
		for range polling(time.Minute) { // the log of the agent overtakes the entries
			if logged, recorded = w.hostsRefused(id); len(logged) >= 3 {
				break
			}
		}
		if !slices.Equal(logged, evils(3)) || !slices.Equal(recorded, evils(3)) {
			t.Errorf("while it runs: the log has %q, the record %q", logged, recorded)
		}
		lost := w.detached("edit", "--source", "repo")
		w.awaitLog(lost, "begun")
		k := jailed{map[int]bool{}, map[string]bool{}}
		w.observe(&k)
		for pid := range k.workers {
			if !j.workers[pid] {
				kill(t, pid)
			}
		}
		wantEnd(t, w.awaitEnd(lost), api.EventFailed, api.ReasonLost)
		if logged, recorded := w.hostsRefused(lost); !slices.Equal(logged, evils(3)) || !slices.Equal(recorded, evils(3)) {
			t.Errorf("of a killed worker the log has %q, the record %q", logged, recorded)
		}

		kill(t, w.status().PID)
		w.openGate()
		for pid := range j.workers {
			awaitGone(t, pid)
		}
		w.must("up")
		d := w.awaitEnd(id)
		wantEnd(t, d, api.EventFinished, "")
		if logged, recorded := w.hostsRefused(id); !slices.Equal(logged, evils(5)) || !slices.Equal(recorded, evils(5)) {
			t.Errorf("after a restart the log has %q, the record %q", logged, recorded)
		}
		if d.Outcome.Refusals == nil || d.Outcome.Refusals.Count != 5 {
			t.Errorf("the worker signed %+v", d.Outcome.Refusals)
		}
		if text := w.must("dispatch", "show", id); !strings.Contains(text, "5 of its requests; see: bailiwick dispatch network "+id+" --refused") {
			t.Errorf("show: %s", text)
		}
		if text := w.must("dispatch", "network", id); strings.Count(text, "refused: ") != 5 {
			t.Errorf("network: %s", text)
		}
		for _, id := range []string{id, lost} {
			w.verifyEvidence(id, "--with-blobs")
		}
	})
}

// A disk that is full while requests are refused takes none of them from the log: the
// worker writes them again before it signs how many there are. The control: while the
// disk is full the log lacks them.
//
// proves R-S3, R-D3
func TestRefusedRequestsSurviveAFullDisk(t *testing.T) {
	t.Parallel()
	w := calling(t, 0)
	w.must("down")
	next := "until ls " + w.path("gate") + " | grep -qx next; do sleep 0.05; done"
	const edit = "project/capabilities/edit/edit.sh"
	w.write(edit, strings.ReplaceAll(strings.Join(lines(w.path(edit)), "\n"), "for i in 4 5", "for i in {4..300}")+"\nbash -c '"+next+"'\n", 0o755)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.smallState("36m")
	w.must("up")
	id, _ := w.begun()
	for late := range polling(time.Minute) {
		if logged, _ := w.hostsRefused(id); len(logged) == 3 || late {
			break
		}
	}
	w.fillState()
	must(t, os.Remove(w.path("state/bailiwick/reserve"))) // otherwise the service gives it up, and the worker has its room
	w.fillState()
	w.openGate()
	for !argument(t, next) {
		w.fillState()
	}
	events, err := filepath.Glob(w.path("state/bailiwick/dispatches", id, "1", record.WorkEvents))
	if n := strings.Count(strings.Join(lines(strings.Join(events, "")), "\n"), "evil"); err != nil || n < 3 || n >= 300 {
		t.Errorf("the control: the full disk took %d refusals in %q: %v", n, events, err)
	}
	w.freeState()
	w.open("next")
	for range polling(time.Minute) { // the service has not seen yet that there is room
		if w.try("dispatch", "show", id).status == 0 {
			break
		}
	}
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFailed, api.ReasonLost)
	all := slices.Sorted(slices.Values(evils(300)))
	if logged, _ := w.hostsRefused(id); !slices.Equal(logged, all) || d.Outcome == nil || d.Outcome.Refusals == nil || d.Outcome.Refusals.Count != 300 {
		t.Errorf("the log has %q, the outcome %+v", logged, d.Outcome)
	}
	w.verifyEvidence(id, "--with-blobs")
}

// argument reports whether a process has an argument.
func argument(t testing.TB, arg string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	return slices.ContainsFunc(all, func(path string) bool {
		b, _ := os.ReadFile(path) // a process may have exited
		return slices.Contains(strings.Split(string(b), "\x00"), arg)
	})
}
