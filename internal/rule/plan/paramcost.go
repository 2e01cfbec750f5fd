package plan

import (
	"encoding/json"
	"regexp/syntax"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// maxSchemaWork bounds the work of the schema of parameters on their values: parts
// of the schema times size of the values. The author of a plan writes its schema,
// and the library has no bound.
const maxSchemaWork = 1 << 27

// bounded refuses a schema of parameters whose check has no end or takes too long.
func bounded(declared json.RawMessage, values map[string]json.RawMessage, found *list) bool {
	var s any
	if json.Unmarshal(declared, &s) != nil {
		return true // the caller reports it
	}
	parts, ref := schemaParts(s)
	if ref != "" {
		found.sense("$.parameters", "%s: the schema of parameters cannot refer to a schema; write it out", clip(ref))
		return false
	}
	size := len(declared) + perValue*nodes(s)
	for _, raw := range values {
		var v any
		if json.Unmarshal(raw, &v) == nil {
			size += len(raw) + perValue*nodes(v)
		}
	}
	if parts > maxSchemaWork/size {
		found.sense("$.parameters", "the schema and the values are too large together; use a smaller schema, shorter values or simpler patterns")
		return false
	}
	return true
}

// perValue is what a value costs beside its bytes.
const perValue = 16

func nodes(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			n += nodes(x)
		}
	case []any:
		for _, x := range v {
			n += nodes(x)
		}
	}
	return n
}

// schemaParts counts the values in a schema and the steps of its patterns. ref is a
// reference to another schema, also one in data: a parameter needs none.
func schemaParts(v any) (n int, ref string) {
	n = 1
	each := func(x any) {
		more, r := schemaParts(x)
		n = min(n+more, maxSchemaWork)
		if r != "" {
			ref = r
		}
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			each(x)
		}
	case map[string]any:
		for key, x := range v {
			each(x)
			switch x := x.(type) {
			case string:
				// The library reads keys in any case.
				if strings.EqualFold(key, "$ref") || strings.EqualFold(key, "$dynamicRef") {
					ref = key
				}
				if strings.EqualFold(key, "pattern") {
					n = min(n+patternSteps(x), maxSchemaWork)
				}
			case map[string]any:
				for pattern := range x {
					if strings.EqualFold(key, "patternProperties") {
						n = min(n+patternSteps(pattern), maxSchemaWork)
					}
				}
			}
		}
	}
	return n, ref
}

// patternSteps is the size of a pattern with its repetitions written out.
func patternSteps(pattern string) int {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0 // the library reports it
	}
	return stepsOf(re)
}

func stepsOf(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += stepsOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxSchemaWork)
}

// inserted adds what a parameter adds to the plan, and reports whether that still
// fits: a short plan must not become one that exhausts the memory.
func (r *resolver) inserted(path, name string, v any) bool {
	n, known := r.sizes[name]
	if !known {
		if s, ok := v.(string); ok {
			n = len(s)
		} else if b, err := canon.Marshal(v); err == nil {
			n = len(b)
		}
		r.sizes[name] = n
	}
	fits := r.size <= api.MaxPlan
	if r.size += n; r.size > api.MaxPlan && fits {
		r.sense(path, "with its parameters inserted, the plan is larger than %d bytes", api.MaxPlan)
	}
	return r.size <= api.MaxPlan
}
