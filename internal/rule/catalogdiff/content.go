package catalogdiff

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Bounds of the content that is shown. Comparing is O(n log n) in the lines that it reads,
// so they bound the work too.
const (
	MaxContent  = 256 << 10 // bytes of a file, before and after each
	MaxContents = 8 << 20   // of all files that are read
	MaxFileDiff = 64 << 10  // bytes of the diff of a file
	MaxDiffs    = 1 << 20   // of all of them
)

// Contents reads the content of a file of a capability.
type Contents func(api.File) ([]byte, error)

// ShowContents adds to each added or changed file of the changes how its content changes,
// within the bounds, or says what is not shown. Files of capabilities with a line that
// widens authority come first, so that many others do not use up the bounds.
func ShowContents(d api.CatalogDiff, before, after *catalog.Set, was, is Contents) {
	s := &contents{was: was, is: is, read: MaxContents, show: MaxDiffs}
	at := map[api.Ref]int{}
	for i := range d.Changes {
		at[d.Changes[i].Ref] = i
	}
	for _, c := range widenedFirst(d) {
		kind, name, err := c.Ref.Split()
		if err != nil || kind != api.KindCapability || c.Op == api.OpRemove {
			continue
		}
		old := map[string]api.File{}
		if before != nil {
			old = filesOf(before.Capabilities[name])
		}
		now := filesOf(after.Capabilities[name])
		fields := d.Changes[at[c.Ref]].Fields
		for i := range fields {
			path, ok := strings.CutPrefix(fields[i].Field, "files/")
			if f, has := now[path]; ok && has {
				o, had := old[path]
				s.file(&fields[i], o, f, had)
			}
		}
	}
}

func filesOf(c api.Capability) map[string]api.File {
	all := map[string]api.File{}
	for _, f := range c.Files {
		all[f.Path] = f
	}
	return all
}

// contents is what is left of the bounds, in bytes.
type contents struct {
	was, is    Contents
	read, show int64
}

func (s *contents) file(f *api.FieldChange, old, now api.File, had bool) {
	switch {
	case had && old.Digest == now.Digest:
		f.Unshown = "its content has not changed"
		return
	case max(old.Size, now.Size) > MaxContent:
		f.Unshown = fmt.Sprintf("it is larger than %d bytes", MaxContent)
		return
	case s.read < old.Size+now.Size:
		f.Unshown = fmt.Sprintf("the changed files together are larger than %d bytes", MaxContents)
		return
	}
	s.read -= old.Size + now.Size
	var before []byte
	if had {
		b, why := s.text(s.was, old)
		if why != "" {
			f.Unshown = "before the change " + why
			return
		}
		before = b
	}
	after, why := s.text(s.is, now)
	if why != "" {
		f.Unshown = why
		return
	}
	f.Text, f.Unshown = s.cut(unified(before, after))
}

// text returns the content of a file, or why it cannot be shown.
func (s *contents) text(read Contents, f api.File) (b []byte, why string) {
	b, err := read(f)
	switch {
	case err != nil:
		return nil, fmt.Sprintf("it cannot be read: %v", err)
	case api.DigestOf(b) != f.Digest:
		return nil, "it cannot be read: its content has another digest"
	case bytes.IndexByte(b, 0) >= 0:
		return nil, "it is binary"
	case !utf8.Valid(b):
		return nil, "it is no UTF-8 text"
	}
	return b, ""
}

// unified returns the diff of two texts without the lines that name them.
func unified(before, after []byte) string {
	text := string(diff.Diff("before", before, "after", after))
	for range 3 {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// cut returns the whole lines of a diff that are within the bounds, and says how much it
// omits.
func (s *contents) cut(text string) (shown, omitted string) {
	most := min(MaxFileDiff, s.show)
	if int64(len(text)) > most {
		n := strings.LastIndexByte(text[:most], '\n') + 1
		text, omitted = text[:n], fmt.Sprintf("%d of %d bytes of its diff: too long", len(text)-n, len(text))
	}
	s.show -= int64(len(text))
	return text, omitted
}
