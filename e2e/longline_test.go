package e2e

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

var lineFlag = flag.Int64("line", 1<<30, "size in bytes of the endless line in TestEndlessLineIsSurvived")

// A line without an end is kept at its beginning and its end, counted in
// between, and blocks no reader. A read from within the gap returns what
// follows it.
//
// proves R-D7
func TestEndlessLineIsSurvived(t *testing.T) {
	t.Parallel()
	n := *lineFlag
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "floods", script: fmt.Sprintf("echo half > half.txt; printf BEGIN; head -c %d /dev/zero | tr '\\0' x; echo END", n), more: "    limits: {log: 1MiB}\n"})
	w.up()
	d := w.dispatch("floods", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	o := d.Outcome
	if o.LogBytes != n+9 || o.LogKept > 1<<20 || o.LogKept < 7<<17 || o.Patch == nil {
		t.Fatalf("%d bytes kept of %d: %+v", o.LogKept, o.LogBytes, o)
	}
	log := w.try("dispatch", "logs", string(d.ID))
	if !strings.HasPrefix(log.stdout, "BEGINxxx") || !strings.HasSuffix(log.stdout, "xxxEND\n") || !strings.Contains(log.stderr, "not kept") || int64(len(log.stdout)) > 1<<20+100 {
		t.Errorf("%d bytes of the log are shown, %.20q to %q; %q", len(log.stdout), log.stdout, log.stdout[max(0, len(log.stdout)-20):], log.stderr)
	}
	end := w.must("dispatch", "logs", string(d.ID), "--offset", fmt.Sprint(n/2))
	if !strings.HasSuffix(end, "xxxEND\n") || strings.Contains(end, "BEGIN") || len(end) < 3<<17 {
		t.Errorf("from the middle on it is %d bytes, %.20q", len(end), end)
	}
}
