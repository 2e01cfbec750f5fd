package audit

import (
	"errors"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxPatternTools bounds how many names of tools a pattern is replaced by. Agents choose
// names that do not exist, so there may be any number.
const maxPatternTools = 64

// toolFilter returns the filter of a pattern of tools: the names in the log that match
// it, each found with one step in the index, or where there are many the pattern itself.
func (q *Query) toolFilter(r store.Reader) (filter, error) {
	prefix, _, _ := strings.Cut(q.Tool, "*")
	glob := strings.NewReplacer("[", "[[]", "?", "[?]").Replace(q.Tool)
	f := filter{column: "tool", index: "audit_entry_tool"}
	for next, steps, after := prefix, 0, ">="; ; after = ">" {
		var name string
		err := r.Get("SELECT tool FROM audit_entry INDEXED BY audit_entry_tool WHERE tool "+after+" ? AND tool < ? ORDER BY tool LIMIT 1", store.Args{next, prefix + "\x7f"}, &name)
		if errors.Is(err, store.ErrNoRow) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		if steps++; steps > maxPatternTools {
			return filter{column: "tool", values: []any{glob}}, nil
		}
		next = name
		if matches(name, q.Tool) {
			f.values = append(f.values, name)
		}
	}
}

// matches reports whether a name matches a pattern, whose * stand for any text.
func matches(name, pattern string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 || !strings.HasPrefix(name, parts[0]) {
		return name == pattern
	}
	name = name[len(parts[0]):]
	for _, part := range parts[1:last] {
		_, rest, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name = rest
	}
	return strings.HasSuffix(name, parts[last])
}
