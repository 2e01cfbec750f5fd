package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// proves R-D7
func TestTheLogIsBoundedAndTheRestIsCounted(t *testing.T) {
	dir := t.TempDir()
	var told int64
	l, err := newBoundedLog(dir, 10, func(kept int64) { told = kept })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"12345", "67890abc", strings.Repeat("x", 1<<20)} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("wrote %d, %v: a full log must not fail the jail", n, err)
		}
	}
	written, kept, digest := l.close()
	if written != 13+1<<20 || kept != 10 || told != 10 || digest != api.DigestOf([]byte("1234567890")) {
		t.Errorf("written %d, kept %d, told %d, digest %s", written, kept, told, digest)
	}
	if b, err := os.ReadFile(filepath.Join(dir, record.WorkLog)); err != nil || string(b) != "1234567890" {
		t.Errorf("log = %q, %v", b, err)
	}
}

func TestOneWorkerHasADirectory(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil {
		t.Error("a second worker has it too")
	}
	unlock()
	again, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
