package deploy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// checkCycles refuses a schema that leads back to itself for the same value: its
// check has no end, and would end the program. One that leads back for a value
// within the value, such as that of a tree, has an end.
func checkCycles(schema any) error {
	c := &cycles{root: schema, known: schemaKeywords(), anchors: map[string]place{}, state: map[string]int{}}
	var places []place
	c.collect(place{"#", schema}, &places)
	for _, p := range places {
		if err := c.visit(p); err != nil {
			return err
		}
	}
	return nil
}

// place is a schema and where it is, as a JSON pointer.
type place struct {
	at     string
	schema any
}

type cycles struct {
	root    any
	known   map[string]int
	anchors map[string]place
	state   map[string]int // by pointer: entered or left
}

const (
	entered = iota + 1
	left
)

// below returns the schemas in a member of a schema.
func (c *cycles) below(p place, key string, v any) (list []place) {
	at := p.at + "/" + key
	switch c.known[key] {
	case oneSchema:
		return []place{{at, v}}
	case schemaList:
		all, _ := v.([]any)
		for i, s := range all {
			list = append(list, place{at + "/" + strconv.Itoa(i), s})
		}
	case namedSchema:
		named, _ := v.(map[string]any)
		for name, s := range named {
			list = append(list, place{at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name), s})
		}
	}
	return list
}

// collect lists all schemas.
func (c *cycles) collect(p place, to *[]place) {
	*to = append(*to, p)
	m, _ := p.schema.(map[string]any)
	for key, v := range m {
		if name, ok := v.(string); ok && (key == "$anchor" || key == "$dynamicAnchor") {
			c.anchors[name] = p
		}
		for _, s := range c.below(p, key, v) {
			c.collect(s, to)
		}
	}
}

// visit follows what applies to the same value.
func (c *cycles) visit(p place) error {
	switch c.state[p.at] {
	case entered:
		return fmt.Errorf("the schema at %s refers to itself for the same value, so its check has no end", strictyaml.Clip(p.at))
	case left:
		return nil
	}
	c.state[p.at] = entered
	m, _ := p.schema.(map[string]any)
	for key, v := range m {
		var next []place
		switch {
		case slices.Contains([]string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"}, key):
			next = c.below(p, key, v)
		case key == "$ref" || key == "$dynamicRef":
			if to, ok := c.target(v); ok {
				next = []place{to}
			}
		}
		for _, n := range next {
			if err := c.visit(n); err != nil {
				return err
			}
		}
	}
	c.state[p.at] = left
	return nil
}

// target finds what a reference within the document refers to. Others do not
// compile.
func (c *cycles) target(ref any) (place, bool) {
	text, _ := ref.(string)
	_, fragment, _ := strings.Cut(text, "#")
	if p, ok := c.anchors[fragment]; ok {
		return p, true
	}
	v := c.root
	for i, step := range strings.Split(fragment, "/") {
		if i == 0 {
			if step != "" {
				return place{}, false
			}
			continue
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(in) {
				return place{}, false
			}
			v = in[n]
		default:
			return place{}, false
		}
	}
	return place{"#" + fragment, v}, true
}
