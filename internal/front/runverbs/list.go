package runverbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// listFlags are the flags of run list as text.
type listFlags struct {
	states                                   []string
	since, queue, principal, subagent, after string
	labels                                   []string
	last                                     int
}

func (t *commands) listCommand(v *console.Verb) {
	var f listFlags
	v.Do(func(ctx context.Context, _ []string) error {
		filter, err := t.filter(f, v.Flags().Changed("last"))
		if err != nil {
			return err
		}
		return t.withConn(func(c *client.Conn) error {
			list, more, err := listRuns(ctx, c.Runtime(), filter)
			if err != nil {
				return err
			}
			err = runPrinter{t.Output}.list(list)
			if err != nil || t.Format != "text" || more == "" {
				return err
			}
			fmt.Fprintf(t.Stderr, "older runs: %s\n", f.behind(more))
			return nil
		})
	})
	v.Flag(&f.states, "state")
	v.Flag(&f.since, "since")
	v.Flag(&f.queue, "queue")
	v.Flag(&f.principal, "principal")
	v.Flag(&f.labels, "label")
	v.Flag(&f.subagent, "subagent")
	f.last = defaultLast
	v.Flag(&f.last, "last")
	v.Flag(&f.after, "after")
}

const (
	defaultLast = 50
	listPage    = 1000 // most runs in an answer of the service
)

// filter returns what the flags select.
func (t *commands) filter(f listFlags, exact bool) (api.RunFilter, error) {
	var a console.Args
	filter := api.RunFilter{
		Queue: a.Name("queue", f.queue), Subagent: a.Name("subagent", f.subagent), Principal: console.Optional(&a, f.principal, api.ParsePrincipal),
		After: console.Optional(&a, f.after, api.ParseRunID), Limit: f.last, Open: !exact && f.after == "",
	}
	for _, word := range f.labels {
		filter.Labels = append(filter.Labels, console.Parse(&a, word, api.ParseLabel))
	}
	for _, word := range f.states {
		filter.States = append(filter.States, console.Parse(&a, word, api.ParseRunStates)...)
	}
	filter.Since = a.Since(f.since, t.Now())
	a.Last(f.last)
	return filter, a.Err
}

// listRuns returns what a filter selects, page by page, and the run behind which
// more follow; empty: no more.
func listRuns(ctx context.Context, r client.Runtime, f api.RunFilter) (list []api.Run, more api.RunID, err error) {
	want, open := f.Limit, f.Open
	for {
		// One more than wanted, which says whether more follow.
		f.Limit = min(want+1-len(list), listPage)
		page, err := r.Runs(ctx, f)
		if err != nil {
			return nil, "", err
		}
		list = append(list, page...)
		if len(page) < f.Limit || len(list) > want {
			break
		}
		f.After, f.Open = list[len(list)-1].RunID, false
	}
	if len(list) <= want {
		return list, "", nil
	}
	more = list[want-1].RunID
	kept := list[:want]
	for _, run := range list[want:] { // the one that says that more follow, and older runs that are open
		if open && !run.State.Settled() {
			kept = append(kept, run)
		}
	}
	return kept, more, nil
}

// list prints a line per run.
func (p runPrinter) list(list []api.Run) error {
	warnStalled(p.Stderr, list)
	head, labels := "RUN\tSTATE\tDONE\tSUBMITTED\tQUEUE\tPRINCIPAL\tTASKS", func(*api.Run) string { return "" }
	if slices.ContainsFunc(list, func(r api.Run) bool { return len(r.Labels) > 0 }) {
		head += "\tLABELS"
		labels = func(r *api.Run) string {
			return "\t" + console.Dash(console.Line(strings.Join(labelWords(r.Labels), ", ")))
		}
	}
	return console.List(p.Output, list, func(r api.Run) string { return string(r.RunID) }, head, func(r api.Run) string {
		return fmt.Sprintf("%s\t%s\t%d/%d\t%s\t%s\t%s\t%s%s", r.RunID, stateText(&r), r.Counts[api.TaskDone], r.Total, p.Ago(r.SubmittedAt), r.Queue, r.Principal, countsText(r.Counts), labels(&r))
	})
}

// labelWords lists labels as KEY=VALUE, by key.
func labelWords(labels map[api.Name]string) (words []string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, api.Label{Key: key, Value: labels[key]}.String())
	}
	return words
}

// behind is the command that continues a list behind a run.
func (f *listFlags) behind(run api.RunID) string {
	words := []string{"bailiwick", "run", "list"}
	for _, s := range f.states {
		words = append(words, "--state", s)
	}
	for _, l := range f.labels {
		words = append(words, "--label", l)
	}
	for _, o := range [][2]string{{"--since", f.since}, {"--queue", f.queue}, {"--principal", f.principal}, {"--subagent", f.subagent}} {
		if o[1] != "" {
			words = append(words, o[0], o[1])
		}
	}
	if f.last != defaultLast {
		words = append(words, "--last", strconv.Itoa(f.last))
	}
	return console.ShellText(append(words, "--after", string(run))...)
}
