package worker

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"os"
	"path/filepath"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// boundedLog keeps the first bytes that the jail writes and counts the rest.
// It never makes the jail wait for anyone but the disk, and never fails it: a
// log that cannot be written is counted as dropped.
type boundedLog struct {
	limit int64
	tell  func(kept int64)

	mu      sync.Mutex
	file    *os.File  // guarded by mu
	sum     hash.Hash // of what is kept; guarded by mu
	written int64     // guarded by mu
	kept    int64     // guarded by mu
}

func newBoundedLog(dir string, limit int64, tell func(int64)) (*boundedLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, record.WorkLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	return &boundedLog{file: f, limit: limit, tell: tell, sum: sha256.New()}, nil
}

func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written += int64(len(p))
	keep := p[:min(int64(len(p)), l.limit-l.kept)]
	n, err := l.file.Write(keep)
	l.sum.Write(keep[:n])
	l.kept += int64(n)
	if err != nil {
		l.limit = l.kept
	}
	if n > 0 {
		l.tell(l.kept)
	}
	return len(p), nil
}

// close returns how much was written, how much of it is kept, and the digest
// of that.
func (l *boundedLog) close() (written, kept int64, digest api.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close()
	return l.written, l.kept, api.Digest("sha256:" + hex.EncodeToString(l.sum.Sum(nil)))
}
