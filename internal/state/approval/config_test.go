package approval

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A part that is missing is named; without tasks to tell there are no approvals.
func TestNewRefusesMissingParts(t *testing.T) {
	whole := newDesk(t).cfg
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		if slices.Contains([]string{"Steady", "Logger", "Hold"}, name) { // their zero values have a meaning
			continue
		}
		cfg := whole
		reflect.ValueOf(&cfg).Elem().Field(i).SetZero()
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "Config."+name+" ") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
