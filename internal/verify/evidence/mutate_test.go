package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// mutation is a class of mutants.
type mutation struct {
	name string
	// linked mutants change what is claimed together with all that agrees with it.
	linked bool
	mutate func(t testing.TB, r *rand.Rand, x *subject, all []*subject) (file []byte, what string)
}

// forgery is the log and the documents of a subject in the hands of who has the
// service's key.
type forgery struct {
	x         *subject
	entries   []record.Entry
	documents map[api.Digest][]byte
	records   []api.Digest
	revisions map[api.Digest]bundle.Revision
	links     map[int]record.Prev // entries whose links stay as they are
	leaves    map[int][]byte      // entries with another spelling
	after     func(b *bundle.Bundle)
	signer    seal.Signer // of forged documents
}

func (x *subject) forge() *forgery {
	g := &forgery{
		x: x, entries: slices.Clone(x.s.entries), documents: maps.Clone(x.s.documents), records: slices.Clone(x.s.records),
		revisions: maps.Clone(x.s.revisions), links: map[int]record.Prev{}, leaves: map[int][]byte{}, signer: x.s.service,
	}
	for i := range g.entries {
		g.entries[i].Refs = maps.Clone(g.entries[i].Refs)
	}
	return g
}

// impossible stops a story that cannot be written.
type impossible struct{ testing.TB }

func (impossible) Helper()        {}
func (i impossible) Fatal(...any) { panic(i) }

// file writes the log again, links its chains, signs it with the service's key and
// exports the case. It returns nil where that makes no log.
func (g *forgery) file(t testing.TB) (file []byte) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(impossible); !ok {
				panic(r)
			}
			file = nil
		}
	}()
	s := *g.x.s
	s.t, s.documents, s.records, s.revisions = impossible{t}, g.documents, g.records, g.revisions
	s.entries, s.leaves = slices.Clone(g.entries), make([][]byte, len(g.entries))
	last, rule := map[string]uint64{}, uint64(0)
	for i := range s.entries {
		e := &s.entries[i]
		if prev, kept := g.links[i]; kept {
			e.Prev = prev
		} else {
			e.Prev = record.Prev{Dispatch: last["d "+string(e.Dispatch)], Run: last["r "+e.Run]}
			if e.Kind.Rules() || e.Kind.Admits() {
				e.Prev.Rule = rule
			}
		}
		if e.Dispatch != "" {
			last["d "+string(e.Dispatch)] = uint64(i) + 1 //nolint:gosec // G115: an index
		}
		if e.Run != "" {
			last["r "+e.Run] = uint64(i) + 1 //nolint:gosec // G115: an index
		}
		if e.Kind.Rules() {
			rule = uint64(i) + 1 //nolint:gosec // G115: an index
		}
		leaf, err := e.Encode()
		if err != nil {
			return nil
		}
		if s.leaves[i] = leaf; g.leaves[i] != nil {
			s.leaves[i] = g.leaves[i]
		}
	}
	if len(s.entries) == 0 || !slices.ContainsFunc(s.entries, func(e record.Entry) bool {
		return e.Run == string(g.x.c.Run) && e.Run != "" || e.Dispatch == g.x.c.Dispatch && e.Dispatch != ""
	}) {
		return nil
	}
	b := s.bundle(g.x.c)
	if g.after != nil {
		g.after(b)
	}
	var out bytes.Buffer
	if bundle.Write(&out, b) != nil {
		return nil
	}
	return out.Bytes()
}

