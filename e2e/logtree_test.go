package e2e

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// serviceKey is the public key of the service.
func (w *world) serviceKey() seal.Key {
	w.t.Helper()
	key, err := seal.ParsePublic([]byte(w.read("state/bailiwick/service.key.pub")))
	must(w.t, err)
	return key
}

// checkpoint returns the newest checkpoint, verified with the public key.
func (w *world) checkpoint() logproof.Checkpoint {
	w.t.Helper()
	key := w.serviceKey()
	status, signed := w.call(http.MethodGet, "/v1/operator/log/checkpoint", "", nil)
	if status != http.StatusOK {
		w.t.Fatalf("checkpoint: %d %s", status, signed)
	}
	c, _, err := logproof.Open(signed, seal.LogOrigin(key.ID), key.Public)
	must(w.t, err)
	return c
}

// verifyProof fetches the proof of an entry and verifies it for the entry's bytes.
func (w *world) verifyProof(entry uint64, leaf []byte) {
	w.t.Helper()
	key := w.serviceKey()
	status, file := w.call(http.MethodGet, fmt.Sprintf("/v1/operator/log/proof?entry=%d", entry), "", nil)
	if status != http.StatusOK {
		w.t.Fatalf("proof of entry #%d: %d %s", entry, status, file)
	}
	p, err := logproof.ParseProof(file)
	must(w.t, err)
	c, _, err := logproof.Open(p.Signed, seal.LogOrigin(key.ID), key.Public)
	must(w.t, err)
	if p.Index != entry {
		w.t.Errorf("got the proof of entry #%d, want #%d", p.Index, entry)
	}
	must(w.t, logproof.VerifyInclusion(c, entry, logproof.LeafHash(leaf), p.Hashes))
	if logproof.VerifyInclusion(c, entry, logproof.LeafHash(append(leaf, ' ')), p.Hashes) == nil {
		w.t.Errorf("control: the proof of entry #%d verifies another entry", entry)
	}
}

// lines returns the entries as the service sends them.
func (w *world) lines() (all []api.LogLine) {
	w.t.Helper()
	status, body := w.call(http.MethodGet, "/v1/operator/log", "", nil)
	if status != http.StatusOK {
		w.t.Fatalf("log: %d %s", status, body)
	}
	for text := range strings.Lines(string(body)) {
		var l api.LogLine
		must(w.t, json.Unmarshal([]byte(text), &l))
		all = append(all, l)
	}
	return all
}

// proves R-A1, R-A5: every entry of a running service verifies with its public
// key, and the service serves the files of the log.
func TestEveryEntryVerifiesWithTheServicePublicKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.setUp()
	w.up()
	all := w.lines()
	if len(all) == 0 {
		t.Fatal("the log is empty")
	}
	for _, l := range all {
		w.verifyProof(l.Seq, l.Leaf)
	}
	c := w.checkpoint()
	if s := w.status(); s.Log == nil || s.Log.Origin != c.Origin || s.Log.Checkpoint < uint64(len(all)) || s.Log.CheckpointAt == nil || s.Log.Error != "" || !s.Ready {
		t.Errorf("status %+v", s.Log)
	}
	for name, want := range map[string]int{
		fmt.Sprintf("tile/0/000.p/%d", c.Size): http.StatusOK, fmt.Sprintf("tile/entries/000.p/%d", c.Size): http.StatusOK, "checkpoint": http.StatusOK,
		"tile/0/001": http.StatusNotFound, "../service.key": http.StatusNotFound, "..%2f..%2fservice.key": http.StatusNotFound, "tree/.state/treeState": http.StatusNotFound,
	} {
		if status, body := w.call(http.MethodGet, "/v1/operator/log/tiles/"+name, "", nil); status != want && status/100 != 3 || strings.Contains(string(body), "PRIVATE") {
			t.Errorf("%s: %d %.100s", name, status, body)
		}
	}
	for query, want := range map[string]int{"": http.StatusBadRequest, "?entry=x": http.StatusBadRequest, "?entry=-1": http.StatusBadRequest, "?entry=99999": http.StatusNotFound} {
		if status, body := w.call(http.MethodGet, "/v1/operator/log/proof"+query, "", nil); status != want {
			t.Errorf("proof%s: %d %s", query, status, body)
		}
	}
}

