package deploycli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (p *program) formatFlag(v *console.Verb) {
	p.format = "text"
	v.Flag(&p.format, "output")
	v.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"text", "json", "name"}, p.format) {
			return console.BadFormat(cmd, p.format, "text, json or name")
		}
		return nil
	}
}

// answer writes the answer of a command in the requested format.
func (p *program) answer(value any, text func(*out), names ...string) error {
	o := &out{colour: p.Colour, fit: p.o.Fit}
	switch p.format {
	case "", "text":
		text(o)
	case "name":
		for _, name := range names {
			o.line(name)
		}
	default:
		b, err := p.o.JSONText(value, false)
		if err != nil {
			return err
		}
		o.b.Write(b)
	}
	_, err := io.WriteString(p.Stdout, o.b.String())
	return err
}

// each returns the name of each item of a list.
func each[T any](list []T, name func(T) string) []string {
	names := make([]string, len(list))
	for i, item := range list {
		names[i] = name(item)
	}
	return names
}

// out builds an answer as text.
type out struct {
	b      strings.Builder
	colour bool
	fit    func(table string) string // to the terminal; may be nil
}

func (o *out) line(s string) { o.b.WriteString(s + "\n") }

func (o *out) linef(format string, args ...any) { o.line(fmt.Sprintf(format, args...)) }

func (o *out) row(name, value string) { o.linef("%-12s %s", name, visible(value)) }

// table writes a table of visible cells.
func (o *out) table(head []string, rows [][]string) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.Join(head, "\t")) // into memory
	for _, r := range rows {
		for i := range r {
			r[i] = visible(r[i])
		}
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush()
	text := table.String()
	if o.fit != nil {
		text = o.fit(text)
	}
	o.b.WriteString(text)
}

// paint colours text, if colour is on. Colour never carries meaning alone.
func (o *out) paint(code, s string) string {
	if !o.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// visible makes text that others wrote part of a line: what could steer a terminal or hide
// something is escaped.
func visible(s string) string { return console.Line(s) }
