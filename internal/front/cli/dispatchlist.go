package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

type listFlags struct {
	states                                 []string
	since, subagent, principal, run, after string
	last                                   int
}

func (t *dispatchVerbs) listCommand(v *console.Verb) {
	var f listFlags
	v.Do(func(ctx context.Context, _ []string) error {
		filter, err := f.filter(t.tree)
		if err != nil {
			return err
		}
		return t.withConn(func(c *client.Conn) error { return t.list(ctx, c.Runtime(), filter, f) })
	})
	v.Flag(&f.states, "state")
	v.Flag(&f.since, "since")
	v.Flag(&f.subagent, "subagent")
	v.Flag(&f.principal, "principal")
	v.Flag(&f.run, "run")
	f.last = 50
	v.Flag(&f.last, "last")
	v.Flag(&f.after, "after")
}

// filter returns what the flags select.
func (f listFlags) filter(t *tree) (api.DispatchFilter, error) {
	var a console.Args
	filter := api.DispatchFilter{
		Subagent: a.Name("subagent", f.subagent), Principal: console.Optional(&a, f.principal, api.ParsePrincipal),
		Run: console.Optional(&a, f.run, api.ParseRunID), After: console.Optional(&a, f.after, api.ParseDispatchID), Limit: f.last,
	}
	for _, word := range f.states {
		filter.States = append(filter.States, console.Parse(&a, word, api.ParseEvents)...)
	}
	filter.Since = a.Since(f.since, t.Now())
	a.Last(f.last)
	return filter, a.Err
}

// listPage is the most dispatches in an answer of the service.
const listPage = 1000

func (t *dispatchVerbs) list(ctx context.Context, r client.Runtime, filter api.DispatchFilter, f listFlags) error {
	var list []api.Dispatch
	more := true
	for left := f.last; left > 0 && more; left = f.last - len(list) {
		filter.Limit = min(left, listPage)
		page, err := r.List(ctx, filter)
		if err != nil {
			return err
		}
		list = append(list, page...)
		if more = len(page) == filter.Limit; more {
			filter.After = page[len(page)-1].ID
		}
	}
	if more { // there is another page only if it has a dispatch
		filter.Limit = 1
		next, err := r.List(ctx, filter)
		if err != nil {
			return err
		}
		more = len(next) > 0
	}
	head, usage := "ID\tSTATE\tSUBAGENT\tPRINCIPAL\tACCEPTED\tRUN\tTASK", slices.ContainsFunc(list, func(d api.Dispatch) bool { return len(usageOf(&d)) > 0 })
	if usage {
		head += "\tCOST"
	}
	err := console.List(&t.Output, list, func(d api.Dispatch) string { return string(d.ID) }, head, func(d api.Dispatch) string {
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", d.ID, stateText(d), d.Subagent, d.Principal, t.Ago(d.AcceptedAt), console.Dash(string(d.Run)), console.Dash(string(d.Task)))
		if usage {
			row += "\t" + console.Dash(console.Cost(usageOf(&d)))
		}
		return row
	})
	if err == nil && t.Format == "text" && more {
		fmt.Fprintf(t.Stderr, "older dispatches: %s\n", f.behind(filter.After))
	}
	return err
}

// usageOf is what the current attempt of a dispatch used of its model, if it has one.
func usageOf(d *api.Dispatch) []api.ModelUsage {
	if d.Outcome == nil || d.Outcome.Usage.Model == nil {
		return nil
	}
	return []api.ModelUsage{*d.Outcome.Usage.Model}
}

// behind returns the command that lists the next page.
func (f listFlags) behind(id api.DispatchID) string {
	words := []string{"bailiwick", "dispatch", "list"}
	for _, s := range f.states {
		words = append(words, "--state", s)
	}
	for _, flag := range []struct{ name, value string }{{"since", f.since}, {"subagent", f.subagent}, {"principal", f.principal}, {"run", f.run}} {
		if flag.value != "" {
			words = append(words, "--"+flag.name, flag.value)
		}
	}
	return console.ShellText(append(words, "--last", strconv.Itoa(f.last), "--after", string(id))...)
}
