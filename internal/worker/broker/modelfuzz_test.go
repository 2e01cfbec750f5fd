package broker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// checkLenient checks a body that has passed with the reader of encoding/json, which
// ignores case and takes the last of two members.
func checkLenient(t *testing.T, a api.ModelAPI, body []byte, f facts) {
	t.Helper()
	var v struct {
		Model  any
		Stream any
		Tools  json.RawMessage
	}
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: passed, but is no JSON: %v", a, err)
	}
	if id, ok := v.Model.(string); v.Model != nil && (!ok || strings.TrimPrefix(id, "models/") != testID) {
		t.Fatalf("%s: passed with the model %v", a, v.Model)
	}
	if a == api.OpenAIChat && f.stream != (v.Stream == true) {
		t.Fatalf("%s: stream is %v, taken for %t", a, v.Stream, f.stream)
	}
	if a == api.OpenAIChat && f.stream {
		b, err := withUsage(body, f)
		var again struct {
			Model  any
			Stream any
			O      struct {
				Include bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err != nil || json.Unmarshal(b, &again) != nil || !again.O.Include || again.Stream != true || again.Model != v.Model {
			t.Fatalf("%s became %s: %v", body, b, err)
		}
	}
}
