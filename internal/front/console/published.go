package console

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// maxIndex bounds how much of a catalog's index is read, in bytes.
const maxIndex = 32 << 20

// Published reports whether a catalog has a revision, so that a missing trust root was
// lost: a new one cannot verify it. It verifies nothing, and an index that cannot be read
// counts as one with revisions.
func Published(catalog string) bool {
	path := filepath.Join(catalog, "index.json")
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Size() > maxIndex {
		return err == nil
	}
	b, err := os.ReadFile(path) //nolint:gosec // G304: in the catalog
	var index struct {
		Manifests []json.RawMessage `json:"manifests"`
	}
	return err != nil || json.Unmarshal(b, &index) != nil || len(index.Manifests) > 0
}
