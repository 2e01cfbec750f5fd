// Sweep looks for keys in everything that its account can read: files, and the
// arguments, environment, descriptors and memory of every process. A test runs it in a
// jail, beside an agent.
//
//	sweep MARK DIGEST...
//
// A key is MARK followed by 32 characters, and DIGEST the SHA-256 of a whole key in
// hexadecimal, so sweep finds no key in itself. It prints a line "found N PLACE" for each
// place of the N-th key, and then what it has read.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// chunk is how much is read at once.
const chunk = 4 << 20

// keyTail is the length of a key behind its mark.
const keyTail = 32

type sweep struct {
	mark    []byte
	digests map[string]int // number of a key, from 1
	found   map[string]bool
	read    map[string]int // pieces read, by kind
	bytes   int64
	buf     []byte
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sweep MARK DIGEST...")
		os.Exit(2)
	}
	s := &sweep{mark: []byte(os.Args[1]), digests: map[string]int{}, found: map[string]bool{}, read: map[string]int{}, buf: make([]byte, chunk)}
	for i, d := range os.Args[2:] {
		s.digests[d] = i + 1
	}
	s.processes()
	s.files("/")
	fmt.Printf("swept %d files, %d argument lists, %d environments, %d descriptors, %d memory maps, %d MiB\n",
		s.read["file"], s.read["cmdline"], s.read["environ"], s.read["fd"], s.read["memory"], s.bytes>>20)
}

// note looks for keys in r, which place names.
func (s *sweep) note(kind, place string, r io.Reader) {
	s.read[kind]++
	kept := 0
	for {
		n, err := io.ReadFull(r, s.buf[kept:])
		s.bytes += int64(n)
		s.look(kind, place, s.buf[:kept+n])
		if err != nil {
			return
		}
		// A key may lie across two chunks.
		kept = copy(s.buf, s.buf[len(s.buf)-len(s.mark)-keyTail+1:])
	}
}

func (s *sweep) look(kind, place string, b []byte) {
	for {
		i := bytes.Index(b, s.mark)
		if i < 0 || i+len(s.mark)+keyTail > len(b) {
			return
		}
		sum := sha256.Sum256(b[i : i+len(s.mark)+keyTail])
		if n := s.digests[hex.EncodeToString(sum[:])]; n > 0 {
			line := fmt.Sprintf("found %d %s %s", n, kind, place)
			if !s.found[line] {
				fmt.Println(line)
			}
			s.found[line] = true
		}
		b = b[i+1:]
	}
}

func (s *sweep) file(kind, path string) {
	f, err := os.Open(path) //nolint:gosec // G304: it sweeps every path
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // only read
	// A directory may list a device as the file that it is mounted on.
	if i, err := f.Stat(); err == nil && i.Mode().IsRegular() {
		s.note(kind, path, f)
	}
}

func (s *sweep) processes() {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		// Threads may have arguments, environments and descriptors of their own.
		tasks, _ := filepath.Glob(dir + "/task/[0-9]*")
		for _, d := range append(tasks, dir) {
			s.file("cmdline", d+"/cmdline")
			s.file("environ", d+"/environ")
			fds, _ := filepath.Glob(d + "/fd/[0-9]*")
			for _, fd := range fds {
				s.file("fd", fd)
			}
		}
		s.memory(dir)
	}
}

// memory reads every readable map of a process.
func (s *sweep) memory(dir string) {
	maps, err := os.ReadFile(dir + "/maps") //nolint:gosec // G304: likewise
	if err != nil {
		return
	}
	mem, err := os.Open(dir + "/mem") //nolint:gosec // G304: likewise
	if err != nil {
		return
	}
	defer mem.Close()                       //nolint:errcheck // only read
	pages, err := os.Open(dir + "/pagemap") //nolint:gosec // G304: likewise
	if err != nil {
		return
	}
	defer pages.Close() //nolint:errcheck // only read
	for line := range strings.Lines(string(maps)) {
		span, rest, _ := strings.Cut(line, " ")
		from, to, _ := strings.Cut(span, "-")
		a, err1 := strconv.ParseInt(from, 16, 64)
		b, err2 := strconv.ParseInt(to, 16, 64)
		if err1 == nil && err2 == nil && strings.HasPrefix(rest, "r") {
			s.present(dir+" "+span, mem, pages, a, b)
		}
	}
}

// present reads the pages of a map that exist: programs reserve much more than they use.
func (s *sweep) present(place string, mem, pages io.ReaderAt, from, to int64) {
	page := int64(os.Getpagesize())
	flags := make([]byte, (to-from)/page*8)
	if _, err := pages.ReadAt(flags, from/page*8); err != nil {
		s.note("memory", place, io.NewSectionReader(mem, from, to-from))
		return
	}
	start := int64(-1)
	for at := from; at <= to; at += page {
		// Bit 63: in memory; bit 62: swapped out.
		there := at < to && flags[(at-from)/page*8+7]&0xC0 != 0
		switch {
		case there && start < 0:
			start = at
		case !there && start >= 0:
			s.note("memory", place, io.NewSectionReader(mem, start, at-start))
			start = -1
		}
	}
}

// files reads every regular file below root.
func (s *sweep) files(root string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // closed to this account
			return nil //nolint:nilerr // and so out of reach
		case path == "/proc" || path == "/sys":
			return filepath.SkipDir
		case d.Type().IsRegular():
			s.file("file", path)
		}
		return nil
	})
}
