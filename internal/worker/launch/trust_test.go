package launch

import (
	"os"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// The set of deploy keys that the one before signed counts for the launcher, and from then on
// no other: the replaced key signs nothing more, and the older set is refused by the launcher's
// own mark, also after its restart. Control: the same attempt starts under the new set.
//
// proves R-B5, R-P4
func TestTheLauncherFollowsASignedSetOfDeployKeys(t *testing.T) {
	w, p := newSystemWorld(t)
	l := p.given(w.launcher())
	if _, err := w.start(l, w.attempt(w.manifest("edit"))); err != nil {
		t.Fatal(err)
	}
	old, next := w.deployKey, newKey(t)
	both := seal.TrustRoot{V: 1, Threshold: 1, Keys: []seal.Key{seal.KeyOf(old, "ann"), seal.KeyOf(next, "bob")}}
	only := seal.RootOf(seal.KeyOf(next, "bob"))
	change := func(root seal.TrustRoot, by seal.Signer) {
		t.Helper()
		payload, err := w.root.NextDeploySet(root, time.Now())
		must(t, err)
		envelope, err := seal.Sign(t.Context(), seal.DeploySet, payload, by)
		must(t, err)
		w.root, err = seal.AppendDeploySet(w.dirs, envelope)
		must(t, err)
	}
	change(both, old)
	w.deployKey = next
	w.apply(testManifest + "  - {principal: \"local:bob\", subagents: [edit], targets: [local], ceiling: observe}\n")
	change(only, next)
	if _, err := w.start(l, w.attempt(w.manifest("edit"))); err != nil {
		t.Fatalf("under the new set: %v", err)
	}
	// A revision by the replaced key: the store's writer can put it there.
	w.deployKey, w.root = old, both
	w.apply(testManifest + "  - {principal: \"local:eve\", subagents: [edit], targets: [local], ceiling: observe}\n")
	m := w.manifest("edit")
	_, err := w.start(l, w.attempt(m))
	refused(t, err, api.CodeIntegrity, "signed only by keys that are not in the trust root")
	// The attacker takes the chain back, so that the old key counts again.
	must(t, os.Remove(w.dirs.TrustChain()))
	for _, l := range []*Launcher{l, w.launcher()} {
		_, err = w.start(l, w.attempt(m))
		refused(t, err, api.CodeIntegrity, "set 1 is older than set 3")
	}
}