// mine returns the numbers of the entries in the bundle.
func (x *subject) mine() (list []int) {
	for i := range x.entries {
		list = append(list, int(x.entries[i].seq)) //nolint:gosec // G115: small
	}
	return list
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// change gives a field of entry i another value, and reports whether it could.
func (g *forgery) change(r *rand.Rand, i int, field string) bool {
	e := &g.entries[i]
	old, ok := record.FieldOf(e, field)
	if !ok {
		return false
	}
	switch field {
	case "refs":
		return g.changeRefs(r, e)
	case "kind":
		var like []record.Kind
		for _, k := range record.Kinds() {
			if k != e.Kind && reflect.TypeOf(k.Detail()) == reflect.TypeOf(e.Detail) {
				like = append(like, k)
			}
		}
		if len(like) == 0 {
			return false
		}
		e.Kind = pick(r, like)
		e.Decision = e.Kind.Decided()
		return true
	}
	v := reflect.New(old.Type()).Elem()
	v.Set(old)
	if !g.other(r, v, field) || fmt.Sprint(v.Interface()) == fmt.Sprint(old.Interface()) && old.Kind() != reflect.Pointer {
		return false
	}
	if name, inDetail := strings.CutPrefix(field, "detail."); inDetail {
		d := reflect.New(reflect.TypeOf(e.Detail)).Elem()
		d.Set(reflect.ValueOf(e.Detail))
		for f := range d.Type().Fields() {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
				d.FieldByIndex(f.Index).Set(v)
			}
		}
		e.Detail = d.Interface().(record.Detail) //nolint:forcetypeassert // it was one
		return true
	}
	if strings.HasPrefix(field, "prev.") {
		prev := g.x.s.entries[i].Prev
		f := reflect.ValueOf(&prev).Elem().FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, strings.TrimPrefix(field, "prev.")) })
		f.Set(v)
		g.links[i] = prev
		return true
	}
	old.Set(v)
	return true
}

// other sets v to another value that an attacker could want there.
func (g *forgery) other(r *rand.Rand, v reflect.Value, field string) bool {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = x.Add(pick(r, []time.Duration{-time.Hour, -time.Second, time.Nanosecond, time.Minute, 24 * time.Hour}))
	case **api.Tier:
		t := pick(r, []api.Tier{api.Observe, api.Reversible, api.Irreversible})
		if *x != nil && (**x == t || r.IntN(4) == 0) {
			*x = nil
			return true
		}
		*x = &t
	case *[]string:
		*x = otherList(r, *x)
	case *map[string]api.Digest:
		return false
	default:
		switch v.Kind() { //nolint:exhaustive // the fields have no others
		case reflect.String:
			v.SetString(g.otherText(r, v.String(), field))
		case reflect.Int, reflect.Int64:
			v.SetInt(pick(r, []int64{v.Int() + 1, v.Int() - 1, 0, 1, 2, 7, -v.Int(), 1<<53 - 1}))
		case reflect.Uint64:
			v.SetUint(pick(r, []uint64{v.Uint() + 1, v.Uint() - 1, 0, 1, 9}))
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			return false
		}
	}
	return true
}

func otherList(r *rand.Rand, list []string) []string {
	out := slices.Clone(list)
	switch r.IntN(4) {
	case 0:
		return append(out, "more")
	case 1:
		if len(out) > 0 {
			return append(out, out[0])
		}
		return []string{""}
	case 2:
		slices.Reverse(out)
		return out[:len(out)/2]
	}
	if len(out) == 0 {
		return []string{"owner"}
	}
	out[r.IntN(len(out))] += "x"
	return out
}

// otherText returns another text: what other entries have there, another spelling,
// or what the field may have in general.
func (g *forgery) otherText(r *rand.Rand, was, field string) string {
	pool := []string{
		"", was + "x", was + "\u200b", strings.ToUpper(was), "e\u0301", "local:eve", "local:ann", "service", "t-a1", "d-01", "a", "b", "r1",
		"denied", "lost", "timeout", "agent", "integrity", "context", "accepted", "started", "needs_input", "finished", "failed", "cancelled", "done", "passed",
		"observe", "irreversible", "owner", "operator", "2026-11-21T15:00:00Z", "...[cut: 5 bytes, sha256:" + strings.Repeat("0", 64) + "]", "s-1", "s-2", "t-aaaaaaaaaaaa",
	}
	for range 3 {
		if v, ok := record.FieldOf(&g.entries[r.IntN(len(g.entries))], field); ok && v.Kind() == reflect.String {
			pool = append(pool, v.String(), v.String(), v.String(), v.String())
		}
	}
	return pick(r, pool)
}

