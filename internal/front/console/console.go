// Package console is the shared command-line layer of the programs: it runs a
// command tree, reads arguments, writes output and generates documentation.
//
// An answer goes to standard output as text, json, jsonl or name; everything
// else goes to standard error. Text that others wrote reaches a terminal only
// through Plain, AgentLog, Content or JSON, so it can neither steer the terminal
// nor look like a line of Bailiwick's own (R-D7). The package speaks to no service, holds no
// key and starts no program but the user's pager.
package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Output is where a command writes its answer, and in which format.
type Output struct {
	Format      string     // text, json, jsonl or name
	Stdout      io.Writer  // the answer
	Stderr      io.Writer  // everything else
	Screen      bool       // Stdout is a terminal
	Terminal    bool       // Stderr is a terminal: progress may be redrawn
	Interactive bool       // standard input is a terminal
	Width       func() int // of that terminal now, in columns; 0: unknown
	Height      func() int // of that terminal now, in rows; 0: unknown
	Env         []string   // of the process
	NoPager     bool       // never start a pager
	UTC         bool       // times are shown in UTC
	Now         func() time.Time
}

// labelWidth is the width of the column of labels that Row writes.
const labelWidth = 11

// Row prints a label and a value. Further lines of the value are aligned below
// its first one.
func (o *Output) Row(label, format string, args ...any) {
	value := o.wrap(Plain(fmt.Sprintf(format, args...)))
	fmt.Fprintf(o.Stdout, "%-*s %s\n", labelWidth, label, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", labelWidth+1)))
}

// OptionalRow is Row for a value that may be empty; then it prints nothing.
func (o *Output) OptionalRow(label, format, value string) {
	if value != "" {
		o.Row(label, format, value)
	}
}

// Rows prints a label with n values, one per line.
func (o *Output) Rows(label string, n int, value func(int) string) {
	for i := range n {
		o.Row(label, "%s", value(i))
		label = ""
	}
}

// JSON prints v as one JSON value: indented for json, else on one line.
func (o *Output) JSON(v any) error {
	b, err := o.JSONText(v, o.Format != "json")
	if err == nil {
		_, err = o.Stdout.Write(b)
	}
	return err
}

// Emit prints the answer of a command: value as JSON, id as its name, or what
// text prints. An answer without an id is printed as JSON for -o name too.
func (o *Output) Emit(value any, id string, text func()) error {
	switch {
	case o.Format == "text":
		text()
		return nil
	case o.Format == "name" && id != "":
		_, err := fmt.Fprintln(o.Stdout, Plain(id))
		return err
	}
	return o.JSON(value)
}

// List prints a list: as a table with a row per item, as JSON, or by name.
// head and row separate their columns with tabs. On a terminal a row is cut to
// its width.
func List[T any](o *Output, list []T, name func(T) string, head string, row func(T) string) error {
	switch o.Format {
	case "json":
		return o.JSON(append([]T{}, list...))
	case "jsonl", "name":
		for _, item := range list {
			if err := o.Emit(item, name(item), nil); err != nil {
				return err
			}
		}
		return nil
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, item := range list {
		fmt.Fprintln(w, plainLine(row(item)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(o.Stdout, o.Fit(table.String()))
	return err
}

// Fit cuts the lines of a table to the width of the terminal, if it is shown on
// one.
func (o *Output) Fit(table string) string {
	width, _ := o.Size()
	if !o.Screen || width == 0 {
		return table
	}
	var b strings.Builder
	for line := range strings.Lines(table) {
		b.WriteString(Cut(strings.TrimSuffix(line, "\n"), width) + "\n")
	}
	return b.String()
}

// Size is the size of the terminal now; 0 means unknown.
func (o *Output) Size() (width, height int) {
	if o.Width != nil {
		width = o.Width()
	}
	if o.Height != nil {
		height = o.Height()
	}
	return width, height
}

// Dumb reports whether the terminal cannot be redrawn.
func (o *Output) Dumb() bool { return o.variable("TERM") == "dumb" }

// Colour reports whether text on a terminal may be coloured: the terminal
// understands it, and NO_COLOR is not set.
func (o *Output) Colour() bool { return !o.Dumb() && o.variable("NO_COLOR") == "" }

// variable returns a variable of the environment.
func (o *Output) variable(name string) string {
	value, _ := o.Lookup(name)
	return value
}

// Lookup returns a variable of the environment, and whether it is set.
func (o *Output) Lookup(name string) (string, bool) {
	for _, kv := range slices.Backward(o.Env) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
