package plan

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

var update = flag.Bool("update", false, "write the files that the tests compare")

func TestTheTableOfTransitions(t *testing.T) {
	want := map[string]string{
		"pending deps": "ready", "pending skip": "skipped", "pending cancel": "cancelled",
		"ready start": "running", "ready cancel": "cancelled",
		"running done": "done", "running fail": "failed", "running deny": "denied", "running ask": "waiting", "running backoff": "waiting", "running cancel": "cancelled",
		"waiting answer": "ready", "waiting due": "ready", "waiting fail": "failed", "waiting cancel": "cancelled",
	}
	if len(Transitions()) != len(want) {
		t.Errorf("%d transitions, want %d", len(Transitions()), len(want))
	}
	for _, from := range append(api.TaskStates(), "unheard of") {
		for _, e := range append(Events(), "unheard of") {
			to, ok := Next(from, e)
			if wanted, there := want[fmt.Sprintf("%s %s", from, e)]; ok != there || string(to) != wanted {
				t.Errorf("%s of a %s task: %q, %v; want %q", e, from, to, ok, wanted)
			}
			if from.Settled() && ok {
				t.Errorf("%s leaves the settled state %s", e, from)
			}
		}
	}
}

func TestEveryStateAndEventIsOfUse(t *testing.T) {
	reached := map[api.TaskState]bool{api.TaskPending: true}
	used := map[Event]bool{}
	for range api.TaskStates() {
		for _, tr := range Transitions() {
			if reached[tr.From] {
				reached[tr.To], used[tr.Event] = true, true
			}
		}
	}
	for _, s := range api.TaskStates() {
		leaves := slices.ContainsFunc(Transitions(), func(tr Transition) bool { return tr.From == s })
		if !reached[s] || leaves == s.Settled() {
			t.Errorf("%s: reached %v, left %v", s, reached[s], leaves)
		}
	}
	for _, e := range Events() {
		if !used[e] {
			t.Errorf("%s is in no transition", e)
		}
	}
}

// TestTheDrawingIsOfTheTable holds docs/state-machine.svg and the table
// together; -update draws it again.
func TestTheDrawingIsOfTheTable(t *testing.T) {
	const file = "../../docs/state-machine.svg"
	drawn := StateMachineSVG()
	if *update {
		if err := os.WriteFile(file, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(b, drawn) {
		t.Errorf("%s is not what the table says (%v): go test ./internal/plan -run Drawing -update", file, err)
	}
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[point]bool{}
	for _, s := range api.TaskStates() {
		if p := place(s); p == (point{}) || seen[p] || !strings.Contains(string(drawn), fmt.Sprintf(`<text class="state" x="%g" y="%g">%s</text>`, p.x, p.y, s)) {
			t.Errorf("%s has no box of its own", s)
		}
		seen[place(s)] = true
	}
}