func refNames() []string {
	return []string{
		record.RefManifest, record.RefInput, record.RefResult, record.RefPatch, record.RefQuestion, record.RefAnswer, record.RefRevision, record.RefRecord,
		record.RefPlan, record.RefStatement, record.RefRotation, record.RefArguments, record.RefReturned, record.RefAction, record.RefCalls,
	}
}

// changeRefs adds, drops or changes a ref.
func (g *forgery) changeRefs(r *rand.Rand, e *record.Entry) bool {
	if e.Refs == nil {
		e.Refs = map[string]api.Digest{}
	}
	names := slices.Sorted(maps.Keys(e.Refs))
	all := slices.Sorted(maps.Keys(g.documents))
	for range 5 { // digests that other entries have
		for _, d := range g.entries[r.IntN(len(g.entries))].Refs {
			all = append(all, d)
		}
	}
	slices.Sort(all)
	name := pick(r, refNames())
	if len(names) > 0 && r.IntN(3) > 0 {
		name = pick(r, names)
		if r.IntN(4) == 0 {
			delete(e.Refs, name)
			return true
		}
	}
	d := pick(r, all)
	if r.IntN(3) == 0 {
		d = api.DigestOf([]byte("from nowhere"))
	}
	if e.Refs[name] == d {
		return false
	}
	e.Refs[name] = d
	return true
}

// replace puts another document in place of one, wherever it is named.
func (g *forgery) replace(old api.Digest, doc []byte) api.Digest {
	d := api.DigestOf(doc)
	g.documents[d] = doc
	for i := range g.entries {
		for name, ref := range g.entries[i].Refs {
			if ref == old {
				g.entries[i].Refs[name] = d
			}
		}
	}
	for i := range g.records {
		if g.records[i] == old {
			g.records[i] = d
		}
	}
	for key, rev := range g.revisions {
		if i := slices.Index(rev.Envelopes, old); i >= 0 {
			rev.Envelopes = slices.Clone(rev.Envelopes)
			rev.Envelopes[i] = d
			g.revisions[key] = rev
		}
	}
	return d
}

// payloads are the types of documents that are envelopes.
func payloads() []seal.PayloadType {
	return []seal.PayloadType{seal.Manifest, seal.Result, seal.Statement, seal.Revision, seal.Operator}
}

// payloadOf returns the payload of a document and its type; an empty type without an
// envelope.
func payloadOf(doc []byte) (seal.PayloadType, []byte) {
	for _, t := range payloads() {
		if payload, err := seal.Payload(doc, t); err == nil {
			return t, payload
		}
	}
	return "", doc
}

// changeJSON changes one value of a document, and returns where.
func changeJSON(r *rand.Rand, doc []byte) (out []byte, where string) {
	var root any
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	if dec.Decode(&root) != nil {
		return nil, ""
	}
	root, where = changeValue(r, root)
	out, err := canon.Marshal(root)
	if err != nil {
		return nil, where
	}
	return out, where
}

func changeValue(r *rand.Rand, v any) (any, string) {
	switch x := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(x))
		if len(keys) == 0 || r.IntN(12) == 0 {
			x["more"] = "x"
			return x, ".more"
		}
		k := pick(r, keys)
		if r.IntN(8) == 0 {
			delete(x, k)
			return x, "." + k
		}
		inner, where := changeValue(r, x[k])
		x[k] = inner
		return x, "." + k + where
	case []any:
		if len(x) == 0 || r.IntN(8) == 0 {
			return append(x, "x"), "[]"
		}
		i := r.IntN(len(x))
		if r.IntN(6) == 0 {
			return slices.Delete(x, i, i+1), "[]"
		}
		inner, where := changeValue(r, x[i])
		x[i] = inner
		return x, "[]" + where
	case string:
		return pick(r, []string{"", x + "x", "local:eve", "t-a1", strings.ToUpper(x), "sha256:" + strings.Repeat("0", 64), "2026-11-21T15:00:00Z", "1h0m0s", "observe", "irreversible"}), ""
	case json.Number:
		n, _ := x.Int64()
		return pick(r, []any{n + 1, n - 1, int64(0), int64(7)}), ""
	case bool:
		return !x, ""
	}
	return "x", ""
}

