package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// memberEdits are what a member of a document can be replaced by; absent removes it.
func memberEdits() map[string]any {
	return map[string]any{"removed": absent{}, "null": nil, "number": int64(7), "text": "x", "list": []any{}, "object": map[string]any{}, "true": true}
}

type absent struct{}

// memberPaths lists the members of a JSON document, and the first element of each list.
func memberPaths(doc []byte) (list [][]any) {
	root := jsonOf(doc)
	var walk func(at []any, v any)
	walk = func(at []any, v any) {
		switch x := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(x)) {
				next := append(slices.Clone(at), k)
				list = append(list, next)
				walk(next, x[k])
			}
		case []any:
			if len(x) > 0 {
				next := append(slices.Clone(at), 0)
				list = append(list, next)
				walk(next, x[0])
			}
		}
	}
	walk(nil, root)
	return list
}

func jsonOf(doc []byte) (root any) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	if dec.Decode(&root) != nil {
		return nil
	}
	return root
}

// editMember returns a document with another value at a path.
func editMember(doc []byte, path []any, value any) []byte {
	var edit func(v any, path []any) any
	edit = func(v any, path []any) any {
		if len(path) == 0 {
			return value
		}
		switch x := v.(type) {
		case map[string]any:
			k, _ := path[0].(string)
			if _, gone := value.(absent); gone && len(path) == 1 {
				delete(x, k)
			} else {
				x[k] = edit(x[k], path[1:])
			}
		case []any:
			if _, gone := value.(absent); gone && len(path) == 1 {
				return x[1:]
			}
			x[0] = edit(x[0], path[1:])
		}
		return v
	}
	out, err := canon.Marshal(edit(jsonOf(doc), path))
	if err != nil {
		return nil
	}
	return out
}

// editsOf are the edits that are tried of a path: all at the top, and in turn deeper.
func editsOf(path []any, turn int) []string {
	names := slices.Sorted(maps.Keys(memberEdits()))
	if len(path) == 1 {
		return names
	}
	return []string{"removed", "null", names[turn%len(names)]}
}

// leafWithout returns the file of a subject in which entry i has another value there.
func (x *subject) leafWithout(t testing.TB, i int, path []any, value any) []byte {
	g := x.forge()
	leaf := editMember(x.s.leaves[i], path, value)
	if leaf == nil {
		return nil
	}
	g.leaves[i] = leaf
	return g.file(t)
}

// documentWithout returns the file of a subject in which a document has another value
// there, signed by the key that signs such documents.
func (x *subject) documentWithout(t testing.TB, d api.Digest, path []any, value any) []byte {
	g := x.forge()
	kind, payload := payloadOf(g.documents[d])
	changed := editMember(payload, path, value)
	if changed == nil {
		return nil
	}
	switch kind {
	case "":
		g.replace(d, changed)
		return g.file(t)
	case seal.Revision:
		g.signer = x.s.deploy
	case seal.Operator:
		g.signer = x.s.operator
	case seal.Result:
		for key, at := range x.s.resultsAt {
			if at == d {
				g.signer = x.s.workers[key]
			}
		}
	default: // signed by the key of the service, which is the signer already
	}
	g.replace(d, g.signed(t, kind, changed))
	return g.file(t)
}

