package plan

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

type readers = map[string]func(path string, raw json.RawMessage)

// reader reads values from a document and reports whatever does not match the JSON
// Schema. It reads the valid parts of a value with a problem, so that the other
// checks still run.
type reader struct{ *list }

// document is the root object of raw.
func (r *reader) document(raw []byte) (json.RawMessage, bool) {
	switch {
	case len(raw) > api.MaxPlan:
		r.sense("$", "%d bytes: more than %d", len(raw), api.MaxPlan)
		return nil, false
	case bytes.HasPrefix(raw, []byte("\ufeff")):
		r.sense("$", "not valid JSON: begins with a byte order mark")
		return nil, false
	case bytes.IndexByte(raw, 0) >= 0:
		r.sense("$", "not valid JSON: contains the byte 0")
		return nil, false
	}
	doc, err := canon.Canonicalize(raw)
	if err != nil {
		r.sense("$", "not valid JSON: %s", strictyaml.Clip(strictyaml.OneLine(err.Error())))
		return nil, false
	}
	return doc, true
}

// object calls the reader of each member, and returns the members, nil where
// there is no object.
func (r *reader) object(path string, raw json.RawMessage, readers readers) map[string]json.RawMessage {
	members := r.members(path, raw)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		read, known := readers[name]
		if known {
			read(member(path, name), members[name])
		} else {
			r.unknown(path, name, readers)
		}
	}
	return members
}

// require reports the keys that an object lacks; members is nil if it is not an object.
func (r *reader) require(path string, members map[string]json.RawMessage, keys ...string) {
	for _, key := range keys {
		if _, ok := members[key]; members != nil && !ok {
			r.shape(path, "missing key %q", key)
		}
	}
}

func (r *reader) unknown(path, name string, readers readers) {
	if r.full() { // a plan may have very many
		r.shape(path, "unknown key")
		return
	}
	hint := strictyaml.Suggestion(name, slices.Collect(maps.Keys(readers)))
	if where := elsewhere()[name]; where != "" {
		hint = ": " + where
	}
	r.shape(member(path, name), "unknown key %s%s", clip(name), hint)
}

// members returns the members of an object, whatever their names.
func (r *reader) members(path string, raw json.RawMessage) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &members) != nil {
		r.shape(path, "want an object, got %s", kind(raw))
		return nil
	}
	return members
}

// items calls read for each item of a list, unless the list is too long.
func (r *reader) items(path string, raw json.RawMessage, most int, read func(path string, raw json.RawMessage)) {
	var all []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &all) != nil {
		r.shape(path, "want a list, got %s", kind(raw))
		return
	}
	if len(all) > most {
		r.shape(path, "%d items: at most %d", len(all), most)
		return
	}
	for i, one := range all {
		read(item(path, i), one)
	}
}

// text reads a string of 1 to most characters.
func (r *reader) text(path string, raw json.RawMessage, most int) string {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		hint := ""
		if raw[0] != '{' && raw[0] != '[' && raw[0] != 'n' {
			hint = "; put it in quotes"
		}
		r.shape(path, "want text, got %s%s", kind(raw), hint)
		return ""
	}
	if s == "" {
		r.shape(path, "is empty")
	}
	if n := utf8.RuneCountInString(s); n > most {
		r.shape(path, "%s: %d characters: at most %d", clip(s), n, most)
	}
	return s
}

// parsed reads a string with a parser of package api.
func parsed[T ~string](r *reader, path string, raw json.RawMessage, parse func(string) (T, error)) T {
	const most = 64 // of every id and name
	before := r.count
	s := r.text(path, raw, most)
	if r.count == before {
		if _, err := parse(s); err != nil {
			r.shape(path, "%v", err)
		}
	}
	return T(s)
}

// texts reads a list of distinct strings.
func texts[T ~string](r *reader, path string, raw json.RawMessage, most int, parse func(string) (T, error)) []T {
	var all []T
	seen := map[T]bool{}
	r.items(path, raw, most, func(path string, raw json.RawMessage) {
		v := parsed(r, path, raw, parse)
		if v != "" && seen[v] {
			r.shape(path, "duplicate %s", clip(string(v)))
		}
		seen[v] = true
		all = append(all, v)
	})
	return all
}

// visible reads a string without control characters.
func (r *reader) visible(path string, raw json.RawMessage, most int) string {
	s := r.text(path, raw, most)
	if strings.ContainsFunc(s, unicode.IsControl) {
		r.shape(path, "%s contains a control character", clip(s))
	}
	return s
}

// whole reads a whole number.
func (r *reader) whole(path string, raw json.RawMessage, low, high int) int {
	v, err := strconv.Atoi(string(raw))
	if err != nil || v < low || v > high {
		r.shape(path, "want a whole number from %d to %d, got %s", low, high, kind(raw))
		return 0
	}
	return v
}

// yes reads true, the only value of an optional flag.
func (r *reader) yes(path string, raw json.RawMessage) bool {
	if string(raw) != "true" {
		r.shape(path, "want true, got %s; omit it otherwise", kind(raw))
		return false
	}
	return true
}

// kind describes a value in a problem.
func kind(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		var s string
		_ = json.Unmarshal(raw, &s) // it is canonical
		return "the text " + clip(s)
	case 'n':
		return "null"
	case 't', 'f':
		return "the boolean " + string(raw)
	}
	return "the number " + strictyaml.Clip(string(raw))
}
