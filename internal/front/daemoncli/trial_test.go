package daemoncli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// A status shows what the launcher tried, and asks again when that is old or failed. The control
// of a lack is a machine without one.
func TestAStatusShowsWhatTheLauncherTried(t *testing.T) {
	asked, report, lacks, fault := 0, jail.Report{Full: true, Layers: []jail.Layer{{Name: "seccomp", Active: true}}}, []string(nil), error(nil)
	tr := &trial{ask: func(ctx context.Context) ([]byte, []string, error) {
		asked++
		if _, ok := ctx.Deadline(); !ok {
			t.Error("it waits without a bound")
		}
		doc, err := canon.Marshal(report)
		if err != nil {
			t.Error(err)
		}
		return doc, lacks, fault
	}}
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name, layers, lacks string
		change              func()
		asked               int
	}{
		{"first", "seccomp", "", func() {}, 1},
		{"soon after", "seccomp", "", func() { now = now.Add(trialAge - 1) }, 1},
		{"a layer and a limit are gone", "", "memory: not held; mend it|limit of an attempt's whole group: io: none", func() {
			now, report, lacks = now.Add(2), jail.Report{Layers: []jail.Layer{{Name: "memory", Detail: "not held", Fix: "mend it"}}}, []string{"io: none"}
		}, 2},
		{"the clock steps back", "seccomp", "", func() {
			now, report, lacks = now.Add(-time.Hour), jail.Report{Full: true, Layers: []jail.Layer{{Name: "seccomp", Active: true}}}, nil
		}, 3},
		{"the launcher is gone", "", "unknown: the launcher could not try a jail: gone", func() { now, fault = now.Add(trialAge+1), errors.New("gone") }, 4},
		{"it is back", "seccomp", "", func() { now, fault = now.Add(trialRetry+1), nil }, 5},
	} {
		c.change()
		layers, without := tr.lines(t.Context(), now)
		if strings.Join(layers, "|") != c.layers || strings.Join(without, "|") != c.lacks || asked != c.asked {
			t.Errorf("%s: %q, lacks %q, asked %d times", c.name, layers, without, asked)
		}
		checks := runningLayers(&api.ServiceStatus{Isolation: layers, IsolationLacks: without})
		bad := 0
		for i := range checks {
			if !checks[i].ok {
				bad++
			}
		}
		if bad != len(without) {
			t.Errorf("%s: doctor shows %d lacks, want %d", c.name, bad, len(without))
		}
	}
}
