package capture

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// The encoding of an index: a magic line, the object format, the commit object, the
// entries, and a checksum against accidents, not attackers. Numbers are eight
// bytes, little endian; strings follow their lengths.
const (
	indexMagic  = "bailiwick index 1\n"
	indexFields = 9 // numbers of an entry, before its object name and path
)

// Encode returns the encoding of x.
func (x *Index) Encode() []byte {
	b := []byte(indexMagic)
	put := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	put(uint64(len(x.format)))
	b = append(b, x.format...)
	put(uint64(len(x.commit)))
	b = append(b, x.commit...)
	put(uint64(len(x.entries)))
	for i := range x.entries {
		e := &x.entries[i]
		for _, v := range [indexFields]int64{
			int64(e.mode), int64(e.ino), e.bytes, e.mtime.Sec, e.mtime.Nsec, e.ctime.Sec, e.ctime.Nsec, int64(len(e.id)), int64(len(e.path)), //nolint:gosec // G115: the bits are kept
		} {
			put(uint64(v)) //nolint:gosec // G115: the bits are kept
		}
		b = append(b, e.id...)
		b = append(b, e.path...)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// DecodeIndex decodes an index. The error is ErrDamaged when b is malformed.
func DecodeIndex(b []byte) (*Index, error) {
	body := b[:max(0, len(b)-sha256.Size)]
	if sum := sha256.Sum256(body); !bytes.HasPrefix(body, []byte(indexMagic)) || !bytes.Equal(sum[:], b[len(body):]) {
		return nil, fmt.Errorf("index: %w", ErrDamaged)
	}
	x := &Index{}
	if err := x.decode(&indexReader{rest: string(body[len(indexMagic):])}); err != nil {
		return nil, fmt.Errorf("index: %w: %w", ErrDamaged, err)
	}
	return x, nil
}

func (x *Index) decode(r *indexReader) error {
	x.format = r.text(r.number())
	x.commit = []byte(r.text(r.number()))
	n := r.number()
	if n > uint64(len(r.rest)/(8*indexFields)) {
		return errors.New("more entries than bytes")
	}
	x.entries, x.files, x.dirs = make([]indexed, 0, n), make(map[string]int, n), map[string]int{}
	for range n {
		var f [indexFields]uint64
		for i := range f {
			f[i] = r.number()
		}
		e := indexed{id: r.text(f[7]), path: r.text(f[8]), stamp: stamp{
			mode: uint32(f[0]), ino: f[1], bytes: int64(f[2]), //nolint:gosec // G115: the bits are kept
			mtime: unix.Timespec{Sec: int64(f[3]), Nsec: int64(f[4])}, //nolint:gosec // G115: likewise
			ctime: unix.Timespec{Sec: int64(f[5]), Nsec: int64(f[6])}, //nolint:gosec // G115: likewise
		}}
		e.dir = e.mode&unix.S_IFMT == unix.S_IFDIR
		if strings.HasPrefix(e.path, "/") || (e.path == "") != (len(x.entries) == 0) {
			return fmt.Errorf("path %s", Printable(e.path))
		}
		if e.dir {
			x.dirs[e.path] = len(x.entries)
		} else {
			x.files[e.path] = len(x.entries)
		}
		if later(e.ctime, x.newest) {
			x.newest = e.ctime
		}
		x.entries = append(x.entries, e)
	}
	if r.short || r.rest != "" || len(x.entries) == 0 || x.format != "sha1" && x.format != "sha256" {
		return errors.New("malformed")
	}
	return nil
}

// indexReader decodes an index. Its strings share memory with the input.
type indexReader struct {
	rest  string
	short bool // the input ended early
}

func (r *indexReader) number() uint64 {
	var b [8]byte
	copy(b[:], r.text(8))
	return binary.LittleEndian.Uint64(b[:])
}

func (r *indexReader) text(n uint64) string {
	if n > uint64(len(r.rest)) {
		r.short, r.rest = true, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}
