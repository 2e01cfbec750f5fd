// Package patch reads a patch of git for a page: files, hunks and lines with numbers,
// with marks on what a reviewer should see first. Parse never fails: what is no patch
// is shown as a problem of its file, and never as something else.
//
// Patches were written by agents. Each byte is read a fixed number of times, the number
// of lines that are kept is bounded, and what hides in a line or a path is spelled out
// by internal/base/visibletext.
package patch

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

const (
	// MaxPatch is how many bytes of a patch are read.
	MaxPatch = 32 << 20
	// MaxLines is how many lines are kept, of all files.
	MaxLines = 200_000
	// MaxFiles is how many files are kept.
	MaxFiles = 10_000
	// MaxLine is how many bytes of a line are shown.
	MaxLine = 2000
	// manyLines is from how many lines a file is folded.
	manyLines = 400
)

// Change says what a patch does to a file.
type Change string

// The changes.
const (
	Added    Change = "added"
	Modified Change = "modified"
	Deleted  Change = "deleted"
	Renamed  Change = "renamed"
	Copied   Change = "copied"
)

// Patch is what a patch does.
type Patch struct {
	Files          []File
	Added, Removed int    // lines
	Unread         int    // bytes beyond MaxPatch or MaxFiles
	Problem        string // of text before the first file
}

// File is what a patch does to one file.
type File struct {
	Path, Old        string // Old: before a rename or copy, else equal
	Change           Change
	OldMode, NewMode string // of git, such as 100644; empty: not in the patch
	Binary           bool
	Hunks            []Hunk
	Added, Removed   int
	Omitted          int        // lines beyond MaxLines
	Hidden           int        // characters that hide, move or command something, in added lines and the path
	Marks            []Mark     // why a reviewer should look
	Folded           bool       // large or generated: shown on demand
	Digest           api.Digest // of its part of the patch
	Problem          string     // what in it is not a patch of git
}

// Hunk is a part of a file.
type Hunk struct {
	Header string // behind the ranges: the function, as git guesses it
	Range  string // as in the patch: -1,3 +1,4
	Lines  []Line
}

// Kind is what a line of a hunk does.
type Kind string

// The kinds.
const (
	KindContext Kind = "context"
	KindAdded   Kind = "added"
	KindRemoved Kind = "removed"
	KindNote    Kind = "note" // \ No newline at end of file
)

// Line is a line of a hunk.
type Line struct {
	Kind     Kind
	Old, New int // its numbers, from 1; 0: not in that version
	text     []byte
}

// Parts is the text of a line as shown, and how many bytes are not.
func (l Line) Parts() []visibletext.Part {
	return visibletext.Parts(string(cuttext.Within(l.text, MaxLine)))
}

// Cut is how many bytes of a line are not shown.
func (l Line) Cut() int { return len(l.text) - len(cuttext.Within(l.text, MaxLine)) }

// PathParts is the path as shown.
func (f *File) PathParts() []visibletext.Part { return visibletext.Parts(oneLine(f.Path)) }

// OldParts is the path before a rename as shown.
func (f *File) OldParts() []visibletext.Part { return visibletext.Parts(oneLine(f.Old)) }

// oneLine spells the line ends and tabs of a path as git does.
func oneLine(path string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(path) }

var fileStart = []byte("diff --git ") //nolint:gochecknoglobals // nothing writes it

// Parse reads a patch. The result refers to text.
func Parse(text []byte) *Patch {
	p := &parser{patch: &Patch{}, left: MaxLines, rules: rules()}
	if len(text) > MaxPatch {
		p.patch.Unread = len(text) - MaxPatch
		text = text[:MaxPatch]
	}
	p.text = text
	for len(p.text) > 0 && !bytes.HasPrefix(p.text, fileStart) {
		if line := p.next(); len(line) > 0 && p.patch.Problem == "" {
			p.patch.Problem = "text before the first file is not part of a patch: " + quoted(line)
		}
	}
	for len(p.text) > 0 {
		if len(p.patch.Files) == MaxFiles {
			p.patch.Unread += len(p.text)
			break
		}
		p.file()
	}
	return p.patch
}

type parser struct {
	patch *Patch
	text  []byte // that is left
	left  int    // lines that can be kept
	rules []rule // that mark paths
}

// next takes a line, without its end.
func (p *parser) next() []byte {
	line, rest, _ := bytes.Cut(p.text, []byte("\n"))
	p.text = rest
	return line
}