// The service is killed at each step of the feeder and of a rebuild. The next
// service has the same log, and every entry has a proof.
//
// proves R-A1, R-A2
func TestTheTreeSurvivesAKillAtEachStep(t *testing.T) {
	t.Parallel()
	for _, at := range []failpoint.Name{failpoint.LogFeed, failpoint.LogFed, failpoint.LogSigned, failpoint.LogPublished, failpoint.LogWipe, failpoint.LogWiped} {
		t.Run(string(at), func(t *testing.T) {
			k := newTrial(t, 0, 7)
			k.up(func() {})
			before := k.lines()
			k.verifyProof(before[0].Seq, before[0].Leaf)
			if at == failpoint.LogWipe || at == failpoint.LogWiped {
				k.killService()
				must(t, os.Remove(k.path("state/bailiwick/log/tree/.state/treeState")))
				k.arm(string(at) + " 1 kill")
				if k.up(func() {}) == 0 {
					t.Error("the service was not killed")
				}
			} else {
				k.arm(string(at) + " 1 kill")
				_ = k.ask(http.MethodPost, "/v1/operator/gc", nil, nil) // writes an entry; the answer may be lost
				<-k.current().ended
				k.up(func() {})
			}
			after := k.lines()
			for i, l := range before {
				if string(after[i].Leaf) != string(l.Leaf) {
					t.Errorf("entry #%d changed", i)
				}
			}
			for _, l := range after {
				k.verifyProof(l.Seq, l.Leaf)
			}
		})
	}
}

// betweenPoints returns the kill points that are used between rounds: those of a
// rebuild and of a key rotation.
func betweenPoints() []failpoint.Name {
	return []failpoint.Name{failpoint.LogWipe, failpoint.LogWiped, failpoint.RotateKey, failpoint.RotateLogged, failpoint.RotateListed, failpoint.RotateTaken}
}

// killBetween kills the service at one of betweenPoints while nothing else runs.
func (k *trial) killBetween(name failpoint.Name, sum *tally) {
	k.t.Helper()
	who := "service"
	if strings.HasPrefix(string(name), "rotate.") {
		who = "rotation"
		k.must("down")
		<-k.current().ended
		k.arm(string(name) + " 1 kill")
		if d := k.exec(filepath.Join(k.bin, "bailiwickd"), "key", "rotate"); d.status != 0 {
			sum.kills[who+" "+string(name)]++
			sum.reached[name] = true
		}
		k.arm()
	} else {
		k.killService()
		sum.kills["service blindly"]++
		must(k.t, os.Remove(k.path("state/bailiwick/log/tree/.state/treeState")))
		k.arm(string(name) + " 1 kill")
	}
	killed := k.up(k.noteCheckpoint)
	k.arm()
	sum.restarts += 1 + killed
	if killed > 0 {
		sum.kills[who+" "+string(name)] += killed
		sum.reached[name] = true
	}
}

// configure writes the service's configuration, with two anchors at the shortest
// interval.
func (k *trial) configure(rest string) {
	k.t.Helper()
	k.mkdir("disk")
	if _, err := os.Stat(k.path("anchors.git")); err != nil {
		k.git(".", "init", "-q", "--bare", k.path("anchors.git"))
		k.git("anchors.git", "config", "receive.denyNonFastForwards", "true")
		k.git("anchors.git", "config", "receive.denyDeletes", "true")
	}
	k.write("config/bailiwick/service.yaml", "version: 1\nanchors:\n"+
		"  - {name: disk, kind: file, path: "+k.path("disk/high-water")+", every: 1s}\n"+
		"  - {name: history, kind: git, repository: \"file://"+k.path("anchors.git")+"\", every: 1s}\n"+rest, 0o600)
}

// noteCheckpoint records the checkpoint that is signed now. A reader may have
// passed it on, so it must stay valid.
func (k *trial) noteCheckpoint() {
	signed, err := os.ReadFile(k.path("state/bailiwick/log/checkpoint"))
	if errors.Is(err, fs.ErrNotExist) && len(k.signed) == 0 {
		return
	}
	if err != nil {
		k.forked = append(k.forked, "LOST: the checkpoint: "+err.Error())
		return
	}
	k.forked = append(k.forked, addCheckpoint(k.signed, signed)...)
}

// addCheckpoint adds a checkpoint to those seen, and returns its contradictions.
func addCheckpoint(seen map[uint64][]byte, signed []byte) (bad []string) {
	c, err := logproof.Peek(signed)
	if err != nil {
		return []string{fmt.Sprintf("UNTRUE: a checkpoint %q: %v", signed, err)}
	}
	if before, ok := seen[c.Size]; ok {
		if was, err := logproof.Peek(before); err != nil || was != c {
			return []string{fmt.Sprintf("UNTRUE: two checkpoints of %d entries: %q and %q", c.Size, before, signed)}
		}
		return nil
	}
	for size := range seen {
		if size > c.Size {
			bad = append(bad, fmt.Sprintf("UNTRUE: the checkpoint went from %d entries back to %d", size, c.Size))
		}
	}
	seen[c.Size] = signed
	return bad
}

