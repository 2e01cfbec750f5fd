package inforce

import (
	"os"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// A set of deploy keys that the one before signed is in force, and in the log, before anything
// is decided by it; the older set is refused from then on, after a restart too. Controls: the
// new set stays in force, and a trust.json that root replaced is followed.
//
// proves R-B5
func TestOlderDeployKeysAreRefusedAfterARestartToo(t *testing.T) {
	w := newWorld(t)
	w.sign(1)
	w.current(1)
	r := w.open()
	if n := w.number(r); n != 1 || w.entries(record.KindCatalogKeys) != 0 {
		t.Fatalf("revision %d", n)
	}
	first := must[seal.TrustRoot](t)(seal.LoadDeployKeys(w.cfg.Dirs))
	other := must[seal.Signer](t)(seal.NewEphemeral())
	both := seal.RootOf(seal.KeyOf(w.signer, "ann"), seal.KeyOf(other, "bob"))
	payload := must[[]byte](t)(first.NextDeploySet(both, time.Now()))
	envelope := must[[]byte](t)(seal.Sign(t.Context(), seal.DeploySet, payload, w.signer))
	w.write(w.cfg.Dirs.TrustChain(), append(envelope, '\n'))
	for range 2 {
		if n := w.number(r); n != 1 {
			t.Fatalf("revision %d under the new set", n)
		}
		r = w.open()
	}
	if n := w.entries(record.KindCatalogKeys); n != 1 {
		t.Errorf("%d entries of one new set", n)
	}
	w.signer = other // a revision by the key that the chain brought
	w.sign(2)
	w.current(2)
	if n := w.number(r); n != 2 {
		t.Errorf("revision %d, signed by the new key", n)
	}
	if err := os.Remove(w.cfg.Dirs.TrustChain()); err != nil {
		t.Fatal(err)
	}
	w.refused(r, "set 1 is older than set 2")
	w.refused(w.open(), "set 1 is older than set 2")
	w.write(w.cfg.Dirs.TrustRoot(), must[[]byte](t)(both.Encode()))
	if n := w.number(w.open()); n != 2 {
		t.Errorf("revision %d under root's new set", n)
	}
}