// peek reports whether the next line begins with a text.
func (p *parser) peek(prefix string) bool { return bytes.HasPrefix(p.text, []byte(prefix)) }

func quoted(line []byte) string { return fmt.Sprintf("%.120q", line) }

// file takes a file: its header and its hunks.
func (p *parser) file() {
	begin := p.text
	f := File{Change: Modified}
	named := pathsOf(string(p.next()[len(fileStart):]))
	f.Old, f.Path = named[0], named[1]
	p.header(&f)
	for len(p.text) > 0 && !bytes.HasPrefix(p.text, fileStart) {
		if p.peek("@@ ") && !f.Binary {
			p.hunk(&f)
		} else if line := p.next(); len(line) > 0 && f.Problem == "" && !f.Binary {
			f.Problem = "not part of a patch: " + quoted(line)
		}
	}
	f.Digest = api.DigestOf(begin[:len(begin)-len(p.text)])
	f.finish(p.rules)
	p.patch.Added, p.patch.Removed = p.patch.Added+f.Added, p.patch.Removed+f.Removed
	p.patch.Files = append(p.patch.Files, f)
}

// header takes the lines between the name of a file and its first hunk.
func (p *parser) header(f *File) {
	for len(p.text) > 0 && !bytes.HasPrefix(p.text, fileStart) && !p.peek("@@ ") {
		line := string(p.next())
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "new file mode "):
			f.Change, f.NewMode = Added, line[len("new file mode "):]
		case strings.HasPrefix(line, "deleted file mode "):
			f.Change, f.OldMode = Deleted, line[len("deleted file mode "):]
		case strings.HasPrefix(line, "old mode "):
			f.OldMode = line[len("old mode "):]
		case strings.HasPrefix(line, "new mode "):
			f.NewMode = line[len("new mode "):]
		case strings.HasPrefix(line, "rename from "), strings.HasPrefix(line, "copy from "):
			f.Old = unquote(strings.TrimPrefix(rest, "from "))
		case strings.HasPrefix(line, "rename to "), strings.HasPrefix(line, "copy to "):
			f.Path, f.Change = unquote(strings.TrimPrefix(rest, "to ")), map[string]Change{"rename": Renamed, "copy": Copied}[word]
		case word == "index":
			if _, mode, ok := strings.Cut(rest, " "); ok {
				f.OldMode, f.NewMode = mode, mode
			}
		case word == "---":
			f.side(rest, "a/", f.Old)
		case word == "+++":
			f.side(rest, "b/", f.Path)
		case strings.HasPrefix(line, "Binary files "), line == "GIT binary patch":
			f.Binary = true
			return // data in an alphabet that cannot begin a file
		case strings.HasPrefix(line, "similarity index "), strings.HasPrefix(line, "dissimilarity index "), line == "":
		default:
			if f.Problem == "" {
				f.Problem = "not part of a patch: " + quoted([]byte(line))
			}
		}
	}
}

// side compares the path of a --- or +++ line with that of the file.
func (f *File) side(text, prefix, path string) {
	if text == "/dev/null" {
		return
	}
	if !strings.HasPrefix(text, `"`) {
		text = strings.TrimSuffix(text, "\t") // git ends a path that has a space so
	}
	got, ok := strings.CutPrefix(unquote(text), prefix)
	switch {
	case path == "" && ok:
		if f.Path = got; f.Old == "" {
			f.Old = got
		}
	case got != path && f.Problem == "":
		f.Problem = fmt.Sprintf("it names two paths: %.120q and %.120q", path, got)
	}
}

