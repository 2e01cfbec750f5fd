package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *serviceVerbs) gcCommand(v *console.Verb) {
	var dryRun bool
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, _ []string) error {
		report, err := o.GC(ctx, dryRun)
		if err != nil {
			return err
		}
		return t.printGC(report)
	})
	v.Flag(&dryRun, "dry-run")
}

func (t *serviceVerbs) printGC(r api.GCReport) error {
	all := slices.Concat(r.Dispatches, r.Checkouts, r.Runs)
	name := func(g api.GCRemoval) string { return fmt.Sprintf("%s %s%s%s", g.Class, g.Dispatch, g.Run, g.Name) }
	switch t.Format {
	case "json":
		return t.JSON(r)
	case "jsonl", "name":
		return console.List(&t.Output, all, name, "", nil)
	}
	did := "removed"
	if r.DryRun {
		did = "would remove"
		for _, g := range all {
			fmt.Fprintf(t.Stdout, "%-9s %s%s%s: %s, by rule %s\n", g.Class, g.Dispatch, g.Run, console.Plain(g.Name), console.Bytes(g.Bytes), g.Rule)
		}
	}
	for _, c := range []api.Class{api.ClassCheckouts, api.ClassContent, api.ClassEvidence, api.ClassRuns} {
		n, bytes := 0, int64(0)
		for _, g := range all {
			if g.Class == c {
				n, bytes = n+1, bytes+g.Bytes
			}
		}
		t.Row(string(c), "%s", classText(c, did, n, bytes, r.Rules))
	}
	t.Row("files", "%s %d unreferenced, %s; kept %d, %s", did, r.Unreferenced.Blobs, console.Bytes(r.Unreferenced.Bytes), r.Kept.Blobs, console.Bytes(r.Kept.Bytes))
	if r.KeptRuns > 0 {
		t.Row("kept runs", "%s with a pinned dispatch, or with a retry that is stored", record.Plural(r.KeptRuns, "expired run"))
	}
	if r.Pinned+r.Waiting+r.Busy+r.Spared > 0 {
		t.Row("untouched", "%s, %d running or waiting, %s in use, %s being stored", record.Plural(r.Pinned, "pinned dispatch"), r.Waiting, record.Plural(r.Busy, "checkout"), record.Plural(r.Spared, "file"))
	}
	return nil
}

// classText says what was removed of a class, or that no rule applies to it.
func classText(c api.Class, did string, n int, bytes int64, rules []string) string {
	var own []string
	for _, r := range rules {
		if strings.HasPrefix(r, string(c)+".") {
			own = append(own, r)
		}
	}
	if own == nil {
		return "kept: no retention rule"
	}
	what := "those of " + record.Plural(n, "dispatch")
	switch c { //nolint:exhaustive // the others are of dispatches
	case api.ClassCheckouts:
		what = fmt.Sprint(n)
	case api.ClassRuns:
		what = "rows and plans of " + record.Plural(n, "settled run")
	}
	return fmt.Sprintf("%s %s, %s (%s)", did, what, console.Bytes(bytes), strings.Join(own, ", "))
}

func (t *serviceVerbs) printDisk(d *api.DiskUse, problem string) {
	switch {
	case problem != "":
		t.Row("disk", "cannot be measured: %s", problem)
		return
	case d == nil:
		t.Row("disk", "being measured; try again")
		return
	}
	t.Row("disk", "checkouts %s, content %s, evidence %s, unreferenced %s\nstate database %s, attempts in progress %s; %s free\nmeasured %s",
		console.Bytes(d.Checkouts), console.Bytes(d.Content), console.Bytes(d.Evidence), console.Bytes(d.Unreferenced), console.Bytes(d.Database), console.Bytes(d.Attempts),
		console.Bytes(d.Free), t.Time(d.MeasuredAt))
	t.Row("retention", "%s", console.Joined(d.Rules, ", ", "no rules: nothing is removed"))
}
