package audit

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// mixed returns entry number i of a log that has frequent and rare values for
// every filter.
func mixed(i int) record.Entry {
	e := record.Entry{Principal: api.Principal(fmt.Sprintf("agent:a%d", i%7)), Role: "transform", Dispatch: api.DispatchID(fmt.Sprintf("d-%06d", i/5))}
	switch i % 5 {
	case 0:
		e.Kind, e.Decision, e.Detail, e.Attempt = record.KindDispatchAccepted, record.Allow, record.DispatchRequest{Subagent: "edit", Target: "local"}, 1
	case 1:
		e.Kind, e.Decision, e.Detail = record.KindRunDenied, record.Deny, record.RunRequest{Tasks: int64(i)}
		e.Run, e.Task = fmt.Sprintf("r-%04d", i/500), fmt.Sprintf("t-%d", i%50)
	case 2:
		e.Kind, e.Decision, e.Detail, e.Attempt = record.KindDispatchFailed, record.NoDecided, record.DispatchEnd{Millis: 5}, 1
		e.Principal = ""
	case 3:
		e.Kind, e.Decision, e.Detail = record.KindDispatchDenied, record.Deny, record.DispatchRequest{Subagent: "edit"}
		e.Role = "quality"
	default:
		e.Kind, e.Decision, e.Detail = record.KindAuditRead, record.Allow, record.Access{Operation: "list"}
		e.Tool = fmt.Sprintf("warehouse/%d", i%9)
	}
	return e
}

// written writes n entries in large batches.
func written(t testing.TB, l *Ledger, n int, make func(i int) record.Entry) {
	t.Helper()
	for from := 0; from < n; {
		var list []record.Entry
		for ; from < n && len(list) < 2000; from++ {
			list = append(list, make(from))
		}
		if _, err := l.appendAll(context.Background(), list, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// clocked returns a log whose clock shows at(i) for entry i.
func clocked(t testing.TB, at func(i int) time.Time) (*Ledger, *store.Store) {
	t.Helper()
	s, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "state"), Migrations: []store.Migration{Migration()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	i := -1
	l, err := Open(t.Context(), Config{Store: s, Now: func() time.Time { i++; return at(i) }})
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

// matches is the definition of Query for a single entry.
func (q *Query) matches(seq uint64, e *record.Entry) bool {
	either := func(want, got string) bool { return want == "" || want == got }
	tool := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(q.Tool), `\*`, ".*") + "$")
	return seq >= q.From && (q.Before == 0 || seq < q.Before) &&
		either(string(q.Run), e.Run) && either(string(q.Task), e.Task) && either(string(q.Dispatch), string(e.Dispatch)) &&
		either(string(q.Role), string(e.Role)) && (q.Tool == "" || e.Tool != "" && tool.MatchString(e.Tool)) && either(string(q.Principal), string(e.Principal)) &&
		either(string(q.Kind), string(e.Kind)) && (q.Kinds == nil || slices.Contains(q.Kinds, e.Kind)) && either(string(q.Decision), string(e.Decision)) &&
		(q.Since.IsZero() || !e.At.Before(q.Since)) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// For any combination of filters and any clock a query returns exactly the
// matching entries, without duplicates.
//
// proves R-A8
func TestQueryMatchesItsFields(t *testing.T) {
	const n = 3*spanLength + 100
	at := func(i int) time.Time {
		s := i
		switch {
		case i >= 1500 && i < 1600: // the clock was an hour ahead, and was set back
			s += 3600
		case i >= 2500: // the clock was set back permanently
			s -= 1800
		}
		return now().Add(time.Duration(s)*time.Second + time.Duration(i*7919%1000)*time.Microsecond)
	}
	l, _ := clocked(t, at)
	written(t, l, n, mixed)
	all := make([]record.Entry, n)
	for i := range all {
		c, err := l.Get(t.Context(), uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = c.Entry
	}
	rapid.Check(t, func(t *rapid.T) {
		q := anyQuery(t, n, at)
		var want []uint64
		for i := range all {
			if q.matches(uint64(i), &all[i]) {
				want = append(want, uint64(i))
			}
		}
		if q.Newest {
			want = want[max(0, len(want)-q.limit()):]
		} else {
			want = want[:min(len(want), q.limit())]
		}
		list, err := l.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, c := range list {
			got = append(got, c.Seq)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v\ngot  %v\nwant %v", q, got, want)
		}
	})
}

func anyQuery(t *rapid.T, n int, at func(int) time.Time) Query {
	some := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, name) == 0 }
	i := rapid.IntRange(0, n-1).Draw(t, "i")
	like := mixed(i)
	q := Query{Limit: rapid.IntRange(0, 1200).Draw(t, "limit"), Newest: rapid.Bool().Draw(t, "newest")}
	if some("from") {
		q.From = rapid.Uint64Range(0, uint64(n)+5).Draw(t, "from at")
	}
	if some("before") {
		q.Before = rapid.Uint64Range(0, uint64(n)+5).Draw(t, "before what")
	}
	if some("run") {
		q.Run = api.RunID(like.Run)
	}
	if some("task") {
		q.Task = api.TaskID(like.Task)
	}
	if some("dispatch") {
		q.Dispatch = like.Dispatch
	}
	if some("role") {
		q.Role = like.Role
	}
	if some("tool") {
		q.Tool = like.Tool
	}
	if some("pattern") {
		q.Tool = rapid.SampledFrom([]string{"*", "warehouse/*", "*/3", "w*e/*", "*house/1", "warehouse/1*1", "ware?ouse/*", "[w]arehouse/*", "x*", "*//*"}).Draw(t, "which pattern")
	}
	if some("principal") {
		q.Principal = like.Principal
	}
	if some("kind") {
		q.Kind = like.Kind
	}
	if some("kinds") {
		q.Kinds = rapid.SliceOfN(rapid.SampledFrom(record.Kinds()), 0, 12).Draw(t, "which kinds")
	}
	if some("decision") {
		q.Decision = rapid.SampledFrom([]record.Decided{record.Allow, record.Deny, record.NoDecided}).Draw(t, "decision")
	}
	edge := func(name string) time.Time {
		return at(rapid.IntRange(0, n-1).Draw(t, name)).Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, name+" by")) * time.Microsecond)
	}
	if some("since") {
		q.Since = edge("since at")
	}
	if some("until") {
		q.Until = edge("until at")
	}
	return q
}

