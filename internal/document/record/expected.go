package record

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// about is an entry about an attempt of a dispatch, as its manifest describes it.
func about(kind Kind, m *Manifest, manifest api.Digest, detail Detail) Entry {
	tier := m.Tier
	return Entry{
		Kind: kind, Resource: string(m.Subagent), Run: string(m.Run), Task: string(m.Task), Dispatch: m.ID, Attempt: m.Attempt, Role: m.Role, Tier: &tier,
		Detail: detail, Refs: map[string]api.Digest{RefManifest: manifest},
	}
}

// Accepted returns the entry that admits the dispatch that m describes, whose envelope has
// the digest manifest, for a request with these capabilities. The decision and what is
// reserved of budgets are not part of it.
func Accepted(m *Manifest, manifest api.Digest, capabilities []api.Name) Entry {
	d := DispatchRequest{
		Subagent: string(m.Subagent), Target: string(m.Target), Envs: texts(m.Envs), Capabilities: texts(capabilities),
		Revision: int64(m.Revision), //nolint:gosec // G115: numbers count up from 1
	}
	if m.Source != nil {
		d.Source, d.Commit = string(m.Source.Name), m.Source.Commit
	}
	e := about(KindDispatchAccepted, m, manifest, d)
	e.Refs[RefInput] = m.Input
	return e
}

// Reused returns the entry that admits the dispatch that m describes, and ends it with the
// result of another one that has the same key.
func Reused(m *Manifest, manifest, key api.Digest, of api.DispatchID) Entry {
	e := about(KindTaskReused, m, manifest, TaskReuse{Key: string(key), Of: string(of)})
	e.Refs[RefInput] = m.Input
	return e
}

// Answered returns the entry that admits an attempt that resumes: m describes it, option
// is the number of the chosen option. The decision and what is reserved of budgets are not
// part of it.
func Answered(m *Manifest, manifest, question api.Digest, option int) Entry {
	e := about(KindDispatchAnswered, m, manifest, AnswerRequest{Attempt: int64(m.Attempt) - 1, Option: int64(option)})
	e.Refs[RefQuestion], e.Refs[RefAnswer] = question, m.Resume.Answer
	return e
}

// Ended returns the entry of the end of an attempt, whose record is d by then. What it took
// and what it spent of budgets are not part of it.
func Ended(d *api.Dispatch) Entry {
	tier := d.Tier
	detail, refs := EndOf(d.Outcome)
	detail.Message, detail.Reason = d.Message, string(d.Reason)
	if d.State == api.EventCancelled {
		detail.By = string(d.CancelBy)
	}
	refs[RefManifest] = d.Manifest
	if d.Result != "" {
		refs[RefResult] = d.Result
	}
	if c := d.Calls; c != nil && c.Record != nil {
		refs[RefCalls] = c.Record.Digest
	}
	return Entry{
		Kind: KindOf(d.State), Resource: string(d.Subagent), Run: string(d.Run), Task: string(d.Task), Dispatch: d.ID, Attempt: d.Attempt, Role: d.Role, Tier: &tier,
		Detail: detail, Refs: refs,
	}
}

func texts(list []api.Name) (out []string) {
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}

// FieldOf returns a field of an entry by its JSON name, such as "role", "prev.run" or
// "detail.target". The value can be set if it is not of the detail.
func FieldOf(e *Entry, field string) (reflect.Value, bool) {
	name, inDetail := strings.CutPrefix(field, "detail.")
	if inDetail {
		d := reflect.ValueOf(e.Detail)
		for f := range d.Type().Fields() {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
				return d.FieldByIndex(f.Index), true
			}
		}
		return reflect.Value{}, false
	}
	v := reflect.ValueOf(e).Elem()
	if chain, ok := strings.CutPrefix(field, "prev."); ok {
		v, name = v.FieldByName("Prev"), chain
	}
	f := v.FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, name) })
	return f, f.IsValid()
}

// Difference names the first of fields in which two entries differ, such as "refs.patch" of
// the refs; empty if none does. got may have cut its lists.
func Difference(want, got *Entry, fields ...string) string {
	for _, name := range fields {
		switch {
		case name == "refs":
			for _, ref := range slices.Sorted(maps.Keys(want.Refs)) {
				if got.Refs[ref] != want.Refs[ref] {
					return "refs." + ref
				}
			}
			for _, ref := range slices.Sorted(maps.Keys(got.Refs)) {
				if _, ok := want.Refs[ref]; !ok {
					return "refs." + ref
				}
			}
		case !sameField(want, got, name):
			return name
		}
	}
	return ""
}

func sameField(want, got *Entry, name string) bool {
	w, ok := FieldOf(want, name)
	g, both := FieldOf(got, name)
	if !ok || !both {
		return false
	}
	if whole, ok := reflect.TypeAssert[[]string](w); ok {
		cut, _ := reflect.TypeAssert[[]string](g)
		return slices.Equal(cut, CutList(whole))
	}
	x, errX := json.Marshal(w.Interface())
	y, errY := json.Marshal(g.Interface())
	return errX == nil && errY == nil && string(x) == string(y)
}
