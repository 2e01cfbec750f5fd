package bundle

import (
	"runtime"
	"strings"
	"testing"
)

// proves R-A7 (no file takes much more memory than it is long)
func TestDecodeCaseRefusesTooManyPartsBeforeParsing(t *testing.T) {
	b := []byte(`{"anchored":[` + strings.Repeat("{},", maxValues/2) + `{}]}`)
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.ReadMemStats(&before)
	_, err := decodeCase(b)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "too many parts") || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%v, %d bytes", err, after.TotalAlloc-before.TotalAlloc)
	}
}
