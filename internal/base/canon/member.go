package canon

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ErrNewer is what errors about a document match if a newer version of the program may
// have written it: it has a member, a kind or a version that this one does not know.
var ErrNewer = errors.New("a newer version of bailiwick may have written it")

// Format refuses a format of a document other than want.
func Format(v, want int) error {
	err := fmt.Errorf("format %d is not known to this build, which reads %d", v, want)
	switch {
	case v == want:
		return nil
	case v > want:
		return fmt.Errorf("%w: %w", err, ErrNewer)
	}
	return err
}

// unknownField is where a document has a member that its type has no field for. The
// path is put together only then: names may be long, and lists too.
type unknownField struct {
	path     string
	misspelt bool // a field has this name in another case
}

// Is implements errors.Is for ErrNewer.
func (e *unknownField) Is(target error) bool { return target == ErrNewer && !e.misspelt } //nolint:errorlint // that is what Is compares

func (e *unknownField) Error() string { return fmt.Sprintf("unknown field %q", e.path) }

// in returns e with the name of the member, or the place in the list, that it is in.
func (e *unknownField) in(name string) *unknownField {
	if e == nil {
		return nil
	}
	if e.path != "" && e.path[0] != '[' {
		name += "."
	}
	return &unknownField{name + e.path, e.misspelt}
}

// checkMembers refuses the first member of v, by name, that t has no field for.
// encoding/json ignores case, so it would accept two spellings of one member.
func checkMembers(v any, t reflect.Type) *unknownField {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if decodesItself(t) {
		return nil
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil // json.Unmarshal refuses it
		}
		for i, e := range v {
			if err := checkMembers(e, t.Elem()); err != nil {
				return err.in(fmt.Sprintf("[%d]", i))
			}
		}
	case map[string]any:
		return checkObject(v, t)
	}
	return nil
}

func checkObject(members map[string]any, t reflect.Type) *unknownField {
	fields := map[string]reflect.Type{}
	switch t.Kind() { //nolint:exhaustive // json.Unmarshal refuses the others
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			fields[name] = f.Type
		}
	case reflect.Map:
	default:
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field, ok := fields[name]
		if t.Kind() == reflect.Map {
			field, ok = t.Elem(), true
		}
		if !ok {
			misspelt := slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(known string) bool { return strings.EqualFold(known, name) })
			return &unknownField{name, misspelt}
		}
		if err := checkMembers(members[name], field); err != nil {
			return err.in(name)
		}
	}
	return nil
}

// decodesItself reports whether a type has its own JSON form, so that its fields
// do not name the members.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Interface || p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
