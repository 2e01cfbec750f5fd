package webpage

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/webpage/patch"
)

const (
	patchRows = 3000   // lines of all files on a page
	fileRows  = 20_000 // of one file that was asked for
)

// patchPage is the patch of an attempt.
type patchPage struct {
	api.Dispatch
	Diff     *patch.Patch
	Size     int64
	Redacted bool
	Partial  bool
	Raw      string
	All      string // shows all files; set if one is shown
	List     []patchFile
	One      bool
}

// patchFile is a file on a page.
type patchFile struct {
	*patch.File

	Number int // from 1
	Link   string
	Shown  bool // its hunks are on the page
	Left   int  // lines that are not, of a file that was asked for
}

// ID is the name of the part of the page.
func (f patchFile) ID() string { return "file-" + decimal(f.Number) }

// Moved reports whether the path before it is another.
func (f patchFile) Moved() bool { return f.Change == patch.Renamed || f.Change == patch.Copied }

// patchOf shows the patch of an attempt by file. file=N shows all of one file.
func (s *dispatchPages) patchOf(r *http.Request) (*view, error) {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	one, err := number(given(r), "file", 0, 1, patch.MaxFiles)
	if err != nil {
		return nil, err
	}
	p := &patchPage{Dispatch: d, Diff: &patch.Patch{}, Raw: strings.Replace(rawLog(r), "/log/raw", "/patch/raw", 1)}
	if d.Outcome != nil && d.Outcome.Patch != nil {
		a := d.Outcome.Patch
		p.Size, p.Redacted, p.Partial = a.Size, a.Redacted, d.Outcome.Partial
		var text head
		if err := s.runtime(r.Context()).Patch(r.Context(), d.ID, d.Attempt, &text); err != nil {
			return nil, err
		}
		p.Diff = patch.Parse(text.kept)
		p.Diff.Unread += int(a.Size) - len(text.kept)
	}
	if one > len(p.Diff.Files) {
		return nil, api.Errorf(api.CodeNotFound, "the patch has %d files", len(p.Diff.Files))
	}
	left := patchRows
	for i := range p.Diff.Files {
		f := patchFile{File: &p.Diff.Files[i], Number: i + 1, Link: linkWith(r, "file", decimal(i+1))}
		if one > 0 {
			if f.Shown = one == f.Number; f.Shown {
				f.Left = bound(f.File, fileRows)
			}
		} else if n := rows(f.File); !f.Folded && n <= left {
			f.Shown, left = true, left-n
		}
		p.List = append(p.List, f)
	}
	if one > 0 {
		p.One, p.All = true, linkWith(r, "file", "")
		p.List = p.List[one-1 : one]
	}
	return &view{"patch", "Patch of " + string(d.ID), p}, nil
}

// head keeps the first patch.MaxPatch bytes of a patch.
type head struct{ kept []byte }

func (h *head) Write(b []byte) (int, error) {
	h.kept = append(h.kept, b[:min(len(b), patch.MaxPatch-len(h.kept))]...)
	return len(b), nil
}

func rows(f *patch.File) (n int) {
	for i := range f.Hunks {
		n += 1 + len(f.Hunks[i].Lines)
	}
	return n
}

// bound cuts a file to a number of lines, and returns how many were left out.
func bound(f *patch.File, most int) (left int) {
	for i := range f.Hunks {
		h := &f.Hunks[i]
		n := min(len(h.Lines), most)
		left, most = left+len(h.Lines)-n, most-n
		h.Lines = h.Lines[:n]
	}
	return left
}

// rawPatch downloads the exact patch, for git apply.
func (s *dispatchPages) rawPatch(w http.ResponseWriter, r *http.Request) error {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return err
	}
	return attachment(w, r, string(d.ID)+".patch", func(ctx context.Context, to io.Writer) error {
		return s.runtime(r.Context()).Patch(ctx, d.ID, d.Attempt, to)
	})
}