// A pattern finds the same entries where agents called tools of more names than it is
// replaced by, also of names with characters that mean something to GLOB.
//
// proves R-A8
func TestAPatternOfToolsFindsAnyNumberOfNames(t *testing.T) {
	l, _ := clocked(t, func(i int) time.Time { return now().Add(time.Duration(i) * time.Second) })
	const n = 5 * maxPatternTools
	written(t, l, n, func(i int) record.Entry {
		e := mixed(4)
		e.Tool = fmt.Sprintf("warehouse/%d[?*]", i)
		return e
	})
	for pattern, want := range map[string]int{"*": n, "warehouse/*": n, "warehouse/7[?*]": 1, "warehouse/7*": 11, "warehouse/1?*": 0, "warehouse/1[*]": 1, "*/30*]": 11, "other/*": 0} {
		for _, newest := range []bool{false, true} {
			q := Query{Tool: pattern, Limit: maxLimit, Newest: newest}
			list, err := l.List(t.Context(), q)
			if err != nil || len(list) != want {
				t.Errorf("%s: %d entries, %v; want %d", pattern, len(list), err, want)
			}
			q.Role = "quality"
			if list, err := l.List(t.Context(), q); err != nil || len(list) > 0 {
				t.Errorf("%s in another role: %d entries, %v", pattern, len(list), err)
			}
		}
	}
}

