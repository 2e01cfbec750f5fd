package evidence

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

var update = flag.Bool("update", false, "write the list of claimed fields into docs/evidence.md") //nolint:gochecknoglobals // a flag

// fieldsOf returns the names of all fields of the entries of a kind, as the table
// names them.
func fieldsOf(k record.Kind) (list []string) {
	for f := range reflect.TypeFor[record.Entry]().Fields() {
		switch f.Name {
		case "Detail":
			for d := range reflect.TypeOf(k.Detail()).Fields() {
				name, _, _ := strings.Cut(d.Tag.Get("json"), ",")
				list = append(list, "detail."+name)
			}
		case "Prev":
			for p := range f.Type.Fields() {
				list = append(list, "prev."+strings.ToLower(p.Name))
			}
		default:
			list = append(list, strings.ToLower(f.Name))
		}
	}
	return append(list, "entry")
}

// missing returns the fields without a row in a table, and the rows of no field.
func missing(t table) (list []string) {
	for _, k := range record.Kinds() {
		fields := fieldsOf(k)
		for _, f := range fields {
			if !slices.ContainsFunc(t[k], func(a agreement) bool { return a.field == f || a.field == "*" }) {
				list = append(list, string(k)+" "+f)
			}
		}
		for _, a := range t[k] {
			if a.field != "*" && !slices.Contains(fields, a.field) {
				list = append(list, string(k)+" has no "+a.field)
			}
			if a.check == nil && a.by == "" && a.claim == "" {
				list = append(list, string(k)+" "+a.field+" is neither compared nor claimed")
			}
		}
	}
	return list
}

// A field of an entry that is not in the table would be verified by nobody: each has
// a row, which says where its truth is, or that it is claimed.
//
// proves R-A7
func TestEachFieldOfAnEntryHasARow(t *testing.T) {
	if list := missing(agreements()); len(list) > 0 {
		t.Errorf("no row in the table of agreements: %q", list)
	}
	without := tableOf(slices.DeleteFunc(allAgreements(), func(a agreement) bool { return a.field == "detail.by" })) // the positive control
	if list := missing(without); !slices.Contains(list, "dispatch.cancelled detail.by") {
		t.Errorf("a table without rows of detail.by is complete: %q", list)
	}
}

// claimedFields is the list of docs/evidence.md: what may be claimed of each field.
func claimedFields() string {
	by := map[string]map[string][]string{} // claim, field, kinds
	for _, k := range record.Kinds() {
		for _, a := range agreements()[k] {
			if a.claim == "" || slices.Contains(by[a.claim][a.field], string(k)) {
				continue
			}
			if by[a.claim] == nil {
				by[a.claim] = map[string][]string{}
			}
			by[a.claim][a.field] = append(by[a.claim][a.field], string(k))
		}
	}
	var out strings.Builder
	out.WriteString("| claimed | fields | of entries |\n|---|---|---|\n")
	for _, text := range slices.Sorted(maps.Keys(by)) {
		of := map[string][]string{} // kinds, fields
		for _, field := range slices.Sorted(maps.Keys(by[text])) {
			key := "`" + strings.Join(by[text][field], "`, `") + "`"
			switch {
			case len(by[text][field]) == len(inBundles()):
				key = "every kind"
			case text == claimDenied:
				continue
			}
			of[key] = append(of[key], "`"+field+"`")
		}
		if text == claimDenied {
			var denials []string
			for _, k := range otherKinds() {
				denials = append(denials, "`"+string(k)+"`")
			}
			of[strings.Join(denials, ", ")] = []string{"all but `decision`, `tool`, `prev`, and `refs` of `dispatch.cancel_denied`"}
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			out.WriteString("| " + text + " | " + strings.Join(of[key], ", ") + " | " + key + " |\n")
		}
	}
	out.WriteString("\n| document | members that are claimed |\n|---|---|\n")
	for _, doc := range slices.Sorted(maps.Keys(documentClaims())) {
		out.WriteString("| " + doc + " | `" + strings.Join(documentClaims()[doc], "`, `") + "` |\n")
	}
	out.WriteString("\nIn a plan, everything about a task that was never dispatched is claimed, too. A plan has no signature: K changes the queue and the locks in the entries as well. So it is with the option of an answer, and with who engaged a stop that cancelled no worker: only entries say it. A result that is used again fixes the tree of its source, and many commits can have that tree: the commit in its manifest is claimed, unless the plan or another task of the run fixes it.\n")
	return out.String()
}

// claimsOfReuse is the type of a manifest of a result that is used again.
const claimsOfReuse = "manifest of `task.reused`"

