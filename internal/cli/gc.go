package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) gcCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what the service's rules of retention let go", Args: cobra.NoArgs,
		Long: `Remove what the rules of retention in the service's configuration let go: content
of dispatches that have ended, evidence, cached checkouts, and what nothing
refers to. Records and the log are never removed. Without rules for them,
neither are content and evidence. What is pinned, runs or waits is not touched.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.conn()
			defer c.Close()
			report, err := c.Operator().GC(cmd.Context(), dryRun)
			if err != nil {
				return err
			}
			t.printGC(report)
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be removed, and why, and change nothing")
	return cmd
}

func (t *tree) printGC(r api.GCReport) {
	switch t.output {
	case "json":
		_ = t.printJSON(r) // the writer keeps its error
		return
	case "jsonl", "name":
		for _, g := range slices.Concat(r.Dispatches, r.Checkouts) {
			if t.output == "name" {
				fmt.Fprintf(t.Stdout, "%s %s%s\n", g.Class, g.Dispatch, plain(g.Name))
			} else {
				_ = t.printJSON(g) // as above
			}
		}
		return
	}
	did := "removed"
	if r.DryRun {
		did = "would remove"
		for _, g := range slices.Concat(r.Dispatches, r.Checkouts) {
			fmt.Fprintf(t.Stdout, "%-9s %s%s: %s, by rule %s\n", g.Class, g.Dispatch, plain(g.Name), bytesText(g.Bytes), g.Rule)
		}
	}
	for _, c := range []api.Class{api.ClassCheckouts, api.ClassContent, api.ClassEvidence} {
		n, bytes := 0, int64(0)
		for _, g := range slices.Concat(r.Dispatches, r.Checkouts) {
			if g.Class == c {
				n, bytes = n+1, bytes+g.Bytes
			}
		}
		t.row(string(c), "%s", classText(c, did, n, bytes, r.Rules))
	}
	t.row("files", "%s %d that nothing refers to any more, %s; %d stay, %s", did, r.Unreferenced.Blobs, bytesText(r.Unreferenced.Bytes), r.Kept.Blobs, bytesText(r.Kept.Bytes))
	if r.Pinned+r.Waiting+r.Busy+r.Spared > 0 {
		t.row("untouched", "%d pinned dispatches, %d that run or wait, %d checkouts in use, %d files that were being stored", r.Pinned, r.Waiting, r.Busy, r.Spared)
	}
}

// classText says what became of one class, or that there is no rule for it.
func classText(c api.Class, did string, n int, bytes int64, rules []string) string {
	var mine []string
	for _, r := range rules {
		if strings.HasPrefix(r, string(c)+".") {
			mine = append(mine, r)
		}
	}
	if mine == nil {
		return "kept: no rule lets any go"
	}
	what := "those of %d dispatches"
	if c == api.ClassCheckouts {
		what = "%d"
	}
	return fmt.Sprintf("%s "+what+", %s (%s)", did, n, bytesText(bytes), strings.Join(mine, ", "))
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, units := float64(n)/1024, []string{"KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

func (t *tree) printDisk(d *api.DiskUse, problem string) {
	switch {
	case problem != "":
		t.row("disk", "cannot be measured: %s", problem)
		return
	case d == nil:
		t.row("disk", "being measured; ask again")
		return
	}
	t.row("disk", "checkouts %s, content %s, evidence %s, nobody's %s\nstate database %s, attempts under way %s; %s free\nmeasured %s",
		bytesText(d.Checkouts), bytesText(d.Content), bytesText(d.Evidence), bytesText(d.Unreferenced), bytesText(d.Database), bytesText(d.Attempts),
		bytesText(d.Free), d.MeasuredAt.Format(timeFormat))
	rules := "nothing is removed by rule"
	if len(d.Rules) > 0 {
		rules = strings.Join(d.Rules, ", ")
	}
	t.row("retention", "%s", rules)
}

func (t *tree) pinCommand(use, short string, on bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " ID", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				d, err := r.Pin(cmd.Context(), id, on)
				if err != nil {
					return err
				}
				return t.printDispatch(d)
			})
		},
	}
}

// printKept says what retention did to a dispatch.
func (t *tree) printKept(d api.Dispatch) {
	if d.Pinned != nil {
		t.row("pinned", "by %s at %s: kept until it is unpinned", d.Pinned.By, d.Pinned.At.Format(timeFormat))
	}
	for _, r := range d.Removed {
		by := "by the service"
		if r.By != "" {
			by = "for " + string(r.By)
		}
		t.row("removed", "%s at %s, %s, by rule %s; a copy can be checked against its digest", r.Class, r.At.Format(timeFormat), by, r.Rule)
	}
}
