package dispatch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// In mode system the service makes the checkouts that workers only read; else workers do.
//
// proves R-S4
func TestTheServicePreparesCheckoutsForWorkersOfOtherAccounts(t *testing.T) {
	repo := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@invalid"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	if err := os.WriteFile(filepath.Join(repo, "a"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("add", "-A")
	git("commit", "-qm", "first")
	g := newCatalogGate(t, stopManifest+"sources:\n  - {name: repo, repo: "+repo+"}\n")
	snapshot, err := g.cfg.InForce.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, m := testRow("d-0"), record.Manifest{RevisionDigest: snapshot.Revision.Digest(), Source: &api.PinnedSource{Name: "repo", Commit: git("rev-parse", "HEAD")}, Expires: g.cfg.Now().Add(startTime)}
	m.Limits.Disk = 1 << 20
	for _, c := range []struct {
		mode string
		want int
	}{{api.ModeSameUser, 0}, {api.ModeSystem, 1}} {
		g.cfg.Dirs.Mode = c.mode
		started := false
		g.withCheckout(r, m, func() { started = true })
		g.work.Wait()
		if !started {
			t.Errorf("mode %s: not started", c.mode)
		}
		list, err := checkoutcache.New(g.cfg.Dirs.Checkouts()).List()
		if err != nil || len(list) != c.want {
			t.Errorf("mode %s: %d checkouts, want %d: %v", c.mode, len(list), c.want, err)
		}
	}
	// An attempt does not wait until the launcher would refuse its manifest; the above is the control.
	late := testRow("late-1")
	g.admission(t, late)
	m.Expires = g.cfg.Now().Add(startMargin)
	g.withCheckout(late, m, func() { t.Error("started too late") })
	g.work.Wait()
	d, _, err := g.Get(t.Context(), "late-1")
	if err != nil || d.State != api.EventFailed || d.Reason != api.ReasonFetch || !strings.Contains(d.Message, `source "repo": its checkout was not ready at `) {
		t.Errorf("too late: %+v, %v", d, err)
	}
	left, err := os.ReadDir(g.cfg.Dirs.Scratch())
	if err != nil || len(left) > 0 {
		t.Errorf("scratch: %v, %v", left, err)
	}
}
