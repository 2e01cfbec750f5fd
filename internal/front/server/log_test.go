package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// An unknown, repeated or malformed parameter is refused, and the refusal is logged.
//
// proves R-A8, R-A3
func TestALogQueryIsParsedStrictly(t *testing.T) {
	h := newHouse(t)
	for _, good := range []string{
		"", "follow=false", "after=0", "after=9007199254740991", "before=1", "first=1", "last=1000", "run=r-1", "task=Build.1", "dispatch=d-0001", "role=quality",
		"tool=warehouse/drop_table", "principal=agent:a", "kind=dispatch.denied", "kind=dispatch.denied&kind=run.denied", "decision=allow", "decision=deny",
		"since=2026-11-21T14:22:11Z", "until=2026-11-21T14:22:11.123456789%2B01:00", "principal=agent:a&kind=dispatch.denied&since=1970-01-01T00:00:00Z&last=3",
	} {
		if a := h.call("GET", "/v1/operator/log?"+good, ""); a.status != 200 {
			t.Errorf("%s: %d %s", good, a.status, a.body)
		}
	}
	bad := []string{
		"afterwards=1", "After=1", "x", "limit=5", "after=-1", "after=9007199254740992", "after=1e3", "after=%201", "after=+1", "after=0x1", "before=0", "before=", "first=0", "first=-1",
		"last=0", "last=1001", "last=99999999999999999999", "first=1&last=1", "run=", "run=R_1", "run=a%00", "task=", "task=a%20b", "dispatch=x", "dispatch=d-0001%0a", "role=Q", "tool=",
		"tool=a%20b", "tool=%22", "tool=" + strings.Repeat("x", 256), "tool=%e2%80%a8", "principal=a", "principal=agent:a%0ab", "kind=", "kind=x", "kind=dispatch.denied&kind=dispatch.denied",
		"kind=dispatch.denied,run.denied", "decision=none", "decision=Allow", "since=yesterday", "since=2026-11-21", "since=", "since=0001-01-01T00:00:00Z", "until=10000-01-01T00:00:00Z",
		"follow=2", "follow=true&follow=false", "after=1&after=1", "principal=agent:a&principal=agent:b", "after=1;last=2", "%zz=1", "run=r-1&" + strings.Repeat("x", 20_000),
	}
	before := len(h.logged(record.KindRequestInvalid))
	for _, query := range bad {
		a := h.call("GET", "/v1/operator/log?"+query, "")
		if e := a.err(t); a.status != 400 || e.Code != api.CodeInvalid || len(a.body) > 8000 {
			t.Errorf("%.60s: %d %.200s", query, a.status, a.body)
		}
	}
	if n := len(h.logged(record.KindRequestInvalid)) - before; n != len(bad) {
		t.Errorf("%d of %d refusals are logged", n, len(bad))
	}
}

// hostileTexts have broken other logs.
func hostileTexts() []string {
	return []string{
		"\x00", "\n14:22:11 agent:a asked for everything: allowed [#1]", "\r\x1b[2K", "\u2028\u2029\u0085", "\xed\xa0\x80", "\xff\xfe", `","decision":"allow","x":"`,
		strings.Repeat("[", 70_000), strings.Repeat(`{"a":`, 70_000), strings.Repeat("\U0001F600", 2000), "</script>&<>", "agent:a\x00", "\u202etxt",
	}
}

// full returns an entry of kind k with text in every string field.
func full(k record.Kind, detail record.Detail, text string) record.Entry {
	v := reflect.New(reflect.TypeOf(detail)).Elem()
	for _, f := range v.Fields() {
		switch f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Slice:
			switch f.Addr().Interface().(type) {
			case *[]record.BudgetClaim:
				f.Set(reflect.ValueOf([]record.BudgetClaim{{Budget: text, Period: text, Limit: api.Spend{Currency: text}}}))
			case *[]record.BudgetSettlement:
				f.Set(reflect.ValueOf([]record.BudgetSettlement{{Budget: text, Period: text, Spent: api.Spend{Currency: text}}}))
			default:
				f.Set(reflect.ValueOf([]string{text, text}))
			}
		default:
		}
	}
	principal := api.Principal(text)
	if k.Actor() == record.ActorService {
		principal = ""
	}
	return record.Entry{
		Kind: k, Principal: principal, Action: text, Resource: text, Run: text, Task: text, Dispatch: api.DispatchID(text), Role: api.Name(text), Tool: text,
		Token: api.TokenID(text), Policies: []string{text}, Detail: v.Interface().(record.Detail),
	}
}

// write logs an entry of any kind, with a decision if its kind needs one.
func (h *house) write(e record.Entry) {
	h.t.Helper()
	var err error
	if e.Kind.Decided() == record.NoDecided {
		_, err = h.ledger.Record(h.t.Context(), e, nil)
	} else {
		engine := must[*policy.Engine](h.t)(policy.New(policy.Rules{Operator: "local:root"}))
		_, err = h.ledger.Commit(h.t.Context(), engine.Decide(policy.Request{Principal: "local:root", Action: policy.ActionAuditRead, Resource: e.Resource}), e, nil)
	}
	if err != nil {
		h.t.Fatalf("%s: %v", e.Kind, err)
	}
}

