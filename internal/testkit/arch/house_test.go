package arch

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table and the picture of the groups in docs")

// description returns what the doc.go of a group says: what it has, and what it never
// has.
func description(dir string) (has, never string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "doc.go"))
	if err != nil {
		return "", "", err
	}
	name := filepath.Base(dir)
	text, code, ok := strings.Cut(string(b), "\npackage "+name+"\n")
	has, never, both := strings.Cut(strings.ReplaceAll(text, "\n//\n", "\n\n"), "\n\n")
	line := func(s string) string {
		return strings.Join(strings.Fields(strings.TrimPrefix(strings.ReplaceAll(s, "\n//", " "), "//")), " ")
	}
	has, named := strings.CutPrefix(line(has), "Package "+name+" is a group of packages. It ")
	never = line(never)
	if !ok || !both || !named || code != "" || !strings.HasPrefix(never, "It never ") {
		return "", "", fmt.Errorf("%s/doc.go: want \"Package %s is a group of packages. It …\", a paragraph \"It never …\", and no code", dir, name)
	}
	return has, never, nil
}

// groups returns the names of the groups with their floors, lowest first.
func groups() (names []string, at map[string]int) {
	at = map[string]int{}
	for floor, rooms := range house() {
		for _, r := range rooms {
			if name, ok := strings.CutPrefix(r.name, "internal/"); ok {
				names, at[name] = append(names, name), floor
			}
		}
	}
	return names, at
}

// Somebody who lists internal sees ten groups, and each says what belongs there.
func TestGroupsSayWhatBelongsThere(t *testing.T) {
	names, _ := groups()
	found, err := filepath.Glob(filepath.Join(root, "internal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, dir := range found {
		found[i] = filepath.Base(dir)
		if _, _, err := description(dir); err != nil {
			t.Error(err)
		}
	}
	if len(names) > 10 || !slices.Equal(slices.Sorted(slices.Values(names)), found) {
		t.Errorf("internal has %q, want the groups of the table, at most ten: %q", found, names)
	}
	dir := t.TempDir() // the control
	for _, content := range []string{"", "// Package x is a group of packages. It has y.\npackage x\n", "package " + filepath.Base(dir) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, "doc.go"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := description(dir); err == nil {
			t.Errorf("accepted %q", content)
		}
	}
}

// The table and the picture of docs/architecture.md are of the table of the policy;
// -update writes them again.
func TestTheGroupsAreDrawn(t *testing.T) {
	var table strings.Builder
	table.WriteString("| floor | group | has | packages, each with those that it may import on its left |\n|---|---|---|---|\n")
	_, at := groups()
	for _, rooms := range house() {
		for _, r := range rooms {
			name, ok := strings.CutPrefix(r.name, "internal/")
			if !ok {
				continue
			}
			has, never, err := description(filepath.Join(root, r.name))
			if err != nil {
				t.Fatal(err)
			}
			var floors []string
			for _, packages := range r.floors {
				floors = append(floors, "`"+strings.Join(packages, "` `")+"`")
			}
			fmt.Fprintf(&table, "| %d | `%s` | %s %s | %s |\n", at[name], name, strings.TrimPrefix(has, "has "), never, strings.Join(floors, " ▸ "))
		}
	}
	const command = "go test ./internal/testkit/arch -run TestTheGroupsAreDrawn -update"
	written(t, "docs/architecture.md", "<!-- groups: written by "+command+" -->\n", "<!-- end of groups -->", table.String(), command)
	written(t, "docs/groups.svg", "", "", drawing(graph(t, loaded(t))), command)
}

// written compares what a file has between two marks with want, or writes it there.
// Without marks it is the whole file.
func written(t *testing.T, name, from, to, want, command string) {
	t.Helper()
	name = filepath.Join(root, name)
	b, err := os.ReadFile(name)
	if err != nil && (from != "" || !*update) {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(b, []byte(from))
	got, after, end := rest, []byte(nil), true
	if to != "" {
		got, after, end = bytes.Cut(rest, []byte(to))
	}
	if !ok || !end {
		t.Fatalf("%s lacks its marks %q and %q", name, from, to)
	}
	if *update {
		if err := os.WriteFile(name, slices.Concat(before, []byte(from+want+to), after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(got) != want {
		t.Errorf("%s does not match the table; run: %s", name, command)
	}
}

// drawing draws the rooms as floors of a house, with an arrow from each room to the
// highest rooms that it imports: what these import is not drawn again.
func drawing(pkgs map[string]listed) string {
	const width, height, gap, left = 130, 40, 34, 20
	type box struct{ x, y int }
	all, boxes := places(), map[string]box{}
	floors := house()
	for at, rooms := range floors {
		for i, r := range rooms {
			boxes[r.name] = box{left + 150 + 170*i + 85*(2-len(rooms)), 20 + (len(floors)-1-at)*(height+gap)}
		}
	}
	imports := map[string]map[string]bool{}
	for name, p := range pkgs {
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module)
			if from, to := all[name].room, all[dep].room; ours && from != to {
				if imports[from] == nil {
					imports[from] = map[string]bool{}
				}
				imports[from][to] = true
			}
		}
	}
	var through func(from, to string, steps int) bool
	through = func(from, to string, steps int) bool {
		for next := range imports[from] {
			if next == to && steps > 0 || next != to && through(next, to, steps+1) {
				return true
			}
		}
		return false
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 %d" role="img" aria-labelledby="title desc">
<title id="title">The groups of packages</title>
<desc id="desc">A room imports only rooms on lower floors. An arrow leads to each room that is imported directly and not also through another room.</desc>
<style>
svg { font: 14px system-ui, sans-serif; }
.paper { fill: #ffffff; }
.box { fill: #ddf4ff; stroke: #59636e; }
.open { fill: #f6f8fa; stroke: #59636e; stroke-dasharray: 5 3; }
.arrow { stroke: #59636e; stroke-width: 1.2; marker-end: url(#head); }
.head { fill: #59636e; }
text { fill: #1f2328; dominant-baseline: central; }
.name { font: 600 14px ui-monospace, monospace; text-anchor: middle; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; }
.box { fill: #0c2d6b; stroke: #9198a1; }
.open { fill: #21262d; stroke: #9198a1; }
.arrow { stroke: #9198a1; }
.head { fill: #9198a1; }
text { fill: #f0f6fc; }
}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>
<rect class="paper" width="620" height="%[1]d"/>
`, 20+len(floors)*(height+gap))
	for from, at := range ordered(boxes) {
		for _, to := range slices.Sorted(maps.Keys(imports[from])) {
			if !through(from, to, 0) {
				fmt.Fprintf(&b, "<line class=\"arrow\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", at.x+width/2, at.y+height, boxes[to].x+width/2, boxes[to].y)
			}
		}
	}
	for name, at := range ordered(boxes) {
		group, ok := strings.CutPrefix(name, "internal/")
		class := map[bool]string{true: "box", false: "open"}[ok]
		fmt.Fprintf(&b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n<text class=\"name\" x=\"%d\" y=\"%d\">%s</text>\n",
			class, at.x, at.y, width, height, at.x+width/2, at.y+height/2, group)
	}
	for at := range floors {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">floor %d</text>\n", left, 20+(len(floors)-1-at)*(height+gap)+height/2, at)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// ordered iterates over a map by its keys in order.
func ordered[V any](m map[string]V) func(func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
