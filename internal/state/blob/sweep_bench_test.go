package blob

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkFiles is what listing 50,000 blobs with their sizes costs.
func BenchmarkFiles(b *testing.B) {
	s, err := Create(Config{Dir: filepath.Join(b.TempDir(), "store")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const n = 50_000
	for i := range n {
		if err := os.WriteFile(s.Path(api.DigestOf(fmt.Appendf(nil, "%d", i))), []byte("x"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		found := 0
		if err := s.Files(b.Context(), func(File) error { found++; return nil }); err != nil || found != n {
			b.Fatal(found, err)
		}
	}
}
