package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// An error about arguments shows the usage. Control: unknown flags are named.
func TestArgumentErrorsShowTheUsage(t *testing.T) {
	for line, want := range map[string]string{
		"dispatch show": "want: bailiwick dispatch show ID", "dispatch answer": "answer ID [TEXT]", "dispatch patch a-b-c d": "want: bailiwick dispatch patch ID",
		"can me": "PRINCIPAL dispatch SUBAGENT, role:ROLE call TOOL, or PRINCIPAL append", "dispatch frobnicate": "see: bailiwick dispatch --help", "dispatch list --latest": "unknown flag --latest",
	} {
		var out, errs bytes.Buffer
		status := Run(t.Context(), Config{Output: console.Output{Stdout: &out, Stderr: &errs, Now: time.Now}, Args: strings.Fields(line)})
		if status != 1 || out.Len() > 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: status %d, %q, %q", line, status, &out, &errs)
		}
	}
}