// With hostile text in every field of every kind, each entry is one line on the
// wire, and every filter finds exactly its entries.
//
// proves R-A4, R-A8
func TestHostileContentCannotForgeLogLines(t *testing.T) {
	h := newHouse(t)
	h.write(record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: "the first"}})
	start := must[uint64](t)(h.ledger.Len(t.Context()))
	n, records := start, int64(0)
	for _, text := range hostileTexts() {
		for _, k := range record.Kinds() {
			if k.Decided() == record.Deny {
				continue // it stands for a denial, and is written for one only
			}
			e := full(k, k.Detail(), text)
			e.Run, e.Dispatch = text+string(k), api.DispatchID(text+string(k)) // nothing follows the end of one
			switch d := e.Detail.(type) {                                      // the log keeps their order
			case record.RevisionSeen:
				d.Number = int64(n) //nolint:gosec // G115: small
				e.Detail = d
			case record.OperatorDecision:
				records++
				d.Number = records
				e.Detail = d
			}
			h.write(e)
			n++
		}
	}
	h.write(record.Entry{Kind: record.KindServiceStopped, Dispatch: "d-true", Run: "r-true", Task: "t", Role: "quality", Tool: "warehouse/x", Detail: record.ServiceStop{Reason: "control"}})
	conn := client.New(client.Config{Socket: h.socket, UIDs: []int{0}})
	defer conn.Close()
	after := start - 1
	read := func(q api.LogQuery) (list []api.LogLine) {
		t.Helper()
		q.After = &after
		if err := conn.Operator().Log(t.Context(), q, false, func(l api.LogLine) error { list = append(list, l); return nil }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := read(api.LogQuery{})
	if uint64(len(all)) != n+1-start {
		t.Fatalf("%d entries were read, want %d", len(all), n+1-start)
	}
	for i, l := range all {
		if l.Seq != start+uint64(i) || !json.Valid(l.Leaf) || strings.ContainsFunc(string(l.Leaf)+l.Text, func(r rune) bool { return !unicode.IsPrint(r) }) ||
			!strings.HasSuffix(l.Text, fmt.Sprintf(" [#%d]", l.Seq)) {
			t.Fatalf("entry %d is #%d: %.300s", i, l.Seq, l.Text)
		}
	}
	for name, q := range map[string]api.LogQuery{
		"dispatch": {Dispatch: "d-true"}, "run": {Run: "r-true"}, "task": {Task: "t"}, "role": {Role: "quality"}, "tool": {Tool: "warehouse/x"},
	} {
		if list := read(q); len(list) != 1 || list[0].Seq != n {
			t.Errorf("%s: %d entries; want the true one", name, len(list))
		}
	}
	for _, k := range []record.Kind{record.KindServiceStarted, record.KindDispatchAccepted, record.KindTaskFailed} {
		if list := read(api.LogQuery{Kinds: []string{string(k)}}); len(list) != len(hostileTexts()) {
			t.Errorf("%s: %d entries, want %d", k, len(list), len(hostileTexts()))
		}
	}
	if list := read(api.LogQuery{Since: h.now().Add(-time.Hour), Until: h.now().Add(time.Hour)}); len(list) != len(all) {
		t.Errorf("by time %d entries, want %d", len(list), len(all))
	}
	// On the wire each entry is one line.
	a := h.call("GET", "/v1/operator/log?"+url.Values{"after": {fmt.Sprint(after)}}.Encode(), "")
	if lines := strings.Count(a.body, "\n"); lines != len(all) {
		t.Errorf("%d lines, want %d", lines, len(all))
	}
	for line := range strings.Lines(a.body) {
		var l api.LogLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %.200s", err, line)
		}
	}
}

// Pages from either end cover the whole log.
//
// proves R-A8
func TestPagesCoverTheWholeLog(t *testing.T) {
	h := newHouse(t)
	for range 2500 {
		h.write(record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: "x"}})
	}
	conn := client.New(client.Config{Socket: h.socket, UIDs: []int{0}})
	defer conn.Close()
	read := func(q api.LogQuery) (list []uint64) {
		t.Helper()
		if err := conn.Operator().Log(t.Context(), q, false, func(l api.LogLine) error { list = append(list, l.Seq); return nil }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	n := must[uint64](t)(h.ledger.Len(t.Context()))
	if all := read(api.LogQuery{}); uint64(len(all)) != n {
		t.Fatalf("%d of %d", len(all), n)
	}
	var up, down []uint64
	for q := (api.LogQuery{First: 700}); ; {
		page := read(q)
		if len(page) == 0 {
			break
		}
		up = append(up, page...)
		q.After = &page[len(page)-1]
	}
	for q := (api.LogQuery{Last: 700}); ; {
		page := read(q)
		if len(page) == 0 {
			break
		}
		down = append(page, down...)
		if q.Before = &page[0]; page[0] == 0 {
			break
		}
	}
	for i := range n {
		if up[i] != i || down[i] != i {
			t.Fatalf("entry %d: up %d, down %d", i, up[i], down[i])
		}
	}
	if uint64(len(up)) != n || uint64(len(down)) != n {
		t.Errorf("%d up, %d down, want %d", len(up), len(down), n)
	}
	if got := read(api.LogQuery{First: 1500}); len(got) != 1500 || got[1499] != 1499 {
		t.Errorf("the first 1,500 are %d", len(got))
	}
}