// documentClaims are the members of documents that nothing else in a bundle says, by
// the type of the document. A name ends with a dot where all below it are meant.
func documentClaims() map[string][]string {
	return map[string][]string{
		"manifest":    {"expires", "limits.", "nonce", "notBefore", "trace", "ceiling"},
		claimsOfReuse: {"source.commit"},
		"statement":   {"predicate.runDetails.builder.version.", "predicate.runDetails.metadata.startedOn", "predicate.runDetails.metadata.finishedOn", "predicate.runDetails.byproducts.", "predicate.bailiwick_dispatch.mode"},
		"plan":        {"labels.", "queue", "tasks.depends_on.", "tasks.locks.", "tasks.retry.", "tasks.timeout", "tasks.priority", "limits."},
	}
}

// docs/evidence.md lists what is claimed by name. With -update, it is written.
func TestClaimedFieldsAreDocumented(t *testing.T) {
	const file, from, to = "../../../docs/evidence.md", "<!-- claimed: written by go test ./internal/verify/evidence -run TestClaimedFieldsAreDocumented -update -->\n", "<!-- /claimed -->\n"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), from)
	old, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s lacks %q or %q", file, from, to)
	}
	list := "\n" + claimedFields() + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+from+list+to+after), 0o644); err != nil { //nolint:gosec // G306: a document
			t.Fatal(err)
		}
		return
	}
	if old != list {
		t.Errorf("%s lists other fields as claimed than the table of agreements: run this test with -update", file)
	}
}

// A plan has no signature. Who has the service's key changes it together with the
// entries that repeat it, so what is accepted then is listed as claimed. Control: a
// member that a worker's result fixes is refused.
//
// proves R-A7
func TestWhatIsAcceptedOfAChangedPlanIsClaimed(t *testing.T) {
	s := newStory(t)
	s.submit(plannedAs("", `a ,"locks":["k/one"]`, "b", `c ,"depends_on":["a"]`), "", 0)
	a, b, c := of("a", 1), of("b", 2), of("c", 3)
	s.holding(a, "k/one")
	s.done(a, 1)
	s.fire(b, 1)
	s.done(b, 1)
	s.fire(c, 1)
	s.done(c, 1)
	s.settle("r1", record.RunEnd{State: "done", Done: 3})
	x := newSubject(t, "plan", s, bundle.Case{Run: "r1"})
	old := s.planOf("r1")[record.RefPlan]
	for name, c := range map[string]struct {
		from, to, entry string
		claimed         bool
	}{
		"queue":          {`"queue":"default"`, `"queue":"urgent"`, "urgent", true},
		"no dependency":  {`"depends_on":["a"],`, ``, "", true},
		"a dependency":   {`"id":"b",`, `"depends_on":["a"],"id":"b",`, "", true},
		"other locks":    {`"k/one"`, `"k/two"`, "k/two", true},
		"a subagent":     {`"id":"b","source":{"name":"app"},"subagent":"code"`, `"id":"b","source":{"name":"app"},"subagent":"other"`, "", false},
		"a source":       {`"id":"b","source":{"name":"app"}`, `"id":"b","source":{"name":"lib"}`, "", false},
		"another member": {`"id":"b",`, `"id":"b","input":{"x":1},`, "", false},
	} {
		was := s.documents[old]
		changed := bytes.Replace(was, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(was, changed) {
			t.Fatalf("%s: the plan has no %s:\n%s", name, c.from, was)
		}
		canonical := parsed(t, changed)
		g := x.forge()
		g.replace(old, canonical)
		for i := range g.entries {
			switch d := g.entries[i].Detail.(type) {
			case record.RunRequest:
				if name == "queue" {
					d.Queue = c.entry
					g.entries[i].Detail = d
				}
			case record.TaskStart:
				if name == "other locks" && len(d.Locks) > 0 {
					d.Locks = []string{c.entry}
					g.entries[i].Detail = d
				}
			}
		}
		b, err := bundle.Read(bytes.NewReader(g.file(t)), bundle.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		r := Verify(b, x.trust, Options{})
		if r.Failed() == c.claimed || onlyClaimed(record.RefPlan, was, canonical, record.KindRunSubmitted, nil) != c.claimed {
			t.Errorf("%s: refused %v, listed as claimed %v, want it claimed: %v\n%s", name, r.Failed(), !c.claimed, c.claimed, r.Text())
		}
		if b, err = bundle.Read(bytes.NewReader(g.file(t)), bundle.Limits{}); err != nil {
			t.Fatal(err)
		}
		if r := Verify(b, x.trust, x.anchored()); !r.Failed() {
			t.Errorf("%s: accepted with an anchor", name)
		}
	}
}

func parsed(t testing.TB, doc []byte) []byte {
	t.Helper()
	p, problems := plan.Parse(doc)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p.Canonical()
}
