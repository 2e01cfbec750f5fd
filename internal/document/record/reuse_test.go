package record

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// pureManifest has a value in every member that a first attempt can have.
func pureManifest() *Manifest {
	d := func(s string) api.Digest { return api.DigestOf([]byte(s)) }
	m := &Manifest{
		V: 1, ID: "d-1", Attempt: 1, Principal: "local:ann", Policies: []string{"grant:g"}, Revision: 3, RevisionDigest: d("revision"),
		Subagent: "code", Agent: "command", Model: "m/high", Role: "transform", Tier: api.Reversible, Ceiling: api.Reversible, Target: "local", Level: "full",
		Capabilities: []api.Name{"tools"}, Envs: []api.Name{"plain"}, Source: &api.PinnedSource{Name: "app", Commit: strings.Repeat("a", 40)},
		Limits: api.DefaultLimits(), Egress: []string{"a.example:443"}, Endpoint: &api.ModelUse{Name: "m", Level: "high", ID: "big-1"},
		Secrets: []api.SecretRef{{Name: "token"}}, Tools: []api.Name{"web"}, Input: d("input"), Pure: &Pure{Tree: strings.Repeat("b", 40), Version: "1.0.0", Integrity: "sha512-x"},
		Run: "r1", Task: "a", Fence: 7, Needs: []Need{{Name: "in", Item: "one", Task: "b", Dispatch: "d-0", Kind: NeedOutput, Path: "out", Digest: d("need"), Size: 3}},
		Trace: "t", NotBefore: time.Unix(1, 0), Expires: time.Unix(2, 0), Nonce: strings.Repeat("0", 32),
	}
	for _, ref := range m.Refs() {
		m.Artifacts = append(m.Artifacts, Pin{ref, d(string(ref))})
	}
	return m
}

// outsideTheKey are the members of a manifest whose change leaves the key as it is, with
// the reason.
func outsideTheKey() map[string]string {
	return map[string]string{
		"V": "the format of the document; the key has its own version", "ID": "identity", "Principal": "the grant decides whose results are shared",
		"Policies": "decided today", "Revision": "its artifacts are in the key, by digest", "RevisionDigest": "likewise", "Tier": "of the subagent", "Ceiling": "decided today",
		"Subagent": "its artifact is in the key", "Role": "likewise", "Target": "likewise", "Capabilities": "their artifacts are in the key, in order", "Envs": "likewise", "Tools": "likewise",
		"Model": "of the subagent; Endpoint says what it means", "Source": "its tree is in the key", "Limits": "a complete result was made within its limits",
		"Secrets": "the envs name them, and a new value opens the same door", "Run": "identity", "Task": "identity", "Fence": "of the lease", "Trace": "identity",
		"NotBefore": "a moment", "Expires": "a moment", "Nonce": "identity",
		"ItemFrom": "its text is in the input", "DecidedBy": "there is one only with a taint, which leaves no key", "VerifyTime": "follows from the subagent, whose artifact is in the key", "Drain": "the same for all with an endpoint, which is in the key", "Needs.Task": "identity of the giver", "Needs.Dispatch": "likewise", "Needs.Size": "follows from the digest",
	}
}

// withoutKey are the members that leave no key at all: such a dispatch is not reused.
func withoutKey() []string { return []string{"Attempt", "Resume", "Taint"} }

// leaf is a member of a manifest that can be changed.
type leaf struct {
	name   string
	change func(m *Manifest)
}

// leavesOf are the members of a manifest. Those of Pure, Endpoint and Needs are listed by
// themselves.
func leavesOf() (all []leaf) {
	add := func(name string, at func(m *Manifest) reflect.Value) {
		all = append(all, leaf{name, func(m *Manifest) { other(at(m)) }})
	}
	for f := range reflect.TypeFor[Manifest]().Fields() {
		if f.Name == "Artifacts" {
			continue // TestEachPinnedArtifact… changes each
		}
		under := func(typ reflect.Type, get func(m *Manifest) reflect.Value) {
			for g := range typ.Fields() {
				add(f.Name+"."+g.Name, func(m *Manifest) reflect.Value { return get(m).FieldByName(g.Name) })
			}
		}
		member := func(m *Manifest) reflect.Value { return reflect.ValueOf(m).Elem().FieldByName(f.Name) }
		switch f.Name {
		case "Pure", "Endpoint":
			under(f.Type.Elem(), func(m *Manifest) reflect.Value { return member(m).Elem() })
		case "Needs":
			under(f.Type.Elem(), func(m *Manifest) reflect.Value { return member(m).Index(0) })
		default:
			add(f.Name, member)
		}
	}
	return all
}

// other gives a value another one.
func other(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // manifests have no others
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(99, 0)))
			return
		}
		other(v.Field(0))
	default:
		panic(v.Type().String())
	}
}

// Each member of a manifest is in the key of reuse, or it is known why it is not: a new
// member fails here until it is in one of the two.
//
// proves R-O12
func TestEachMemberOfAManifestIsInTheKeyOrLeftOutForAReason(t *testing.T) {
	key := func(m *Manifest) api.Digest {
		t.Helper()
		k, err := ReuseKey(m)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	base := key(pureManifest())
	if base == "" || base != key(pureManifest()) {
		t.Fatalf("the key is %q, then %q", base, key(pureManifest()))
	}
	left := outsideTheKey()
	for _, l := range leavesOf() {
		m := pureManifest()
		l.change(m)
		got := key(m)
		switch why, out := left[l.name]; {
		case slices.Contains(withoutKey(), l.name):
			if got != "" {
				t.Errorf("%s: there is a key with it", l.name)
			}
		case out && got != base:
			t.Errorf("%s changes the key, though: %s", l.name, why)
		case !out && (got == base || got == ""):
			t.Errorf("%s does not change the key: add it to ReuseKey, or say in outsideTheKey why not", l.name)
		}
		delete(left, l.name)
	}
	for name := range left {
		t.Errorf("outsideTheKey lists %s, which no manifest has", name)
	}
	m := pureManifest()
	m.Pure = nil
	if key(m) != "" {
		t.Error("a subagent that is not pure has a key")
	}
}

// proves R-O12
func TestEachPinnedArtifactThatDecidesWhatRunsIsInTheKey(t *testing.T) {
	base, err := ReuseKey(pureManifest())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[api.Kind]bool{}
	for i := range pureManifest().Artifacts {
		m := pureManifest()
		kind, _, err := m.Artifacts[i].Ref.Split()
		if err != nil {
			t.Fatal(err)
		}
		seen[kind] = true
		m.Artifacts[i].Digest = api.DigestOf([]byte("another"))
		got, err := ReuseKey(m)
		if err != nil || (got != base) != slices.Contains(reuseKinds(), kind) {
			t.Errorf("another %s: changed %t, %v", kind, got != base, err)
		}
	}
	for _, k := range append(reuseKinds(), api.KindSource, api.KindModel, api.KindSecret) {
		if !seen[k] {
			t.Errorf("no %s is pinned: the test is blind", k)
		}
	}
}
