// Package catalogdiff compares two revisions of the catalog: field by field, and as
// lines that say which authority principals and workers get or lose.
//
// deploy shows the lines before a revision is signed, and the service shows them
// afterwards. The package reads nothing and writes nothing.
package catalogdiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Compare returns how two sets of artifacts differ. A nil set is empty.
func Compare(before, after *catalog.Set) api.CatalogDiff {
	return api.CatalogDiff{Changes: Changes(before, after), Widens: widenings(before, after), Narrows: narrowings(before, after)}
}

// Changes compares two sets of artifacts, field by field. A nil set is empty. A change
// of the project is a change of the artifact, in the field api.FieldProject.
func Changes(before, after *catalog.Set) []api.ArtifactChange {
	if before == nil {
		before = catalog.NewSet()
	}
	if after == nil {
		after = catalog.NewSet()
	}
	refs := append(before.Refs(), after.Refs()...)
	slices.SortFunc(refs, api.CompareRefs)
	all := []api.ArtifactChange{}
	for _, ref := range slices.Compact(refs) {
		old, now := before.Document(ref), after.Document(ref)
		fields := []api.FieldChange{}
		if was, is := before.Project(ref), after.Project(ref); old != nil && now != nil && was != is {
			fields = append(fields, api.FieldChange{Op: api.OpChange, Field: api.FieldProject, Old: string(was), New: string(is)})
		}
		if bytes.Equal(old, now) && len(fields) == 0 {
			continue
		}
		all = append(all, api.ArtifactChange{Op: opOf(old != nil, now != nil), Ref: ref, Fields: append(fields, diffFields(flatten(old), flatten(now))...)})
	}
	return all
}

func opOf(before, after bool) api.ChangeOp {
	switch {
	case !before:
		return api.OpAdd
	case !after:
		return api.OpRemove
	}
	return api.OpChange
}

func diffFields(old, now map[string]string) []api.FieldChange {
	names := maps.Clone(old)
	maps.Copy(names, now)
	all := []api.FieldChange{}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		o, before := old[n]
		v, after := now[n]
		if before && after && o == v {
			continue
		}
		all = append(all, api.FieldChange{Op: opOf(before, after), Field: n, Old: o, New: v})
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
	if len(raw) == 0 {
		return ""
	}
	return visibletext.JSON(raw)
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
