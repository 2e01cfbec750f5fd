package api

import (
	"strings"
	"testing"
)

// No person of a machine in mode system is told to run what starts a service of their own
// account there; the control is the other mode.
func TestAnOrchestratorStartsByMode(t *testing.T) {
	for mode, own := range map[string]bool{ModeSystem: false, ModeSameUser: true, "": true} {
		if said := StartRuns(mode); strings.Contains(said, "bailiwick up") != own || strings.Contains(said, "systemctl restart bailiwick.service") == own {
			t.Errorf("%q: %s", mode, said)
		}
		for _, said := range []string{StartService(mode), RestartService(mode), RestartRuns(mode), StartConfigured(mode)} {
			if strings.Contains(said, "bailiwick up") != own || strings.Contains(said, "sudo systemctl ") == own {
				t.Errorf("%q: %s", mode, said)
			}
		}
	}
}
