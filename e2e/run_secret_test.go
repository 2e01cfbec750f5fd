package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func holding(env api.Name) func(*api.PlanTask) {
	return func(t *api.PlanTask) { t.Envs = []api.Name{env} }
}

// A task whose secret cannot be read is retried as its plan says, and has it once the
// store has it. A patch or an output from which a value was removed is not used: no
// task gets it, and it is not applied. Control: the same without a value is used.
//
// proves R-C3, R-D8, R-O4
func TestSecretsOfTasks(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		const value = "the-value-of-the-token"
		w := newWorld(t, uid)
		must(t, os.Chmod(w.dir, 0o755)) // so that the jail's account reaches the gate
		w.repository("repo", map[string]string{"a.txt": "one\n", "v.txt": "near\n" + value + "\n"})
		w.mkdir("gate")
		w.init()
		w.runManifest()
		w.withSecrets()
		w.must("catalog", "apply", "-f", w.path(manifest))
		w.upRuns()
		w.downAtEnd()

		id := w.submit(planned("held",
			shellTask("late", `[ "${#TOKEN}" = 22 ]`, holding("tokens"), retrying(20)),
			shellTask("leaks", `sed -i 2d v.txt; echo "$TOKEN" > outputs/o.txt`, after("late"), holding("tokens")),
			shellTask("fine", `echo two > a.txt; echo o > outputs/o.txt`, after("late"), holding("tokens")),
			shellTask("takes-patch", "true", needing("p", api.Need{From: "leaks", Patch: true})),
			shellTask("takes-output", "true", needing("o", api.Need{From: "leaks", Output: "o.txt"})),
			shellTask("takes-fine", "test -s inputs/p && test -s inputs/o", needing("p", api.Need{From: "fine", Patch: true}), needing("o", api.Need{From: "fine", Output: "o.txt"})),
		))
		w.awaitEvent(id, event("task.waiting", "late"))
		if d := w.setSecret("token", value); d.status != 0 {
			t.Fatal(d)
		}
		run := w.awaitSettled(id)
		wantStates(t, run, "failed; late done; leaks done; fine done; takes-patch failed context; takes-output failed context; takes-fine done")
		if late := task(t, run, "late"); late.Attempt < 2 {
			t.Errorf("late had %d attempts", late.Attempt)
		}
		const why = "values of secrets were removed"
		for _, name := range []api.TaskID{"takes-patch", "takes-output"} {
			if got := task(t, run, name).Message; !strings.Contains(got, why) {
				t.Errorf("task %s says %q", name, got)
			}
		}
		leaks, fine := string(task(t, run, "leaks").DispatchID), string(task(t, run, "fine").DispatchID)
		if p := w.show(leaks).Outcome.Patch; p == nil || !p.Redacted {
			t.Errorf("the patch is %+v", p)
		}
		w.refused(1, []string{why}, "dispatch", "apply", leaks, "--repo", w.path("repo"))
		w.refused(1, []string{why}, "run", "apply", string(id), "leaks", "--repo", w.path("repo"))
		w.must("dispatch", "apply", fine, "--repo", w.path("repo"))
		w.verifyEvidence(string(id), "--with-blobs")
	})
}
