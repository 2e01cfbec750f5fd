package dispatch

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// readCatalog has the service read the catalog of its directory, which may not exist.
func (g gate) readCatalog(t testing.TB) {
	t.Helper()
	c := &g.cfg
	var err error
	if c.InForce, err = inforce.Open(t.Context(), inforce.Config{Dirs: c.Dirs, Store: c.Store, Ledger: c.Ledger, Operator: c.Operator, Logger: c.Logger}); err != nil {
		t.Fatal(err)
	}
}
