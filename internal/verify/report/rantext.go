package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// maxShown is how many tasks and decisions the text of a report lists. JSON and
// HTML list all.
const maxShown = 100

// fact is a label and a value of the part of a report about what ran.
type fact struct{ Label, Value string }

// facts returns what ran for people: first what ran, for whom, from which commits, and
// the statements. most bounds the tasks and the decisions.
func (r *Ran) facts(most int) []fact {
	var out []fact
	rest, label := r.Work, "task"
	switch {
	case len(r.Runs) > 0:
		run := &r.Runs[0]
		out = append(out,
			fact{"run", fmt.Sprintf("%s: %s, %s on queue %s", run.Run, run.State, record.Plural(run.Tasks, "task"), run.Queue)},
			fact{"for", fmt.Sprintf("%s, under catalog revision %d", run.Submitter, run.Revision)})
		out = append(out, r.origin()...)
		out = append(out, run.facts()...)
		for i := range r.Runs[1:] {
			before := &r.Runs[1+i]
			out = append(out, fact{"before", fmt.Sprintf("run %s: %s, %s, for %s, under catalog revision %d", before.Run, before.State, record.Plural(before.Tasks, "task"), before.Submitter, before.Revision)})
			out = append(out, before.facts()...)
		}
	case len(r.Work) > 0:
		w := &r.Work[0]
		out = append(out, fact{"dispatch", w.name() + ": " + w.outcome()})
		if w.Principal != "" { // as always, if its manifest could be read
			out = append(out, fact{"for", string(w.Principal)})
		}
		out = append(out, r.origin()...)
		out = append(out, fact{"did", strings.Join(w.did(true), "; ")})
		rest, label = r.Work[1:], "used" // its products
	}
	for i := range rest[:min(len(rest), most)] {
		out = append(out, fact{label, rest[i].text()})
	}
	out = more(out, label, len(rest)-most)
	for _, d := range r.Decided[:min(len(r.Decided), most)] {
		out = append(out, fact{"decided", d.text()})
	}
	out = more(out, "decided", len(r.Decided)-most)
	for _, c := range r.Claimed {
		out = append(out, fact{"claimed", c})
	}
	return append(out, fact{"content", r.Content.text()})
}

func (c RanContent) text() string {
	verb := "are"
	if c.Named == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%d of %s %s here", c.Here, record.Plural(c.Named, "named blob"), verb)
	if c.Here < c.Named {
		text += "; audit export --with-blobs adds what is still stored"
	}
	return text
}

// origin says from which commits the work was done, and which statements are here.
func (r *Ran) origin() []fact {
	var commits, with, without []string
	for i := range r.Work {
		w := &r.Work[i]
		if c := w.Commit + " of source " + string(w.Source); w.Commit != "" && !slices.Contains(commits, c) {
			commits = append(commits, c)
		}
		if w.Statement != "" {
			with = append(with, w.name())
		} else {
			without = append(without, w.name()+" ("+w.outcome()+")")
		}
	}
	what := "dispatch"
	if len(r.Runs) > 0 {
		what = "task"
	}
	text := fmt.Sprintf("%d for %s", len(with), record.Plural(len(r.Work), what))
	if len(with) > 0 {
		text += ": " + someOf(with)
	}
	if len(without) > 0 {
		text += "; none for " + someOf(without)
	}
	if len(commits) == 0 {
		commits = []string{"none: nothing here has a source"}
	}
	return []fact{{"commit", someOf(commits)}, {"statement", text}}
}