// Every query uses an index, and reads no span outside its times.
//
// proves R-A8
func TestEveryFilterHasAnIndex(t *testing.T) {
	l, st := clocked(t, func(i int) time.Time { return now().Add(time.Duration(i) * time.Second) })
	written(t, l, 5*spanLength, mixed)
	plan := func(q Query) (steps string) {
		err := st.Read(t.Context(), func(v *store.View) error {
			filters := q.filters()
			if err := drive(v, filters, span{0, 5 * spanLength}); err != nil {
				return err
			}
			text, args := q.sql(filters, span{0, 5 * spanLength}, 10)
			return v.Each("EXPLAIN QUERY PLAN "+text, args, func(scan store.Scan) error {
				var id, parent, unused int
				var detail string
				err := scan(&id, &parent, &unused, &detail)
				steps += detail + "; "
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	for index, q := range map[string]Query{
		"audit_entry_kind (kind=?":           {Kind: record.KindOperatorRecorded},
		"audit_entry_principal (principal=?": {Principal: "agent:a1"},
		"audit_entry_role (role=?":           {Role: "quality"},
		"audit_entry_tool (tool=?":           {Tool: "warehouse/1"},
		"audit_entry_task (task=?":           {Task: "t-1"},
		"audit_entry_run (run=?":             {Run: "r-0001"},
		"audit_entry_dispatch (dispatch=?":   {Dispatch: "d-000001", Principal: "agent:a1", Kind: record.KindDispatchAccepted},
		// The kind is the rare one: the principal's index would be scanned in vain.
		"audit_entry_kind (kind=? AND rowid": {Principal: "agent:a1", Kind: record.KindStopEngaged},
		"INTEGER PRIMARY KEY":                {Since: now()},
	} {
		for _, q.Newest = range []bool{false, true} {
			if got := plan(q); !strings.Contains(got, index) || strings.Contains(got, "TEMP B-TREE") || strings.Contains(got, "SCAN audit") {
				t.Errorf("%+v: want %s, got %s", q, index, got)
			}
		}
	}
	if got := plan(Query{Decision: record.Deny}); strings.Count(got, "audit_entry_kind") < 4 || strings.Contains(got, "TEMP B-TREE") {
		t.Errorf("a decision does not use the index of kinds: %s", got)
	}
	q := Query{Since: now().Add(2*spanLength*time.Second + time.Second), Until: now().Add(2*spanLength*time.Second + time.Minute)}
	if err := st.Read(t.Context(), func(v *store.View) error {
		spans, err := q.spans(v, 5*spanLength)
		if want := []span{{2 * spanLength, 3 * spanLength}}; err != nil || !slices.Equal(spans, want) {
			t.Errorf("a minute of the log is in spans %v, %v; want %v", spans, err, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The migration fills the search columns of older entries, and changes nothing
// else.
//
// proves R-A8
func TestMigrationFillsTheSearchColumns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	before := Migration()
	before.Steps = before.Steps[:4]
	s, err := store.Create(t.Context(), store.Config{Dir: dir, Migrations: []store.Migration{before}})
	if err != nil {
		t.Fatal(err)
	}
	const n = spanLength + 10
	hostile := []string{"a b", "a\"b", `a\b`, "\u2028", "\x00", strings.Repeat("x", 256), strings.Repeat("\u00e9", 200)}
	var hashes [n][32]byte
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		for i := range n {
			e := mixed(i)
			e.At = now().Add(time.Duration(i) * time.Second)
			if i < len(hostile) {
				e.Principal, e.Tool, e.Task, e.Role = api.Principal(hostile[i]), hostile[i], hostile[i], api.Name(hostile[i])
			}
			leaf, err := e.Encode()
			if err != nil {
				return err
			}
			hashes[i] = logproof.LeafHash(leaf)
			if _, err := tx.Exec("INSERT INTO audit_entry (seq, at, kind, dispatch, run, leaf, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
				i, e.At.UnixMicro(), string(e.Kind), string(e.Dispatch), e.Run, string(leaf), hashes[i][:]); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(t.Context(), store.Config{Dir: dir, Migrations: []store.Migration{Migration()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l := open(t, s)
	if n, err := l.Check(t.Context()); err != nil || n != spanLength+10 {
		t.Fatalf("%d, %v", n, err)
	}
	for name, q := range map[string]Query{
		"principal": {Principal: "agent:a1", From: 20}, "role": {Role: "quality", From: 20}, "tool": {Tool: "warehouse/1", From: 20}, "task": {Task: "t-1", From: 20},
		"time": {Since: now().Add(1000 * time.Second)}, "an early time": {Until: now().Add(30 * time.Second)},
	} {
		q.Limit = maxLimit
		list, err := l.List(t.Context(), q)
		want := 0
		for i := range n {
			if e := mixed(i); true {
				e.At = now().Add(time.Duration(i) * time.Second)
				if q.matches(uint64(i), &e) {
					want++
				}
			}
		}
		if err != nil || len(list) != want || want == 0 {
			t.Errorf("%s: %d entries, %v; want %d", name, len(list), err, want)
		}
		for _, c := range list {
			if c.Hash != hashes[c.Seq] {
				t.Errorf("%s: entry #%d changed", name, c.Seq)
			}
		}
	}
	// New entries use the same index, and the older ones are still append-only.
	written(t, l, 10, func(i int) record.Entry { return mixed(i + 5*spanLength) })
	for _, q := range []string{"UPDATE audit_entry SET principal = NULL", "DELETE FROM audit_span", "UPDATE audit_span SET low = high"} {
		if err := s.Update(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(q); return err }); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// An attacker with write access to the file can remove an entry from an index, but
// Check detects it, and no list returns an entry that does not match.
//
// proves R-A1
func TestAnEntryWhoseColumnsDifferIsRefused(t *testing.T) {
	for _, edit := range []string{
		"UPDATE audit_entry SET principal = 'agent:a9' WHERE seq = 30", "UPDATE audit_entry SET principal = NULL WHERE seq = 30",
		"UPDATE audit_entry SET role = NULL WHERE seq = 30", "UPDATE audit_entry SET tool = 'x' WHERE seq = 30", "UPDATE audit_entry SET task = 'x' WHERE seq = 30",
		"UPDATE audit_entry SET dispatch = 'd-000001' WHERE seq = 30", "UPDATE audit_entry SET run = 'r-9' WHERE seq = 30",
	} {
		l, s, dir := ledger(t)
		written(t, l, 60, mixed)
		if n, err := l.Check(t.Context()); err != nil || n != 60 {
			t.Fatalf("control: %d, %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		raw(t, filepath.Join(dir, "state.db"), "DROP TRIGGER audit_entry_update", edit)
		s, err := store.Open(t.Context(), config(dir))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Config{Store: s, Now: now}); err == nil || !strings.Contains(err.Error(), "entry #30") {
			t.Errorf("%s: opened: %v", edit, err)
		}
		_ = s.Close()
	}
}

// proves R-A4 (content cannot forge the values of filters)
func TestHostileContentNeitherBlocksNorHidesAnEntry(t *testing.T) {
	l, _, _ := ledger(t)
	texts := []string{
		"\x00", "\ud7ff\xed\xa0\x80", "\u2028", "agent:a1\x00", "agent:a1' OR 1=1 --", strings.Repeat("[", 100_000), strings.Repeat("{\"a\":", 50_000),
		strings.Repeat("x", 10<<20), "agent:a1\n14:22:11 local:root [#1]", "%", "*", "?",
	}
	for _, text := range texts {
		e := record.Entry{Kind: record.KindRunDenied, Decision: record.Deny, Detail: record.RunRequest{}}
		e.Principal, e.Task, e.Run, e.Tool, e.Role, e.Dispatch = api.Principal(text), text, text, text, api.Name(text), api.DispatchID(text)
		if _, err := l.append(t.Context(), &e, nil); err != nil {
			t.Fatalf("%.20q: %v", text, err)
		}
	}
	e := mixed(8)
	if e.Principal != "agent:a1" {
		t.Fatal("control: another principal")
	}
	if _, err := l.append(t.Context(), &e, nil); err != nil {
		t.Fatal(err)
	}
	n := uint64(len(texts))
	for name, q := range map[string]Query{"all": {}, "kind": {Kind: record.KindRunDenied}, "decision": {Decision: record.Deny}, "time": {Since: now(), Until: now().Add(time.Second)}} {
		list, err := l.List(t.Context(), q)
		want := n
		if name != "kind" {
			want++
		}
		if err != nil || uint64(len(list)) != want {
			t.Errorf("%s: %d entries, %v; want %d", name, len(list), err, want)
		}
	}
	for name, q := range map[string]Query{"principal": {Principal: "agent:a1"}, "role": {Role: e.Role}, "dispatch": {Dispatch: e.Dispatch}} {
		if list, err := l.List(t.Context(), q); err != nil || len(list) != 1 || list[0].Seq != n {
			t.Errorf("%s: %d entries, %v; want only the genuine one", name, len(list), err)
		}
	}
	if c, err := l.Check(t.Context()); err != nil || c != n+1 {
		t.Errorf("%d good entries, %v", c, err)
	}
}

// A kept log keeps its entries, and they are found by the words of today for their kinds.
//
// proves R-A8
func TestMigrationRenamesKinds(t *testing.T) {
	dir := t.TempDir()
	key, err := seal.CreateServiceKey(dir)
	must(t, err)
	w := &world{dir: dir, key: key, now: now()}
	cfg := storeConfig(dir)
	cfg.Migrations[0].Steps = cfg.Migrations[0].Steps[:5]
	s, err := store.Create(t.Context(), cfg)
	must(t, err)
	trigger := triggers(t, s)
	words := []string{"http.asked", "dispatch.found", "service.stopped"}
	entries := []record.Entry{
		{Kind: record.KindHTTPRequested, Decision: record.NoDecided, At: now(), Principal: "agent:a1", Detail: record.HTTPRequest{Token: true}},
		{Kind: record.KindDispatchRecovered, Decision: record.NoDecided, At: now(), Dispatch: "d-1", Attempt: 1, Detail: record.DispatchRecovery{State: "started", Worker: "running"}},
		{Kind: record.KindServiceStopped, Decision: record.NoDecided, At: now(), Detail: record.ServiceStop{}},
	}
	sum := logproof.NewRange()
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		for i, e := range entries {
			leaf, err := e.Encode()
			if err != nil {
				return err
			}
			leaf = bytes.Replace(leaf, []byte(`"kind":"`+string(e.Kind)), []byte(`"kind":"`+words[i]), 1)
			hash := logproof.LeafHash(leaf)
			must(t, sum.Add(hash))
			if _, err := tx.Exec(insertEntry, i, e.At.UnixMicro(), words[i], nullable(string(e.Dispatch)), nil, string(leaf), hash[:], nullable(string(e.Principal)), nil, nil, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	must(t, s.Close())
	w.n = len(entries)
	must(t, w.open(t))
	t.Cleanup(w.close)
	l := w.ledger
	if n, err := l.Check(t.Context()); err != nil || n != uint64(len(entries)) {
		t.Fatalf("%d, %v", n, err)
	}
	for i, e := range entries {
		list, err := l.List(t.Context(), Query{Kind: e.Kind})
		if err != nil || len(list) != 1 || list[0].Seq != uint64(i) || list[0].Entry.Kind != e.Kind || !bytes.Contains(list[0].Leaf, []byte(words[i])) { //nolint:gosec // G115: an index
			t.Errorf("%s: %+v, %v", e.Kind, list, err)
		}
	}
	// The tree is the same as before, and the table is append-only again.
	root, err := sum.Root()
	must(t, err)
	if c := w.covered(t); c.Size != uint64(len(entries)) || c.Root != root { //nolint:gosec // G115: a length
		t.Errorf("the tree of %d entries has root %x, before %x", c.Size, c.Root, root)
	}
	if again := triggers(t, w.store); again != trigger || !strings.Contains(again, "audit_entry_update BEFORE UPDATE") {
		t.Errorf("triggers %s, before %s", again, trigger)
	}
	for _, q := range []string{"UPDATE audit_entry SET kind = 'dispatch.found' WHERE seq = 1", "DELETE FROM audit_entry"} {
		if err := w.store.Update(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(q); return err }); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
	// Nothing writes an earlier word.
	for _, was := range words[:2] {
		e := record.Entry{Kind: record.Kind(was), Decision: record.NoDecided, At: now(), Detail: record.HTTPRequest{}}
		_, encoded := e.Encode()
		if _, err := l.Record(t.Context(), e, nil); err == nil || encoded == nil || !strings.Contains(encoded.Error(), "unknown entry kind") {
			t.Errorf("an entry of kind %s: %v, %v", was, err, encoded)
		}
	}
}

// triggers returns the definitions of all triggers.
func triggers(t *testing.T, s *store.Store) (all string) {
	t.Helper()
	must(t, s.Read(t.Context(), func(v *store.View) error {
		return v.Each("SELECT sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name", nil, func(scan store.Scan) error {
			var one string
			err := scan(&one)
			all += one + "\n"
			return err
		})
	}))
	return all
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}
