package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// Item is one item of a for_each.
type Item struct {
	Name  string          `json:"name"`
	Path  string          `json:"path,omitempty"`  // of an output
	Value json.RawMessage `json:"value,omitempty"` // canonical
}

// ItemsOf returns the items of a task with a for_each. sum is the result of the task
// that the list is from; nil where it has values. The result is from an agent: whatever
// is not a list of distinct valid names is an error that says why.
func ItemsOf(f *api.ForEach, sum *api.ResultSummary) (items []Item, err error) {
	most := f.Max
	switch {
	case most > 0:
	case f.From == "":
		most = api.MaxForEach
	default:
		most = api.DefaultForEach
	}
	switch {
	case f.From != "" && sum == nil:
		err = errors.New("no result")
	case f.Outputs != "":
		if err = allTaken(f.Outputs, sum.LeftOut); err == nil {
			items, err = matching(f.Outputs, sum.Outputs, most)
		}
	case f.Items != "":
		var list []json.RawMessage
		if list, err = listAt(sum.Value, f.Items); err == nil {
			items, err = valued(list, most)
		}
	default:
		items, err = valued(f.Values, most)
	}
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(items))
	for i := range items {
		if _, err := api.ParseTaskID(items[i].Name); err != nil {
			return nil, fmt.Errorf("item %d: name %s: want 1 to 64 of a-z A-Z 0-9 . _ - beginning and ending with a letter or digit", i+1, clip(items[i].Name))
		}
		if seen[items[i].Name] {
			return nil, fmt.Errorf("item %d: duplicate name %s", i+1, clip(items[i].Name))
		}
		seen[items[i].Name] = true
	}
	return items, nil
}

// starred returns what the star of a pattern stands for in a path that matches it.
func starred(pattern, path string) (string, bool) {
	before, after, _ := strings.Cut(pattern, "*")
	if len(path) < len(before)+len(after)+1 || !strings.HasPrefix(path, before) || !strings.HasSuffix(path, after) {
		return "", false
	}
	name := path[len(before) : len(path)-len(after)]
	return name, !strings.Contains(name, "/")
}

// allTaken refuses outputs if some were left out, such as symbolic links: what
// matches the pattern would not be the list that the worker left.
func allTaken(pattern string, leftOut []api.LeftOut) error {
	const dir = "outputs"
	inOutputs := false
	for _, l := range leftOut {
		path, below := strings.CutPrefix(strings.Trim(l.Path, `"`), dir+"/")
		_, match := starred(pattern, path)
		switch {
		case l.Path == dir, below && (match || strings.HasPrefix(pattern, path+"/")), l.Path == "..." && inOutputs: // more than are listed
			return fmt.Errorf("%s was left out: %s", clip(l.Path), strictyaml.Clip(l.Why))
		}
		inOutputs = below
	}
	return nil
}

// matching returns the outputs that match a pattern, sorted by name.
func matching(pattern string, outputs []api.Artifact, most int) ([]Item, error) {
	var items []Item
	for _, o := range outputs {
		if name, ok := starred(pattern, o.Path); ok {
			items = append(items, Item{Name: name, Path: o.Path})
		}
	}
	if len(items) > most {
		return nil, fmt.Errorf("%d outputs match %s, more than max %d", len(items), clip(pattern), most)
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

func valued(list []json.RawMessage, most int) ([]Item, error) {
	if len(list) > most {
		return nil, fmt.Errorf("%d items, more than max %d", len(list), most)
	}
	items := make([]Item, len(list))
	for i, raw := range list {
		value, err := canon.Canonicalize(raw)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		items[i].Value = value
		if json.Unmarshal(value, &items[i].Name) == nil {
			continue
		}
		var named struct {
			Name *string `json:"name"`
		}
		if value[0] != '{' || json.Unmarshal(value, &named) != nil || named.Name == nil {
			return nil, fmt.Errorf(`item %d: want a name, or an object with "name", got %s`, i+1, kind(value))
		}
		items[i].Name = *named.Name
	}
	return items, nil
}

// At returns the value at a place such as $.a.b in a JSON document.
func At(doc json.RawMessage, place string) (json.RawMessage, error) {
	if len(doc) == 0 {
		return nil, errors.New("no structured result")
	}
	doc, err := canon.Canonicalize(doc)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	keys := strings.Split(place, ".")
	for i, key := range keys[1:] {
		var members map[string]json.RawMessage
		if doc[0] != '{' || json.Unmarshal(doc, &members) != nil {
			return nil, fmt.Errorf("%s: want an object, got %s", strings.Join(keys[:i+1], "."), kind(doc))
		}
		next, ok := members[key]
		if !ok {
			return nil, fmt.Errorf("%s has no member %s", strings.Join(keys[:i+1], "."), clip(key))
		}
		doc = next
	}
	return doc, nil
}

func listAt(doc json.RawMessage, place string) (list []json.RawMessage, err error) {
	found, err := At(doc, strings.TrimSuffix(place, "[*]"))
	if err != nil {
		return nil, err
	}
	if found[0] != '[' || json.Unmarshal(found, &list) != nil {
		return nil, fmt.Errorf("%s: want a list, got %s", strings.TrimSuffix(place, "[*]"), kind(found))
	}
	return list, nil
}

// Holds reports whether a condition holds for the result of its task. A result that
// does not have the value is an error.
func Holds(w *api.When, sum *api.ResultSummary) (bool, error) {
	found, err := At(sum.Value, w.Result)
	if err != nil {
		return false, err
	}
	want, err := canon.Canonicalize(w.Is)
	return err == nil && string(found) == string(want), err
}

// VerdictOf returns the verdict of a result, which is one of the two that are wanted.
func VerdictOf(sum *api.ResultSummary, yes, no string) (bool, error) {
	found, err := At(sum.Value, "$.verdict")
	if err != nil {
		return false, err
	}
	var s string
	if json.Unmarshal(found, &s) != nil || s != yes && s != no {
		return false, fmt.Errorf("verdict: want %q or %q, got %s", yes, no, kind(found))
	}
	return s == yes, nil
}
