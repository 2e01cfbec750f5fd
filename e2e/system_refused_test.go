package e2e

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// A launcher whose marks or settings, which are root's, disagree with what the service gives
// it starts no worker. The dispatch ends with that as its reason, the log has an entry of it,
// and the messages of the service, status and doctor say it until another attempt starts.
// Controls: the same dispatch before, and after root has put everything back.
//
// proves R-D8, R-S2, R-O10
func TestARefusalOfTheLauncherIsSaid(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "quick", script: "echo two >> a.txt"})
	w.publish("reversible")
	said := func(id, why string) {
		t.Helper()
		for verb, text := range map[string]string{"status": w.must("status"), "doctor": w.try("doctor").stdout} {
			if refused := "REFUSED dispatch " + id; strings.Contains(text, refused) != (why != "") || !strings.Contains(text, why) {
				t.Errorf("%s, with %q and %q: %s", verb, refused, why, text)
			}
		}
	}
	starts := func() {
		t.Helper()
		wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
		said("", "")
	}
	starts()
	for why, change := range map[string]string{
		"is older than revision 99":           `sed -i 's/"number":[0-9]*/"number":99/g' /var/lib/bailiwick-launch/marks`,
		"launch.yaml names ed25519:00":        `echo "service: ed25519:00000000000000000000000000000000" >> /etc/bailiwick/launch.yaml`,
		"but this launcher serves ed25519:00": `sed -i 's/"service":"ed25519:[0-9a-f]*"/"service":"ed25519:00000000000000000000000000000000"/' /var/lib/bailiwick-launch/marks`,
		"marks of the launcher: ":             "echo x >> /var/lib/bailiwick-launch/marks",
	} {
		s.ok(machine.Root, "cp -a /var/lib/bailiwick-launch /mnt/launch && cp -a /etc/bailiwick /mnt/etc && cat /var/lib/bailiwick-launch/marks && "+change)
		s.restartLauncher()
		d := w.dispatch("quick", "--source", "repo")
		id := string(d.ID)
		wantEnd(t, d, api.EventFailed, api.ReasonIntegrity)
		wantIn(t, "the reason", d.Message, "the launcher refused it, and no worker was started", why, "bailiwick doctor")
		if entry := w.must("audit", "list", "--dispatch", id, "--kind", "dispatch.failed"); !strings.Contains(entry, "the launcher refused it") || !strings.Contains(entry, why) {
			t.Errorf("the entry: %s", entry)
		}
		if n := len(w.entries("--dispatch", id, "--kind", "dispatch.started")); n != 0 {
			t.Errorf("%s: %d workers started", why, n)
		}
		wantIn(t, "the messages", s.service.errs.String(), "the launcher refused an attempt", id)
		wantIn(t, "the messages of the launcher", s.launcher.errs.String(), why)
		said(id, why)
		s.ok(machine.Root, "cp -a /mnt/launch/. /var/lib/bailiwick-launch/ && cp -a /mnt/etc/. /etc/bailiwick/ && rm -r /mnt/launch /mnt/etc")
		s.restartLauncher()
		starts()
	}
}
