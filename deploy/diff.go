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

// Op is the change of an artifact or a field.
type Op string

// The operations.
const (
	Add    Op = "add"
	Change Op = "change"
	Remove Op = "remove"
)

// ArtifactChange is the change of one artifact.
type ArtifactChange struct {
	Op     Op            `json:"op"`
	Ref    api.Ref       `json:"ref"`
	Fields []FieldChange `json:"fields"`
}

// FieldChange is the change of one field.
type FieldChange struct {
	Op    Op     `json:"op"`
	Field string `json:"field"` // "limits.memory", "files/setup.sh"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// FieldProject is the field that says which project an artifact belongs to.
const FieldProject = "project"

// Diff compares two sets of artifacts, field by field. A nil set is empty. A change
// of the project is a change of the artifact, in the field FieldProject.
func Diff(before, after *catalog.Set) []ArtifactChange {
	if before == nil {
		before = catalog.NewSet()
	}
	if after == nil {
		after = catalog.NewSet()
	}
	refs := append(before.Refs(), after.Refs()...)
	slices.SortFunc(refs, byKind)
	all := []ArtifactChange{}
	for _, ref := range slices.Compact(refs) {
		old, now := before.Document(ref), after.Document(ref)
		fields := []FieldChange{}
		if was, is := before.Project(ref), after.Project(ref); old != nil && now != nil && was != is {
			fields = append(fields, FieldChange{Change, FieldProject, string(was), string(is)})
		}
		if bytes.Equal(old, now) && len(fields) == 0 {
			continue
		}
		all = append(all, ArtifactChange{opOf(old != nil, now != nil), ref, append(fields, diffFields(flatten(old), flatten(now))...)})
	}
	return all
}

// byKind orders refs by kind, then by name.
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
	names := maps.Clone(old)
	maps.Copy(names, now)
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

// flatten turns an artifact document into fields with one text each, without the
// name, which is in the ref.
func flatten(doc []byte) map[string]string {
	fields := map[string]string{}
	if doc == nil {
		return fields
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return map[string]string{"document": err.Error()} // cannot happen: the set has decoded it
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
	flattenTool(fields, v)
	flattenInto(fields, "", v)
	return fields
}

// flattenTool has a field for who may call each tool of a server, and one for each part
// of its definition.
func flattenTool(fields map[string]string, v map[string]any) {
	named := func(section, name string) string {
		if name == "" {
			return section // of a declared command
		}
		return section + "/" + name
	}
	allow, _ := v["allow"].([]any)
	definitions, ok := v["definitions"].([]any)
	if !ok {
		return
	}
	delete(v, "allow")
	delete(v, "definitions")
	for _, item := range allow {
		if a, ok := item.(map[string]any); ok {
			tool, _ := a["tool"].(string)
			delete(a, "tool")
			if wait, ok := a["approval"].(map[string]any); ok && len(wait) == 0 {
				a["approval"] = true // as people write it
			}
			fields[named("allow", tool)] = strings.Trim(valueText("", a), "{}")
		}
	}
	for _, item := range definitions {
		d, ok := item.(map[string]any)
		if !ok {
			continue
		}
		tool, _ := d["name"].(string)
		for part, value := range d {
			switch text, isText := value.(string); {
			case part == "name" || tool == "" && part == "description": // that of the command
			case isText:
				fields[named("definitions", tool)+"."+part] = text
			default:
				b, _ := json.Marshal(value) // of decoded JSON
				fields[named("definitions", tool)+"."+part] = IndentJSON(b)
			}
		}
	}
}

// IndentJSON returns JSON for people.
func IndentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
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
	if at == "limits" { // empty: all defaults
		return
	}
	fields[at] = valueText(at, v)
}

func valueText(at string, v any) string {
	switch v := v.(type) {
	case nil: // a list without elements
		return "[]"
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
