package evidence

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/record"
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
			of[strings.Join(denials, ", ")] = []string{"all but `decision`, `tool` and `prev`"}
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			out.WriteString("| " + text + " | " + strings.Join(of[key], ", ") + " | " + key + " |\n")
		}
	}
	out.WriteString("\n| document | members that are claimed |\n|---|---|\n")
	for _, doc := range slices.Sorted(maps.Keys(documentClaims())) {
		out.WriteString("| " + doc + " | `" + strings.Join(documentClaims()[doc], "`, `") + "` |\n")
	}
	out.WriteString("\nIn a plan, everything about a task that was never dispatched is claimed, too.\n")
	return out.String()
}

// documentClaims are the members of documents that nothing else in a bundle says, by
// the type of the document. A name ends with a dot where all below it are meant.
func documentClaims() map[string][]string {
	return map[string][]string{
		"manifest":  {"egress", "expires", "limits.", "nonce", "notBefore", "trace", "ceiling"},
		"statement": {"predicate.runDetails.builder.version.", "predicate.runDetails.metadata.startedOn", "predicate.runDetails.metadata.finishedOn", "predicate.runDetails.byproducts.", "predicate.bailiwick_dispatch.mode"},
		"plan":      {"labels.", "tasks.retry.", "tasks.timeout", "tasks.priority", "limits."},
	}
}

// docs/evidence.md lists what is claimed by name. With -update, it is written.
func TestClaimedFieldsAreDocumented(t *testing.T) {
	const file, from, to = "../../docs/evidence.md", "<!-- claimed: written by go test ./internal/evidence -run TestClaimedFieldsAreDocumented -update -->\n", "<!-- /claimed -->\n"
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