// hunk takes a hunk. The ranges of its header say how many lines it has, so that no line
// of a file can look like the start of a hunk or of a file.
func (p *parser) hunk(f *File) {
	head := string(p.next())
	ranges, header, ok := strings.Cut(strings.TrimPrefix(head, "@@ "), " @@")
	before, after, two := strings.Cut(ranges, " ")
	oldAt, oldLeft, okOld := rangeOf(before, "-")
	newAt, newLeft, okNew := rangeOf(after, "+")
	if !ok || !two || !okOld || !okNew {
		if f.Problem == "" {
			f.Problem = "not the header of a hunk: " + quoted([]byte(head))
		}
		return
	}
	h := Hunk{Range: ranges, Header: strings.TrimSpace(header)}
	lines := 0
	defer func() { f.keep(&p.left, h, lines) }()
	for len(p.text) > 0 && (oldLeft > 0 || newLeft > 0 || p.peek(`\`)) {
		line := Line{text: p.next()}
		mark := byte(' ') // an empty line of context, as some tools write it
		if len(line.text) > 0 {
			mark, line.text = line.text[0], line.text[1:]
		}
		switch {
		case mark == ' ' && oldLeft > 0 && newLeft > 0:
			line.Kind, line.Old, line.New = KindContext, oldAt, newAt
		case mark == '+' && newLeft > 0:
			line.Kind, line.New = KindAdded, newAt
			f.Added++
			f.Hidden += hidden(line.text)
		case mark == '-' && oldLeft > 0:
			line.Kind, line.Old = KindRemoved, oldAt
			f.Removed++
		case mark == '\\':
			line.Kind = KindNote
		default:
			if f.Problem == "" {
				f.Problem = "not a line of its hunk: " + quoted(append([]byte{mark}, line.text...))
			}
			return
		}
		if line.Old > 0 || line.Kind == KindContext {
			oldAt, oldLeft = oldAt+1, oldLeft-1
		}
		if line.New > 0 || line.Kind == KindContext {
			newAt, newLeft = newAt+1, newLeft-1
		}
		if lines++; len(h.Lines) < p.left {
			h.Lines = append(h.Lines, line)
		}
	}
	if (oldLeft > 0 || newLeft > 0) && f.Problem == "" {
		f.Problem = "the patch ends within a hunk"
	}
}

// keep adds a hunk of that many lines; h has the lines that fit.
func (f *File) keep(left *int, h Hunk, lines int) {
	f.Omitted += lines - len(h.Lines)
	*left -= len(h.Lines)
	if len(h.Lines) > 0 {
		f.Hunks = append(f.Hunks, h)
	}
}

// rangeOf reads -1,3 or -1.
func rangeOf(s, mark string) (first, count int, ok bool) {
	s, ok = strings.CutPrefix(s, mark)
	at, n, several := strings.Cut(s, ",")
	first, err := strconv.Atoi(at)
	count = 1
	if several && err == nil {
		count, err = strconv.Atoi(n)
	}
	return max(first, 1), count, ok && err == nil && first >= 0 && count >= 0 && first <= 1<<31 && count <= 1<<31
}

// hidden counts the characters of a line that are not shown as they are. The end of a
// line in the way of Windows does not count.
func hidden(line []byte) (n int) {
	for _, part := range visibletext.Parts(string(bytes.TrimSuffix(line, []byte("\r")))) {
		if part.Hidden != "" {
			n++
		}
	}
	return n
}

// pathsOf reads the two paths of a diff --git line. Where they cannot be told apart they
// are empty, and later lines name them.
func pathsOf(s string) [2]string {
	if strings.HasPrefix(s, `"`) {
		n := quotedLength(s)
		first, second := unquote(s[:n]), unquote(strings.TrimPrefix(s[n:], " "))
		return [2]string{strings.TrimPrefix(first, "a/"), strings.TrimPrefix(second, "b/")}
	}
	if at := strings.Index(s, ` "b/`); at >= 0 && strings.HasSuffix(s, `"`) {
		return [2]string{strings.TrimPrefix(s[:at], "a/"), strings.TrimPrefix(unquote(s[at+1:]), "b/")}
	}
	// Without a rename both paths are the same.
	if half := len(s) / 2; len(s)%2 == 1 && s[half] == ' ' && strings.HasPrefix(s, "a/") && strings.HasPrefix(s[half+1:], "b/") && s[2:half] == s[half+3:] {
		return [2]string{s[2:half], s[2:half]}
	}
	return [2]string{}
}

// quotedLength is the length of the quoted text that s begins with.
func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// unquote reads a path as git quotes it; any other text stays as it is.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	body, out := s[1:len(s)-1], make([]byte, 0, len(s))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' || i+1 == len(body) {
			out = append(out, body[i])
			continue
		}
		i++
		if at := strings.IndexByte(`abtnvfr"\`, body[i]); at >= 0 {
			out = append(out, "\a\b\t\n\v\f\r\"\\"[at])
			continue
		}
		n, err := strconv.ParseUint(body[i:min(i+3, len(body))], 8, 8)
		if err != nil {
			out = append(out, '\\', body[i])
			continue
		}
		out = append(out, byte(n))
		i += 2
	}
	return string(out)
}