// contradictions compares checkpoints with the entries of a log: each is signed
// by one of the keys, and has the root of its first entries.
func contradictions(signed map[uint64][]byte, log []entry, origin string, keys []ed25519.PublicKey) (bad []string) {
	sum := logproof.NewRange()
	for i := 0; ; i++ {
		if text, ok := signed[sum.Size()]; ok {
			root, err := sum.Root()
			c, _, err2 := logproof.Open(text, origin, keys...)
			if err = errors.Join(err, err2); err != nil || c.Root != root {
				bad = append(bad, fmt.Sprintf("UNTRUE: the checkpoint of %d entries is not one of this log: %q, %v", sum.Size(), text, err))
			}
		}
		if i == len(log) {
			break
		}
		if err := sum.Add(logproof.LeafHash([]byte(log[i].leaf))); err != nil {
			return append(bad, err.Error())
		}
	}
	for size := range signed {
		if size > uint64(len(log)) {
			bad = append(bad, fmt.Sprintf("LOST: a checkpoint of %d entries was signed, and there are %d", size, len(log)))
		}
	}
	return bad
}

// anchored returns the checkpoints that the trial's anchors hold. In a short
// campaign no service may have lived long enough to anchor one, so it waits for
// the current one to do so.
func (k *trial) anchored() (list [][]byte) {
	k.t.Helper()
	if missing := settled(func() (missing []string) {
		if _, err := os.Stat(k.path("disk/high-water")); err != nil {
			missing = append(missing, err.Error())
		}
		if k.git("anchors.git", "rev-list", "--all") == "" {
			missing = append(missing, "anchors.git has no commit")
		}
		return missing
	}); missing != nil {
		k.t.Fatalf("nothing is anchored: %s", missing)
	}
	b, err := os.ReadFile(k.path("disk/high-water"))
	must(k.t, err)
	for line := range strings.Lines(string(b)) {
		if signed, _, err := receipt.ParseLine([]byte(line)); err == nil {
			list = append(list, signed)
		} else if line != "\n" && json.Valid([]byte(line)) { // a kill within a write leaves a part of a line, which readers skip
			k.forked = append(k.forked, fmt.Sprintf("UNTRUE: a line of an anchor's file: %q", line))
		}
	}
	for commit := range strings.Lines(k.git("anchors.git", "rev-list", "--all")) {
		list = append(list, []byte(k.git("anchors.git", "show", strings.TrimSpace(commit)+":checkpoint")+"\n")) // the helper trims it
	}
	return list
}

// logFaults returns what is wrong with the log after a campaign. The entries must
// be those that were read meanwhile, every checkpoint that was seen or anchored
// must be one of the log, and the service's own checks must pass.
func (k *trial) logFaults(seen []entry) (bad []string) {
	k.t.Helper()
	log := k.log(-1)
	bad = append(changed(seen, log), gaps(log)...)
	if wrong := settled(func() []string {
		k.noteCheckpoint()
		if k.signed[uint64(len(log))] == nil && len(k.log(len(log)-1)) == 0 {
			return []string{fmt.Sprintf("LOST: no checkpoint covers %d entries", len(log))}
		}
		return nil
	}); len(wrong) > 0 {
		bad = append(bad, wrong...)
	}
	log = k.log(-1)
	k.noteCheckpoint()
	for _, signed := range k.anchored() {
		c, err := logproof.Peek(signed)
		must(k.t, err)
		if have, ok := k.signed[c.Size]; !ok {
			k.signed[c.Size] = signed // not seen before
		} else if was, err := logproof.Peek(have); err != nil || was != c {
			bad = append(bad, fmt.Sprintf("UNTRUE: an anchor was given another checkpoint of %d entries", c.Size))
		}
	}
	h := k.keys()
	var keys []ed25519.PublicKey
	for _, p := range h.Keys {
		keys = append(keys, p.Key.Public)
	}
	bad = slices.Concat(bad, k.forked, contradictions(k.signed, log, seal.LogOrigin(h.First().ID), keys), unattested(log))
	if d := k.try("audit", "verify", "--log"); d.status != 0 || !strings.Contains(d.stdout, "verified against the signed root: ") {
		bad = append(bad, "UNTRUE: audit verify: "+d.String())
	}
	k.t.Logf("%d checkpoints by %d keys were seen of %d entries", len(k.signed), len(keys), len(log))
	return bad
}

// unattested returns the ended dispatches that do not have exactly one attestation.
func unattested(log []entry) (bad []string) {
	over, stated := map[string]bool{}, map[string]int{}
	for _, e := range log {
		switch e.Kind {
		case "dispatch.finished", "dispatch.failed", "dispatch.cancelled":
			over[e.Dispatch] = true
		case "dispatch.attested":
			stated[e.Dispatch]++
		}
	}
	for id := range over {
		if stated[id] != 1 {
			bad = append(bad, fmt.Sprintf("LOST or DOUBLED: dispatch %s ended with %d attestations", id, stated[id]))
		}
	}
	for id := range stated {
		if !over[id] {
			bad = append(bad, fmt.Sprintf("UNTRUE: dispatch %s is attested but has not ended", id))
		}
	}
	return bad
}

