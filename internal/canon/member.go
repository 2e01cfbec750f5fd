package canon

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// checkMembers refuses the first member of v, by name, that t has no field for.
// encoding/json ignores case, so it would accept two spellings of one member.
func checkMembers(v any, t reflect.Type, path string) error {
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
			if err := checkMembers(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return checkObject(v, t, path)
	}
	return nil
}

func checkObject(members map[string]any, t reflect.Type, path string) error {
	if path != "" {
		path += "."
	}
	if t.Kind() == reflect.Map {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if err := checkMembers(members[name], t.Elem(), path+name); err != nil {
				return err
			}
		}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		fields[name] = f.Type
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		field, ok := fields[name]
		if !ok {
			return fmt.Errorf("unknown field %q", path+name)
		}
		if err := checkMembers(members[name], field, path+name); err != nil {
			return err
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
