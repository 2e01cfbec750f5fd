package gateway

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A part that is missing is named; without people to ask there is no gateway.
func TestNewRefusesMissingParts(t *testing.T) {
	whole := newWorld(t).cfg
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		if slices.Contains([]string{"Logger", "Observe"}, name) { // they only report
			continue
		}
		cfg := whole
		reflect.ValueOf(&cfg).Elem().Field(i).SetZero()
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "Config."+name+" ") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