// someOf joins the first of many words.
func someOf(words []string) string {
	const most = 10
	if n := len(words) - most; n > 0 {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(words, ", ")
}

func more(out []fact, label string, n int) []fact {
	if n > 0 {
		out = append(out, fact{label, fmt.Sprintf("and %d more; -o json and --html list all", n)})
	}
	return out
}

func (r *RanRun) facts() []fact {
	out := []fact{{"plan", string(r.Plan)}}
	if r.RetryOf != "" {
		out = append(out, fact{"retry", fmt.Sprintf("of run %s, with %s taken over", r.RetryOf, record.Plural(r.Taken, "task"))})
	}
	if r.Rules < plan.RulesOfOwners {
		out = append(out, fact{"rules", fmt.Sprintf("%d (claimed): votes count under keys without principals", r.Rules)})
	}
	when := "claimed " + Clock(r.From)
	if r.To != nil {
		when += " to " + Clock(*r.To)
	}
	return append(out, fact{"time", when})
}

func (w *RanWork) name() string {
	if w.Task != "" {
		return string(w.Task)
	}
	return string(w.Dispatch)
}

func (w *RanWork) outcome() string {
	if w.Because != "" {
		return w.State + " because of " + w.Because
	}
	return w.State
}

// text is a task or a dispatch on one line.
func (w *RanWork) text() string {
	return strings.Join(append([]string{w.name() + ": " + w.outcome()}, w.did(false)...), "; ")
}

// did is what a task or a dispatch did. The lines above the first have its source and
// its principal.
func (w *RanWork) did(first bool) (s []string) {
	add := func(format, value string) {
		if value != "" {
			s = append(s, fmt.Sprintf(format, value))
		}
	}
	add("subagent %s", string(w.Subagent))
	if w.Commit != "" && !first {
		add("source %s", string(w.Source)+" at commit "+w.Commit)
	}
	if w.Task != "" {
		add("dispatch %s", string(w.Dispatch))
	}
	if w.Attempts > 1 {
		add("attempt %s", fmt.Sprint(w.Attempts))
	}
	add("taken over from run %s", string(w.Taken))
	add("result of dispatch %s, whose inputs were the same", string(w.Reused))
	add("model %s", w.used())
	if w.Refused > 0 {
		add("%s refused", record.Plural(w.Refused, "request"))
	}
	if w.Patch != "" {
		add("patch %s", fmt.Sprintf("%s of %s", w.Patch, record.Plural(w.Files, "file")))
	}
	add("verify %s", w.Verify)
	add("%s", api.ChangedText(w.Changed, pathText))
	if w.Dispatch != "" {
		if w.Task == "" && !first {
			add("for %s", string(w.Principal))
		}
		add("tier %s", w.Tier)
		add("allowed by %s", strings.Join(w.Policies, ", "))
	}
	if w.Dispatch != "" && !w.Signed {
		add("%s", "outcome claimed by the service, no worker signed it")
	}
	return s
}

// pathText is a path of a result, quoted unless it is plainly a word. Text escapes the rest.
func pathText(name string) string {
	if record.Word(name) == name || strings.HasPrefix(name, `"`) {
		return name
	}
	return `"` + name + `"`
}

// used is the model of a dispatch, with what it used of it.
func (w *RanWork) used() string {
	switch u := w.Usage; {
	case w.Model == "":
		return ""
	case u == nil:
		return record.Word(w.Model)
	default:
		text := fmt.Sprintf("%s, %s, %s", record.Word(w.Model), record.Plural(u.Requests, "request"), record.Plural(u.Total(), "token"))
		if u.Uncounted > 0 {
			text += fmt.Sprintf(", uncounted: %d", u.Uncounted)
		}
		return text
	}
}

func (d *Decided) text() string {
	if d.By != "" {
		return fmt.Sprintf("#%d %s %s%s", d.Entry, d.By, d.What, signedText(d.Signed))
	}
	return fmt.Sprintf("#%d %s%s", d.Entry, d.What, signedText(d.Signed))
}

// Clock is a time of the service's clock.
func Clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// subject is what a report is about.
func (r *Report) subject() string {
	if r.Dispatch != "" {
		return "dispatch " + string(r.Dispatch)
	}
	return "run " + string(r.Run)
}

// scope says how much a report covers.
func (r *Report) scope() string {
	return fmt.Sprintf("%s: %s, %s; log %s at %s", r.subject(), record.Plural(r.Entries, "entry"), record.Plural(r.Dispatches, "dispatch"), r.Log, record.Plural(r.Size, "entry"))
}

// verdict is the three axes.
func (r *Report) verdict() string {
	return fmt.Sprintf("claim: %s   time: %s   authorisation: %s", r.Claim, r.Time, r.Authorisation)
}
