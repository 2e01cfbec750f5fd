package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *dispatchVerbs) networkCommand(v *console.Verb) {
	var attempt int
	var refused bool
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		read := func(each func(api.NetworkLine) error) error { return r.Network(ctx, id, attempt, refused, each) }
		if t.Format != "text" && t.Format != "json" {
			return read(func(l api.NetworkLine) error { return t.JSON(l) })
		}
		list := []api.NetworkLine{}
		if err := read(func(l api.NetworkLine) error { list = append(list, l); return nil }); err != nil {
			return err
		}
		if t.Format == "json" {
			return t.JSON(list)
		}
		return t.Page(func() error { return t.printNetwork(list) })
	})
	v.Flag(&refused, "refused")
	v.Flag(&attempt, "attempt")
}

// printNetwork prints requests, and below a refused or failed one why.
func (t *dispatchVerbs) printNetwork(list []api.NetworkLine) error {
	if len(list) == 0 {
		fmt.Fprintln(t.Stderr, "no such request")
		return nil
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NUMBER\tAT\tFORM\tHOST\tREQUEST\tSTATUS\tSENT\tRECEIVED\tTOOK\tWHY")
	for i := range list {
		l := &list[i]
		status := "-"
		if l.Status != 0 {
			status = fmt.Sprint(l.Status)
		}
		why := ""
		switch {
		case l.Refused != "":
			why = "refused: " + l.Refused
		case l.Error != "":
			why = "failed: " + l.Error
		case l.Usage != nil:
			why = fmt.Sprintf("%d tokens in, %d out", l.Usage.Input+l.Usage.CacheRead+l.Usage.CacheWrite, l.Usage.Output)
		}
		if l.Uncounted {
			why = strings.TrimPrefix(why+"; uncounted", "; ")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Number, t.Time(l.At), console.Line(l.Form), console.Dash(console.Line(l.Host)),
			console.Dash(console.Line(strings.TrimSpace(l.Method+" "+l.Path))), status, console.Bytes(l.Sent), console.Bytes(l.Received),
			console.Duration(api.Span(l.Millis, time.Millisecond)), console.Dash(console.Line(why)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(t.Stdout, t.Fit(table.String()))
	return err
}

func (t *dispatchVerbs) transcriptCommand(v *console.Verb) {
	t.contentVerb(v, client.Runtime.Transcript)
}

// contentVerb completes a verb that prints content of a dispatch, or writes it to a
// file.
func (t *dispatchVerbs) contentVerb(v *console.Verb, get func(client.Runtime, context.Context, api.DispatchID, int, io.Writer) error) {
	var file string
	var attempt int
	var raw bool
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		write := func(w io.Writer) error { return get(r, ctx, id, attempt, w) }
		if file == "" {
			return t.Content(raw, write)
		}
		return console.WriteFile(file, write)
	})
	v.Flag(&file, "to")
	v.Flag(&raw, "raw")
	v.Flag(&attempt, "attempt")
}

// printAgent prints which agent program ran, what it used of its model, and what it
// said at its end.
func (t *dispatchVerbs) printAgent(d *api.Dispatch) {
	o := d.Outcome
	if a := o.Agent; a != nil {
		t.Row("agent", "%s", strings.TrimSpace(console.Line(a.Adapter)+" "+console.Line(a.Version)))
	}
	if o.Usage.Model != nil {
		t.Row("model", "%s", console.ModelUsage(*o.Usage.Model))
	}
	if r := o.Refusals; r != nil {
		t.Row("refused", "%d of its requests; see: bailiwick dispatch network %s --refused", r.Count, d.ID)
	}
	if len(o.Redacted) > 0 {
		t.Row("redacted", "values of secrets were removed from: %s", console.Line(strings.Join(o.Redacted, ", ")))
	}
	if o.Text != "" {
		t.Row("text", "%s", console.AgentText(strings.TrimRight(o.Text, "\n")))
	}
}
