// Package mountinfo reads where the kernel has mounted what, as in mountinfo(5),
// and tells by which other names a directory can be reached.
//
// It reads one file of /proc and changes nothing. It carries the part of R-S1 that
// a private place is recognised under another name.
package mountinfo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line of mountinfo.
type Mount struct {
	Device string // major:minor of the file system
	Root   string // the directory of that file system that is shown
	Point  string // where
}

// Table lists mounts, one for each point: the last, which covers earlier ones.
type Table []Mount

// Read returns the mounts of this process. Other systems than Linux have none.
func Read() (Table, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if runtime.GOOS != "linux" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(string(text))
}

// Parse parses the text of mountinfo.
func Parse(text string) (t Table, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			return nil, fmt.Errorf("line of mountinfo %q: want at least 6 fields", line)
		}
		t = append(t, Mount{Device: fields[2], Root: unescape(fields[3]), Point: unescape(fields[4])})
	}
	last := map[string]int{}
	for i, m := range t {
		last[m.Point] = i
	}
	var top Table
	for i, m := range t {
		if last[m.Point] == i {
			top = append(top, m)
		}
	}
	return top, nil
}

// unescape replaces the octal escapes of mountinfo(5).
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// Below reports whether something is mounted below dir.
func (t Table) Below(dir string) bool {
	return slices.ContainsFunc(t, func(m Mount) bool { _, ok := rest(m.Point, dir); return ok && m.Point != dir })
}

// Names returns the other names of p and of what is mounted below it. p is clean,
// absolute and goes through no symbolic link. Left out are names by mounts below
// /run, /proc, /sys and /dev, where containers show the whole of another view.
func (t Table) Names(p string) (names []string) {
	at := t.holds(p)
	if at == nil {
		return nil
	}
	below, _ := rest(p, at.Point)
	places := []Mount{{at.Device, path.Join(at.Root, below), p}}
	for _, m := range t {
		if _, ok := rest(m.Point, p); ok && m.Point != p {
			places = append(places, m)
		}
	}
	for _, place := range places {
		for _, m := range t {
			below, ok := rest(place.Root, m.Root)
			if !ok || m.Device != place.Device || apart(m.Point) {
				continue
			}
			if name := path.Join(m.Point, below); name != place.Point && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func apart(point string) bool {
	return slices.ContainsFunc([]string{"/run", "/proc", "/sys", "/dev"}, func(dir string) bool {
		_, ok := rest(point, dir)
		return ok && point != dir
	})
}

// holds returns the mount that p is on.
func (t Table) holds(p string) (at *Mount) {
	for i := range t {
		if _, ok := rest(p, t[i].Point); ok && (at == nil || len(t[i].Point) > len(at.Point)) {
			at = &t[i]
		}
	}
	return at
}

// rest returns the part of p below dir, and whether p is dir or below it.
func rest(p, dir string) (string, bool) {
	if dir == "/" || p == dir {
		return strings.TrimPrefix(p, dir), strings.HasPrefix(p, dir)
	}
	return strings.CutPrefix(p, dir+"/")
}
