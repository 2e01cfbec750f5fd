package dispatch

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A part that is missing is named, and never stands for "allowed" or "nobody asked". The
// fields listed have zero values with a meaning.
func TestOpenRefusesMissingParts(t *testing.T) {
	optional := []string{"Dirs", "Keys", "Statements", "Operator", "Mode", "Steady"}
	whole := newGate(t).cfg
	if err := whole.check(); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		if slices.Contains(optional, name) {
			continue
		}
		cfg := whole
		reflect.ValueOf(&cfg).Elem().Field(i).SetZero()
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "Config."+name+" ") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
