package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// Instances returns the tasks that grow from one with a for_each, one for each item.
func Instances(t *api.PlanTask, items []Item) ([]api.PlanTask, error) {
	out, _, err := instances(t, items, api.MaxRunInput)
	return out, err
}

// instances returns the tasks of a for_each, one for each item, and the bytes of the
// inputs that are made for them, at most left. An item is from an agent: it decides
// inputs, locks and which products are needed, and nothing else.
func instances(t *api.PlanTask, items []Item, left int) (tasks []api.PlanTask, filled int, err error) {
	tasks = make([]api.PlanTask, 0, len(items))
	seen := make(map[string]bool, len(items))
	for i := range items {
		item := &items[i]
		if _, err := api.ParseTaskID(item.Name); err != nil || seen[item.Name] {
			return nil, filled, fmt.Errorf("item %d: duplicate or invalid name %s", i+1, clip(item.Name))
		}
		seen[item.Name] = true
		one, n, err := instance(t, item, left-filled)
		if err != nil {
			return nil, filled, fmt.Errorf("item %q: %w", item.Name, err)
		}
		filled += n
		tasks = append(tasks, one)
	}
	return tasks, filled, nil
}

// instance returns the task of one item.
func instance(t *api.PlanTask, item *Item, left int) (one api.PlanTask, filled int, err error) {
	one = *t
	one.ID, one.ForEach, one.When, one.After = instanceID(t.ID, item.Name), nil, nil, ""
	fill := func(doc *json.RawMessage) {
		var made json.RawMessage
		if err == nil {
			made, err = item.fill(*doc)
		}
		if err != nil || made == nil {
			return
		}
		if filled += len(made); filled > left || len(made) > api.MaxInput {
			err = fmt.Errorf("an input of %d bytes: at most %d, and %d in all inputs of a run that have placeholders", len(made), api.MaxInput, api.MaxRunInput)
		}
		*doc = made
	}
	fill(&one.Input)
	if t.Gate != nil {
		gate := *t.Gate
		fill(&gate.Verify.Input)
		fill(&gate.Fix.Input)
		one.Gate = &gate
	}
	if err == nil {
		one.Needs, err = item.needs(t.Needs)
	}
	if err == nil {
		one.Locks, err = item.locks(t.Locks)
	}
	return one, filled, err
}

func instanceID(t api.TaskID, name string) api.TaskID {
	return api.TaskID(fmt.Sprintf("%s[%s]", t, name))
}

func (item *Item) needs(template map[api.Name]api.Need) (map[api.Name]api.Need, error) {
	needs := maps.Clone(template)
	for name, n := range needs {
		output, err := item.text(n.Output, maxPath)
		if err == nil && n.Output != "" {
			err = checkOutput(output)
		}
		if err != nil {
			return nil, fmt.Errorf("need %q: %w", name, err)
		}
		n.Output = output
		needs[name] = n
	}
	return needs, nil
}

func (item *Item) locks(template []api.Lock) ([]api.Lock, error) {
	locks := slices.Clone(template)
	seen := make(map[string]bool, len(locks))
	for i := range locks {
		key, err := item.text(locks[i].Key, api.MaxLockKey)
		if err == nil {
			err = checkLock(key)
		}
		if err == nil && seen[key] {
			err = fmt.Errorf("duplicate lock %s", clip(key))
		}
		if err != nil {
			return nil, err
		}
		seen[key] = true
		locks[i].Key = key
	}
	return locks, nil
}

// text replaces the placeholders in a text by those values of the item that are text.
func (item *Item) text(s string, most int) (string, error) {
	if !strings.Contains(s, "{{each.") {
		return s, nil
	}
	var wrong error
	s = placeholder.ReplaceAllStringFunc(s, func(p string) string {
		v, err := item.value(p)
		text, ok := v.(string)
		if raw, isValue := v.(json.RawMessage); isValue {
			ok = json.Unmarshal(raw, &text) == nil
		}
		if err == nil && (!ok || text == "") {
			err = fmt.Errorf("%s is not text", p)
		}
		if err != nil && wrong == nil {
			wrong = err
		}
		return text
	})
	switch {
	case wrong != nil:
		return "", wrong
	case utf8.RuneCountInString(s) > most:
		return "", fmt.Errorf("%s: %d characters: at most %d", clip(s), utf8.RuneCountInString(s), most)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", fmt.Errorf("%s contains a control character", clip(s))
	}
	return s, nil
}

// value is what a placeholder stands for.
func (item *Item) value(placeholder string) (any, error) {
	switch {
	case placeholder == "{{each.name}}":
		return item.Name, nil
	case placeholder == "{{each.path}}" && item.Path != "":
		return item.Path, nil
	case placeholder == "{{each.value}}" && item.Value != nil:
		return item.Value, nil
	}
	return nil, fmt.Errorf("the item has no %s", clip(placeholder))
}

// fill replaces the strings of a JSON document that are placeholders by JSON values. Nil:
// it has none.
func (item *Item) fill(doc json.RawMessage) (json.RawMessage, error) {
	if !strings.Contains(string(doc), "{{each.") {
		return nil, nil
	}
	var tree any
	err := json.Unmarshal(doc, &tree)
	if err == nil {
		tree, err = item.filled(tree)
	}
	if err != nil {
		return nil, err
	}
	return canon.Marshal(tree)
}

func (item *Item) filled(v any) (_ any, err error) {
	switch v := v.(type) {
	case string:
		if placeholder.FindString(v) == v && v != "" {
			return item.value(v)
		}
	case []any:
		for i := range v {
			if v[i], err = item.filled(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = item.filled(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// checkLock refuses the key of a lock that people could take for another.
func checkLock(key string) error {
	if err := strictyaml.CheckText(key); err != nil {
		return fmt.Errorf("lock %s %w", clip(key), err)
	}
	if strings.TrimSpace(key) != key || key == "" {
		return fmt.Errorf("lock %s begins or ends with white space", clip(key))
	}
	return nil
}

// checkOutput refuses what is no clean path below outputs/.
func checkOutput(p string) error {
	switch clean := path.Clean(p); {
	case strings.HasPrefix(p, "/"):
		return fmt.Errorf("%s is absolute: want a path relative to outputs/", clip(p))
	case p == ".." || strings.HasPrefix(clean, "../"):
		return fmt.Errorf("%s leads out of outputs/", clip(p))
	case p == "." || clean != p:
		return fmt.Errorf("%s is not a clean path: want %s", clip(p), clip(clean))
	}
	if err := strictyaml.CheckText(p); err != nil {
		return fmt.Errorf("%s %w", clip(p), err)
	}
	return nil
}
