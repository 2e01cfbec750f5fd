package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// checkpoint is the newest one, verified with nothing but the public key.
func (w *world) checkpoint() note.Checkpoint {
	w.t.Helper()
	key, err := seal.LoadPublic(w.path("state/bailiwick/service.key"))
	must(w.t, err)
	status, signed := w.call(http.MethodGet, "/v1/operator/log/checkpoint", "", nil)
	if status != http.StatusOK {
		w.t.Fatalf("checkpoint: %d %s", status, signed)
	}
	c, _, err := note.Open(signed, seal.LogOrigin(key.ID), key.Public)
	must(w.t, err)
	return c
}

// proved fetches the proof of an entry and verifies it against the entry's
// bytes.
func (w *world) proved(entry uint64, leaf []byte) {
	w.t.Helper()
	key, err := seal.LoadPublic(w.path("state/bailiwick/service.key"))
	must(w.t, err)
	status, file := w.call(http.MethodGet, fmt.Sprintf("/v1/operator/log/proof?entry=%d", entry), "", nil)
	if status != http.StatusOK {
		w.t.Fatalf("proof of entry #%d: %d %s", entry, status, file)
	}
	p, err := note.ParseProof(file)
	must(w.t, err)
	c, _, err := note.Open(p.Signed, seal.LogOrigin(key.ID), key.Public)
	must(w.t, err)
	if p.Index != entry {
		w.t.Errorf("a proof of entry #%d for #%d", p.Index, entry)
	}
	must(w.t, note.VerifyInclusion(c, entry, note.LeafHash(leaf), p.Hashes))
	if note.VerifyInclusion(c, entry, note.LeafHash(append(leaf, ' ')), p.Hashes) == nil {
		w.t.Errorf("control: the proof of entry #%d holds for another", entry)
	}
}

// lines are the entries as the service sends them.
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

// proves R-A1, R-A5: every entry of a running service is proved to whoever has
// its public key, and the log's files are served by their names.
func TestEveryEntryOfAServiceIsProvedByItsPublicKey(t *testing.T) {
	w := newWorld(t, 0)
	w.up()
	all := w.lines()
	if len(all) == 0 {
		t.Fatal("the log is empty")
	}
	for _, l := range all {
		w.proved(l.Seq, l.Leaf)
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

// A kill at each step of the feeder, and of a tree that is built again: the
// next service has the same log, and every entry is proved.
//
// proves R-A1, R-A2
func TestAKillAtEachStepOfTheTreeLosesNothing(t *testing.T) {
	for _, at := range []failpoint.Name{failpoint.LogFeed, failpoint.LogFed, failpoint.LogSigned, failpoint.LogPublished, failpoint.LogWipe, failpoint.LogWiped} {
		t.Run(string(at), func(t *testing.T) {
			k := newTrial(t, 0, 7)
			k.up(func() {})
			before := k.lines()
			k.proved(before[0].Seq, before[0].Leaf)
			if at == failpoint.LogWipe || at == failpoint.LogWiped {
				k.killService()
				must(t, os.Remove(k.path("state/bailiwick/log/tree/.state/treeState")))
				k.arm(string(at) + " 1 kill")
				if k.up(func() {}) == 0 {
					t.Error("nobody was killed")
				}
			} else {
				k.arm(string(at) + " 1 kill")
				_ = k.ask(http.MethodPost, "/v1/operator/gc", nil, nil) // an entry; it may be answered
				<-k.current().ended
				k.up(func() {})
			}
			after := k.lines()
			for i, l := range before {
				if string(after[i].Leaf) != string(l.Leaf) {
					t.Errorf("entry #%d is another", i)
				}
			}
			for _, l := range after {
				k.proved(l.Seq, l.Leaf)
			}
		})
	}
}

// proves R-A1: a state that was set back to an older copy is a refusal to
// start, and both lengths are named; a tree that was removed is none.
func TestAStateThatWasSetBackIsARefusalToStart(t *testing.T) {
	w := newWorld(t, 0)
	w.up()
	w.must("down")
	keep := t.TempDir()
	must(t, os.CopyFS(keep, os.DirFS(w.path("state/bailiwick/store"))))
	w.must("up")
	was := w.lines()
	w.must("down")
	must(t, os.RemoveAll(w.path("state/bailiwick/log")))
	w.must("up") // the control
	for _, l := range was {
		w.proved(l.Seq, l.Leaf)
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
	if d := w.try("up"); d.status == 0 || !strings.Contains(d.stderr, "the log was cut") {
		t.Errorf("it started: %s", d)
	}
}
