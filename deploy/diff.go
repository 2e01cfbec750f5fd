package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
)

// Op is what happens to an artifact or a field.
type Op string

// The operations.
const (
	Add    Op = "add"
	Change Op = "change"
	Remove Op = "remove"
)

// ArtifactChange is what happens to one artifact.
type ArtifactChange struct {
	Op     Op            `json:"op"`
	Ref    api.Ref       `json:"ref"`
	Fields []FieldChange `json:"fields"`
}

// FieldChange is what happens to one field of it.
type FieldChange struct {
	Op    Op     `json:"op"`
	Field string `json:"field"` // "limits.memory", "files/setup.sh"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// Diff compares two sets of artifacts, field by field. A nil set is empty.
func Diff(before, after *catalog.Set) []ArtifactChange {
	if before == nil {
		before = catalog.NewSet()
	}
	if after == nil {
		after = catalog.NewSet()
	}
	refs := map[api.Ref]bool{}
	for _, r := range append(before.Refs(), after.Refs()...) {
		refs[r] = true
	}
	var all []ArtifactChange
	for _, ref := range slices.SortedFunc(maps.Keys(refs), byKind) {
		old, now := before.Document(ref), after.Document(ref)
		if bytes.Equal(old, now) {
			continue
		}
		c := ArtifactChange{Op: opOf(old != nil, now != nil), Ref: ref}
		c.Fields = diffFields(flatten(old), flatten(now))
		all = append(all, c)
	}
	return all
}

// byKind orders refs as people read a catalog.
func byKind(a, b api.Ref) int {
	ka, _, _ := strings.Cut(string(a), "/")
	kb, _, _ := strings.Cut(string(b), "/")
	kinds := api.Kinds()
	if d := slices.Index(kinds, api.Kind(ka)) - slices.Index(kinds, api.Kind(kb)); d != 0 {
		return d
	}
	return strings.Compare(string(a), string(b))
}

func opOf(before, after bool) Op {
	switch {
	case !before:
		return Add
	case !after:
		return Remove
	}
	return Change
}

func diffFields(old, now map[string]string) []FieldChange {
	names := map[string]bool{}
	for n := range old {
		names[n] = true
	}
	for n := range now {
		names[n] = true
	}
	all := []FieldChange{}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		o, before := old[n]
		v, after := now[n]
		if before && after && o == v {
			continue
		}
		all = append(all, FieldChange{opOf(before, after), n, o, v})
	}
	return all
}

// flatten turns an artifact document into fields with a text each. The name
// is left out: it is in the ref.
func flatten(doc []byte) map[string]string {
	fields := map[string]string{}
	if doc == nil {
		return fields
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return map[string]string{"document": err.Error()} // cannot be: the set has read it
	}
	delete(v, "name")
	if files, ok := v["files"].([]any); ok {
		delete(v, "files")
		for _, f := range files {
			if f, ok := f.(map[string]any); ok {
				fields[fmt.Sprintf("files/%v", f["path"])] = fileText(f)
			}
		}
	}
	flattenInto(fields, "", v)
	return fields
}

func fileText(f map[string]any) string {
	mode := "0644"
	if fmt.Sprint(f["mode"]) != "420" {
		mode = "0755"
	}
	return fmt.Sprintf("%s %v bytes %s", mode, f["size"], api.Digest(fmt.Sprint(f["digest"])).Short())
}

func flattenInto(fields map[string]string, at string, v any) {
	if m, ok := v.(map[string]any); ok && (len(m) > 0 || at == "") {
		for name, item := range m {
			if at != "" {
				name = at + "." + name
			}
			flattenInto(fields, name, item)
		}
		return
	}
	if at == "limits" { // an empty mapping: nothing is said
		return
	}
	fields[at] = valueText(at, v)
}

func valueText(at string, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		switch at[strings.LastIndex(at, ".")+1:] {
		case "memory", "disk", "fileSize", "log":
			if n, err := v.Int64(); err == nil && strings.HasPrefix(at, "limits.") {
				return api.Bytes(n).String()
			}
		}
		return v.String()
	case []any:
		parts := make([]string, 0, len(v))
		for _, item := range v {
			s := valueText("", item)
			if text, ok := item.(string); ok && (text == "" || strings.ContainsAny(text, ", []{}\"\n")) {
				s = fmt.Sprintf("%q", text)
			}
			parts = append(parts, s)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+valueText("", v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}
