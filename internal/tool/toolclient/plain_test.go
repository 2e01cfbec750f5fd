package toolclient

import (
	"os"
	"path/filepath"
	"testing"
)

// The owner of a jail that was killed cannot remove its control groups, so the service
// learns of it. A process that exits has removed them.
func TestAKilledToolHostIsReported(t *testing.T) {
	t.Parallel()
	killed := make(chan string, 2)
	for _, script := range []string{"exit 3", "kill -9 $$"} {
		program := filepath.Join(t.TempDir(), "host")
		if err := os.WriteFile(program, []byte("#!/bin/sh\ncat <&3 >/dev/null\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		h, err := Start(t.Context(), Config{Start: Plain{Program: program, Killed: func() { killed <- script }}}, Server{})
		if err != nil {
			t.Fatal(err)
		}
		<-h.exited
		_ = h.Close()
	}
	if script := <-killed; script != "kill -9 $$" {
		t.Errorf("%q was reported as killed", script)
	}
}