// Every member of every kind of entry is removed, null or of another type, by who can sign
// again. So is every member of every kind of document, signed by the key that signs it.
// The verifier never panics, and no such entry is accepted with another meaning. The
// control: a check that panics is found.
//
// proves R-A7
func TestNoMissingMemberIsAcceptedOrPanics(t *testing.T) {
	subjects := mutantSubjects(t)
	tried, files := map[string]bool{}, 0
	wrong := func(what string, in []byte, x *subject, strict bool) {
		if in == nil {
			return
		}
		files++
		j := x.judgeFile(in, &mutation{linked: !strict}, agreements())
		if j.outcome == accepted && (strict || strings.Contains(j.why, defect)) {
			t.Errorf("%s: %s: %s", x.name, what, j.why)
		}
	}
	turn := 0
	for _, x := range subjects {
		for _, i := range x.mine() {
			kind := string(x.s.entries[i].Kind)
			for _, path := range memberPaths(x.s.leaves[i]) {
				key := fmt.Sprint(kind, path)
				if tried[key] {
					continue
				}
				if tried[key] = true; turn%(*every) > 0 {
					turn++
					continue
				}
				for _, name := range editsOf(path, turn) {
					wrong(fmt.Sprintf("entry #%d, %s: %v %s", i, kind, path, name), x.leafWithout(t, i, path, memberEdits()[name]), x, true)
				}
				turn++
			}
		}
		for d := range x.documents() {
			kind, payload := payloadOf(x.s.documents[d])
			strict := kind == seal.Manifest || kind == seal.Statement // whose key the attacker has
			for _, path := range memberPaths(payload) {
				key := fmt.Sprint("document ", kind, x.nameOf(d), path)
				if tried[key] {
					continue
				}
				if tried[key] = true; turn%(*every) > 0 {
					turn++
					continue
				}
				for _, name := range editsOf(path, turn) {
					wrong(fmt.Sprintf("%s %s: %v %s", kind, x.nameOf(d), path, name), x.documentWithout(t, d, path, memberEdits()[name]), x, strict)
				}
				turn++
			}
		}
	}
	t.Logf("%d bundles, %d members of entries and documents, %d mutants", len(subjects), len(tried), files)
	x := subjects[0]
	r := verify(reread(t, must(bundle.Read(bytes.NewReader(x.file), bundle.Limits{}))), x.trust, Options{}, tableOf([]agreement{{kinds: inBundles(), field: "at", truth: byKind, check: func(*scene) verdict {
		panic("planted")
	}}}))
	if defectIn(&r) == "" || !r.Failed() || r.Row(report.RowCompleteness).Status != report.Fail {
		t.Errorf("control: a check that panics is not a failed row:\n%s", r.Text())
	}
}

// nameOf is as what entries name a document; empty for one that none names.
func (x *subject) nameOf(d api.Digest) string {
	for i := range x.s.entries {
		for name, ref := range x.s.entries[i].Refs {
			if ref == d {
				return name
			}
		}
	}
	return ""
}

// Every member of every kind of catalog document is removed, null or of another type, in a
// revision that is signed: the verifier never panics.
//
// proves R-A7
func TestNoCatalogDocumentPanicsTheVerifier(t *testing.T) {
	var refs map[api.Ref]any
	s := seeded(t)
	s.editCatalog = func(docs map[api.Ref]any) { refs = maps.Clone(docs) }
	s.publish("local:ann")
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		doc, err := canon.Marshal(refs[ref])
		s.must(err)
		for turn, path := range memberPaths(doc) {
			for _, name := range editsOf(path, turn) {
				s := seeded(t)
				s.editCatalog = func(docs map[api.Ref]any) {
					var changed any
					if json.Unmarshal(editMember(doc, path, memberEdits()[name]), &changed) == nil {
						docs[ref] = changed
					}
				}
				s.publish("local:ann")
				s.whole("d-00")
				if r := Verify(reread(t, s.bundle(bundle.Case{Dispatch: "d-00"})), s.trust(), Options{}); defectIn(&r) != "" {
					t.Errorf("%s: %v %s: %s", ref, path, name, defectIn(&r))
				}
			}
		}
	}
}

// FuzzMembers puts any JSON value in place of any member of an entry or a document.
func FuzzMembers(f *testing.F) {
	subjects := mutantSubjects(f)
	for i := range uint16(40) {
		f.Add(i, i*7, i*13, i%2 == 0, []byte(`null`))
		f.Add(i, i*5, i*11, i%2 == 0, []byte(`{"a":[1]}`))
	}
	f.Fuzz(func(t *testing.T, subject, item, member uint16, entry bool, value []byte) {
		x := subjects[int(subject)%len(subjects)]
		v := jsonOf(value)
		if len(value) == 0 {
			v = absent{}
		}
		var in []byte
		if entry {
			all := x.mine()
			i := all[int(item)%len(all)]
			paths := memberPaths(x.s.leaves[i])
			in = x.leafWithout(t, i, paths[int(member)%len(paths)], v)
		} else {
			all := slices.Sorted(maps.Keys(x.documents()))
			d := all[int(item)%len(all)]
			_, payload := payloadOf(x.s.documents[d])
			paths := memberPaths(payload)
			if len(paths) == 0 {
				return
			}
			in = x.documentWithout(t, d, paths[int(member)%len(paths)], v)
		}
		if in == nil {
			return
		}
		if j := x.judgeFile(in, &mutation{linked: true}, agreements()); strings.Contains(j.why, defect) || entry && j.outcome == accepted {
			t.Fatal(j.why)
		}
	})
}
