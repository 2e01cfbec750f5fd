package evidence

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// maxShown is how many tasks and decisions the text of a report lists. JSON and
// HTML list all.
const maxShown = 100

// fact is a label and a value of the part of a report about what ran.
type fact struct{ Label, Value string }

// facts returns what ran for people. most bounds the tasks and the decisions.
func (r *Ran) facts(most int) []fact {
	var out []fact
	for i := range r.Runs {
		out = append(out, r.Runs[i].facts()...)
	}
	label := "dispatch"
	if len(r.Runs) > 0 {
		label = "task"
	}
	for i := range r.Work[:min(len(r.Work), most)] {
		out = append(out, fact{label, r.Work[i].text()})
	}
	out = more(out, label, len(r.Work)-most)
	for _, d := range r.Decided[:min(len(r.Decided), most)] {
		out = append(out, fact{"decided", d.text()})
	}
	out = more(out, "decided", len(r.Decided)-most)
	for _, c := range r.Claimed {
		out = append(out, fact{"claimed", c})
	}
	return out
}

func more(out []fact, label string, n int) []fact {
	if n > 0 {
		out = append(out, fact{label, fmt.Sprintf("and %d more; -o json and --html list all", n)})
	}
	return out
}

func (r *RanRun) facts() []fact {
	out := []fact{
		{"run", fmt.Sprintf("%s: %s, %s on queue %s", r.Run, r.State, record.Plural(r.Tasks, "task"), r.Queue)},
		{"plan", string(r.Plan)},
		{"submitter", fmt.Sprintf("%s, under catalog revision %d", r.Submitter, r.Revision)},
	}
	if r.RetryOf != "" {
		out = append(out, fact{"retry", fmt.Sprintf("of run %s, with %s taken over", r.RetryOf, record.Plural(r.Taken, "task"))})
	}
	when := "claimed " + clock(r.From)
	if r.To != nil {
		when += " to " + clock(*r.To)
	}
	return append(out, fact{"time", when})
}

// text is a task or a dispatch on one line.
func (w *RanWork) text() string {
	var s []string
	add := func(format, value string) {
		if value != "" {
			s = append(s, fmt.Sprintf(format, value))
		}
	}
	name, outcome := string(w.Task), w.State
	if name == "" {
		name = string(w.Dispatch)
	}
	if w.Because != "" {
		outcome += " because of " + w.Because
	}
	add("subagent %s", string(w.Subagent))
	if w.Commit != "" {
		add("source %s", string(w.Source)+" at commit "+w.Commit)
	}
	if w.Task != "" {
		add("dispatch %s", string(w.Dispatch))
	}
	if w.Attempts > 1 {
		add("attempt %s", fmt.Sprint(w.Attempts))
	}
	if w.Taken != "" {
		add("taken over from run %s", string(w.Taken))
	}
	if w.Patch != "" {
		add("patch %s", fmt.Sprintf("%s of %s", w.Patch, record.Plural(w.Files, "file")))
	}
	add("verify %s", w.Verify)
	if w.Dispatch != "" {
		if w.Task == "" {
			add("for %s", string(w.Principal))
		}
		add("tier %s", w.Tier)
		add("allowed by %s", strings.Join(w.Policies, ", "))
	}
	if w.Dispatch != "" && !w.Signed {
		add("%s", "outcome claimed by the service, no worker signed it")
	}
	return name + ": " + strings.Join(append([]string{outcome}, s...), "; ")
}

func (d *Decided) text() string {
	if d.By != "" {
		return fmt.Sprintf("#%d %s %s", d.Entry, d.By, d.What)
	}
	return fmt.Sprintf("#%d %s", d.Entry, d.What)
}

// clock is a time of the service's clock.
func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }

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
