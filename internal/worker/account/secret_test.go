package account

import (
	"encoding/json"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

func TestAPipeHoldsAllValuesUnread(t *testing.T) {
	for name, values := range map[string]record.Secrets{
		"none":  nil,
		"one":   {"anthropic": "sk-ant-\"x\"\n<&>"},
		"large": {"a": strings.Repeat("a", record.MaxSecret), "b": strings.Repeat("\x01", record.MaxSecret)},
	} {
		pipe, err := SecretsPipe(values)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := pipe.Fill(); err != nil {
			t.Fatal(err)
		}
		doc, err := io.ReadAll(pipe.Reader) // ends, because no writer is left
		if err != nil {
			t.Fatal(err)
		}
		_ = pipe.Close()
		var got record.Secrets
		if err := json.Unmarshal(doc, &got); err != nil || !maps.Equal(got, values) {
			t.Errorf("%s: %.100s, %v", name, doc, err)
		}
	}
	if _, err := SecretsPipe(record.Secrets{"a": strings.Repeat("\x01", record.MaxSecrets/6)}); err == nil || strings.Contains(err.Error(), `\u0001`) {
		t.Errorf("too much: %v", err)
	}
}
