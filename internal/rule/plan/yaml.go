package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"
)

// YAML is the plan as a person writes it. It fails if the plan has texts with
// invisible characters, which ReadText refuses; such a plan can be written as JSON.
func YAML(p *Plan) ([]byte, error) {
	root, err := node(p.canonical, "")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(root), e.Close()); err != nil {
		return nil, err
	}
	if again, _ := ReadText(b.Bytes()); !bytes.Equal(again.JSON, p.canonical) {
		return nil, errors.New("the plan has text that cannot be written as YAML, such as control characters; write it as JSON")
	}
	return b.Bytes(), nil
}

// node is a JSON value as YAML. Small values are written on one line.
func node(raw json.RawMessage, key string) (*yaml.Node, error) {
	switch raw[0] {
	case '{':
		return mapping(raw, key)
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if key != "tasks" {
			n.Style = yaml.FlowStyle
		}
		for _, item := range items {
			child, err := node(item, key+"[]")
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		n := &yaml.Node{}
		n.SetString(s)
		return n, err
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: string(raw)}, nil
}

// mapping writes an object, the keys that identify a task first.
func mapping(raw json.RawMessage, key string) (*yaml.Node, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	first := []string{"id", "subagent", "queue", "source", "limits", "from", "name"}
	rank := func(key string) int {
		if i := slices.Index(first, key); i >= 0 {
			return i
		}
		return len(first)
	}
	keys := slices.Sorted(maps.Keys(members))
	n := &yaml.Node{Kind: yaml.MappingNode}
	if key != "" && key != "tasks[]" && key != "needs" {
		n.Style = yaml.FlowStyle
	}
	if key == "" || key == "tasks[]" {
		slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
	}
	for _, k := range keys {
		name := &yaml.Node{}
		name.SetString(k)
		child, err := node(members[k], k)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, name, child)
	}
	return n, nil
}