// Positive control of the kill harness: its checks of checkpoints detect planted
// faults.
func TestCheckpointChecksDetectPlantedFaults(t *testing.T) {
	t.Parallel()
	key, err := seal.NewEphemeral()
	must(t, err)
	other, err := seal.NewEphemeral()
	must(t, err)
	origin := seal.LogOrigin(key.KeyID())
	public := []ed25519.PublicKey{key.Public()}
	var log []entry
	for i := range 9 {
		log = append(log, entry{Seq: uint64(i), leaf: fmt.Sprint("entry ", i), Kind: "dispatch.finished", Dispatch: fmt.Sprint(i % 3)})
	}
	sign := func(by seal.Signer, log []entry) []byte {
		sum := logproof.NewRange()
		for _, e := range log {
			must(t, sum.Add(logproof.LeafHash([]byte(e.leaf))))
		}
		root, err := sum.Root()
		must(t, err)
		signed, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: origin, Size: sum.Size(), Root: root}, by)
		must(t, err)
		return signed
	}
	forked := slices.Clone(log)
	forked[2].leaf += "!"
	for name, c := range map[string]struct {
		signed []byte
		log    []entry
		want   string
	}{
		"the log":             {sign(key, log), log, ""},
		"as it was once":      {sign(key, log[:4]), log, ""},
		"another entry":       {sign(key, forked[:4]), log, "not one of this log"},
		"a foreign key":       {sign(other, log[:4]), log, "not one of this log"},
		"a log that was cut":  {sign(key, log), log[:8], "there are 8"},
		"what is no note":     {[]byte("x"), log, "not one of this log"},
		"a log without a gap": {sign(key, log), slices.Delete(slices.Clone(log), 3, 4), "there are 8"},
	} {
		size := uint64(4)
		if cp, err := logproof.Peek(c.signed); err == nil {
			size = cp.Size
		}
		bad := strings.Join(contradictions(map[uint64][]byte{size: c.signed}, c.log, origin, public), "\n")
		if (bad == "") != (c.want == "") || !strings.Contains(bad, c.want) {
			t.Errorf("%s: %q", name, bad)
		}
	}
	seen := map[uint64][]byte{}
	for _, c := range []struct {
		signed []byte
		good   bool
	}{{sign(key, log[:4]), true}, {sign(key, log[:6]), true}, {sign(key, log[:6]), true}, {sign(key, forked[:6]), false}, {sign(key, log[:5]), false}, {[]byte("x"), false}} {
		if bad := addCheckpoint(seen, c.signed); (len(bad) == 0) != c.good {
			t.Errorf("%q: %q", c.signed, bad)
		}
	}
	if len(unattested(log)) != 3 {
		t.Error("dispatches without an attestation are not detected")
	}
	for i := range 3 {
		log = append(log, entry{Kind: "dispatch.attested", Dispatch: fmt.Sprint(i)})
	}
	if bad := unattested(log); len(bad) != 0 || len(unattested(append(log, log[9]))) != 1 || len(unattested(append(log, entry{Kind: "dispatch.attested", Dispatch: "x"}))) != 1 {
		t.Errorf("statements: %q", bad)
	}
}

// proves R-A1: a state restored from an older copy is refused at start, and the
// message names both lengths. A missing tree is not refused.
func TestAnOlderStateIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.setUp()
	w.up()
	w.must("down")
	keep := t.TempDir()
	must(t, os.CopyFS(keep, os.DirFS(w.path("state/bailiwick/store"))))
	w.must("up")
	was := w.lines()
	w.must("down")
	must(t, os.RemoveAll(w.path("state/bailiwick/log")))
	w.must("up") // control
	for _, l := range was {
		w.verifyProof(l.Seq, l.Leaf)
	}
	w.must("down")
	must(t, os.RemoveAll(w.path("state/bailiwick/store")))
	must(t, os.CopyFS(w.path("state/bailiwick/store"), os.DirFS(keep)))
	must(t, filepath.WalkDir(w.path("state/bailiwick/store"), func(name string, d fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		if err == nil && d.IsDir() {
			mode = 0o700
		}
		return errors.Join(err, os.Chmod(name, mode))
	}))
	if d := w.try("up"); d.status == 0 || !strings.Contains(d.stderr, "the log was truncated") {
		t.Errorf("the service started: %s", d)
	}
}
