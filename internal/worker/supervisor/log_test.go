package supervisor

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// What is kept is the beginning and the end, in order, within the limit; what is
// between is counted. A full log never fails or stops the jail.
//
// proves R-D7
func TestLogKeepsItsBeginningAndEnd(t *testing.T) {
	parent, n := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(parent, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		limit := rapid.Int64Range(8, 200).Draw(t, "limit")
		var told int64
		l, err := newBoundedLog(dir, limit, func(n int64) { told = n })
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			b := rapid.SliceOfN(rapid.Byte(), 0, 90).Draw(t, "bytes")
			if n, err := l.Write(b); n != len(b) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(b), err)
			}
			all = append(all, b...)
		}
		written, kept := l.close()
		if written != int64(len(all)) || told != written {
			t.Fatalf("%d written, %d counted, %d told", len(all), written, told)
		}
		onDisk, err := os.ReadDir(filepath.Join(dir, record.WorkLog))
		if err != nil || len(onDisk) != len(kept) {
			t.Fatalf("parts %v, on disk %v: %v", kept, onDisk, err)
		}
		var size, end, gaps int64
		for _, p := range kept {
			b, err := os.ReadFile(filepath.Join(dir, record.WorkLog, record.LogFile(p)))
			if err != nil || !bytes.Equal(b, all[p.Offset:p.Offset+p.Size]) || p.Digest != api.DigestOf(b) {
				t.Fatalf("part at %d: %v", p.Offset, err)
			}
			if p.Offset != end {
				gaps++
			}
			size, end = size+p.Size, p.Offset+p.Size
		}
		part := limit / 8
		switch {
		case size > limit || end != written || gaps > 1:
			t.Fatalf("limit %d: %d kept up to %d of %d with %d gaps", limit, size, end, written, gaps)
		case written <= part*8 && size != written:
			t.Fatalf("limit %d: only %d of %d kept", limit, size, written)
		case written > part*8 && (kept[0].Offset != 0 || size <= part*7):
			t.Fatalf("limit %d: %d kept of %d", limit, size, written)
		}
	})
}

// The verify command's output gets parts of its own, whose files say so.
func TestLogKeepsTheVerifyOutputApart(t *testing.T) {
	dir := t.TempDir()
	l, err := newBoundedLog(dir, 80, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"agent", "", "judge of ten and more"} {
		if text == "" {
			l.beginVerify()
		}
		if _, err := l.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	written, kept := l.close()
	if written != 26 || len(kept) != 4 {
		t.Fatalf("%d bytes in %+v", written, kept)
	}
	for i, p := range kept {
		if p.Verify != (i > 0) {
			t.Errorf("part %d: %+v", i, p)
		}
		back, ok := record.ParseLogFile(record.LogFile(p))
		if _, err := os.Stat(filepath.Join(dir, record.WorkLog, record.LogFile(p))); err != nil || !ok || back.Offset != p.Offset || back.Verify != p.Verify {
			t.Errorf("part %d: %v, %+v", i, err, back)
		}
	}
	for _, name := range []string{"", "1", "0000000000000001.", "0000000000000001.verify.verify", "-000000000000001", "0000000000000001.VERIFY"} {
		if _, ok := record.ParseLogFile(name); ok {
			t.Errorf("%q is the name of a part", name)
		}
	}
}
