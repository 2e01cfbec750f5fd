package report

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// UseNewer is what to do about evidence that matches canon.ErrNewer.
const UseNewer = "if a newer version of bailiwick made this, verify it with bailiwick-verify of that version"

// Finding collects what a row reports.
type Finding struct {
	Checked int    // things verified
	Absent  string // why nothing could be checked, if so
	Right   string // the text of the row if it passes

	wrong []string // the first failures
	more  int      // failures beyond those
	newer bool     // a newer version may have made what a failure is about
}

const maxWrong = 3

// Fail adds a failure.
func (f *Finding) Fail(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && errors.Is(err, canon.ErrNewer) {
			f.newer = true
		}
	}
	if len(f.wrong) < maxWrong {
		f.wrong = append(f.wrong, cuttext.Text(fmt.Sprintf(format, args...), 500))
	} else {
		f.more++
	}
}

// Failed reports whether there is a failure.
func (f *Finding) Failed() bool { return len(f.wrong) > 0 }

// Add merges o into f.
func (f *Finding) Add(o *Finding) {
	f.Checked, f.more, f.newer = f.Checked+o.Checked, f.more+o.more, f.newer || o.newer
	for _, w := range o.wrong {
		f.Fail("%s", w)
	}
}

// Row returns the row.
func (f *Finding) Row(name RowName) Row {
	switch {
	case f.Failed():
		why := strings.Join(f.wrong, "; ")
		if f.more > 0 {
			why += fmt.Sprintf("; and %d more", f.more)
		}
		if f.newer {
			why += "; " + UseNewer
		}
		return Row{name, Fail, why}
	case f.Absent != "":
		return Row{name, NA, f.Absent}
	case f.Checked == 0:
		return Row{name, NA, "nothing to check"}
	}
	return Row{name, Pass, f.Right}
}

// Findings are the findings of all rows.
type Findings map[RowName]*Finding

// NewFindings returns findings without content.
func NewFindings() Findings {
	f := Findings{}
	for _, name := range RowNames() {
		f[name] = &Finding{}
	}
	return f
}
