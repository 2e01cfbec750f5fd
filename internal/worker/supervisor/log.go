package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"os"
	"path/filepath"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// boundedLog keeps the beginning and the end of what the jail writes, half of
// its limit each, and counts the rest. It is written in parts: those of the
// beginning stay, and at the end the newest replaces the oldest. It never makes
// the jail wait for anything but the disk, and never fails: a log that cannot be
// written is counted as dropped.
type boundedLog struct {
	dir  string
	size int64 // of a part
	grew func(written int64)

	mu      sync.Mutex
	head    []api.LogPart // complete parts of the beginning; guarded by mu
	tail    []api.LogPart // complete parts of the end; guarded by mu
	file    *os.File      // of the current part, or nil; guarded by mu
	sum     hash.Hash     // of the current part; guarded by mu
	part    api.LogPart   // the current part; guarded by mu
	written int64         // guarded by mu
	verify  bool          // the verify command writes; guarded by mu
	broken  bool          // writing failed: nothing more is kept; guarded by mu
}

// logParts is how many parts the beginning has, and the end.
const logParts = 4

func newBoundedLog(dir string, limit int64, grew func(int64)) (*boundedLog, error) {
	dir = filepath.Join(dir, record.WorkLog)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return &boundedLog{dir: dir, size: max(1, limit/(2*logParts)), grew: grew}, nil
}

func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := l.keep(rest)
		l.written += int64(n)
		rest = rest[n:]
	}
	l.grew(l.written)
	return len(p), nil
}

// keep writes as much of p as fits into the current part, and returns how much of p
// it has handled.
func (l *boundedLog) keep(p []byte) int {
	if l.file == nil && !l.broken {
		l.begin()
	}
	if l.broken {
		return len(p)
	}
	n, err := l.file.Write(p[:min(int64(len(p)), l.size-l.part.Size)])
	l.sum.Write(p[:n])
	l.part.Size += int64(n)
	if err != nil {
		l.broken = true
	}
	if l.part.Size == l.size || l.broken {
		l.end()
	}
	return n
}

// begin starts a part. At the end of the log it replaces the oldest.
func (l *boundedLog) begin() {
	if len(l.tail) == logParts {
		if err := os.Remove(filepath.Join(l.dir, record.LogFile(l.tail[0]))); err != nil {
			l.broken = true
			return
		}
		l.tail = l.tail[1:]
	}
	part := api.LogPart{Offset: l.written, Verify: l.verify}
	f, err := os.OpenFile(filepath.Join(l.dir, record.LogFile(part)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		l.broken = true
		return
	}
	l.file, l.sum, l.part = f, sha256.New(), part
}

func (l *boundedLog) end() {
	if l.file == nil {
		return
	}
	_ = l.file.Close() // the service reads it again and compares the digest
	l.file = nil
	l.part.Digest = api.Digest("sha256:" + hex.EncodeToString(l.sum.Sum(nil)))
	if len(l.head) < logParts {
		l.head = append(l.head, l.part)
	} else {
		l.tail = append(l.tail, l.part)
	}
}

// beginVerify says that what follows is the verify command's. It gets parts of its
// own, so that what the agent wrote cannot pass for it.
func (l *boundedLog) beginVerify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.verify = true
}

// close returns how much was written, and the parts that are kept.
func (l *boundedLog) close() (written int64, kept []api.LogPart) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	return l.written, append(l.head, l.tail...)
}