// forgeDocument changes a document of a log and signs it again with the service's
// key. With consistent set, a statement follows its manifest.
func (g *forgery) forgeDocument(t testing.TB, r *rand.Rand, consistent bool) string {
	all := slices.Sorted(maps.Keys(g.x.documents()))
	if len(all) == 0 {
		return ""
	}
	d := pick(r, all)
	kind, payload := payloadOf(g.documents[d])
	changed, where := changeJSON(r, payload)
	if changed == nil || bytes.Equal(changed, payload) {
		return ""
	}
	what := string(kind) + where
	if kind == "" {
		g.replace(d, changed)
		return "plan or artifact" + where
	}
	n := g.replace(d, g.signed(t, kind, changed))
	if kind == seal.Manifest && consistent {
		g.follow(t, d, n, changed)
	}
	return what
}

// signed signs a payload with the forger's key, also if another key should sign it.
func (g *forgery) signed(t testing.TB, kind seal.PayloadType, payload []byte) []byte {
	envelope, err := seal.Sign(context.Background(), kind, payload, g.signer)
	if err != nil {
		t.Error(err)
	}
	return envelope
}

// follow makes the statements about a manifest say what it says now.
func (g *forgery) follow(t testing.TB, old, now api.Digest, manifest []byte) {
	var m map[string]any
	if json.Unmarshal(manifest, &m) != nil {
		return
	}
	for i := range g.entries {
		d := g.entries[i].Refs[record.RefStatement]
		if d == "" || g.entries[i].Refs[record.RefManifest] != now {
			continue
		}
		_, payload := payloadOf(g.documents[d])
		payload = bytes.ReplaceAll(payload, []byte(old.Hex()), []byte(now.Hex()))
		var st map[string]any
		dec := json.NewDecoder(bytes.NewReader(payload))
		dec.UseNumber()
		if dec.Decode(&st) != nil {
			continue
		}
		definition, _ := st["predicate"].(map[string]any)["buildDefinition"].(map[string]any)
		for _, part := range []string{"externalParameters", "internalParameters"} {
			p, _ := definition[part].(map[string]any)
			for k := range p {
				if v, ok := m[k]; ok {
					p[k] = v
				}
			}
		}
		doc, err := canon.Marshal(st)
		if err != nil {
			continue
		}
		g.replace(d, g.signed(t, seal.Statement, doc))
	}
}

// documents are those that the bundle has.
func (x *subject) documents() map[api.Digest][]byte {
	b, err := bundle.Read(bytes.NewReader(x.file), bundle.Limits{})
	if err != nil {
		panic(err)
	}
	return b.Documents
}

// respell writes JSON with the same value in another way.
func respell(r *rand.Rand, leaf []byte) []byte {
	s := string(leaf)
	switch r.IntN(7) {
	case 0:
		return []byte(strings.Replace(s, ":", ": ", 1+r.IntN(3)))
	case 1:
		return []byte(strings.Replace(s, "a", `\u0061`, 1+r.IntN(4)))
	case 2:
		return []byte(strings.Replace(s, "{", `{"kind":"service.started",`, 1))
	case 3:
		return []byte(strings.Replace(s, `"v":1`, `"v":1.0`, 1))
	case 4:
		return []byte(strings.Replace(s, `"v":1`, `"v":1e0`, 1))
	case 5:
		return []byte(s + "\n")
	}
	return []byte(strings.Replace(s, `"decision"`, `"Decision"`, 1))
}
