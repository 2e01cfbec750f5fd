package canon

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// checkMembers refuses every member of v that t has no field for, by name.
// encoding/json would take a member that is spelt in another case, and so two
// spellings of one.
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
			return nil // the decoder says it better
		}
		for i, e := range v {
			if err := checkMembers(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case object:
		return checkObject(v, t, path)
	}
	return nil
}

func checkObject(v object, t reflect.Type, path string) error {
	if path != "" {
		path += "."
	}
	if t.Kind() == reflect.Map {
		for _, m := range v {
			if err := checkMembers(m.value, t.Elem(), path+m.name); err != nil {
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
	for _, m := range v {
		field, ok := fields[m.name]
		if !ok {
			return fmt.Errorf("unknown field %q", path+m.name)
		}
		if err := checkMembers(m.value, field, path+m.name); err != nil {
			return err
		}
	}
	return nil
}

// decodesItself reports whether a type reads its own JSON, so that its fields
// say nothing about the members.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Interface || p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
