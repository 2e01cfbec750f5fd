package cli

import (
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// trace is the span that whoever started this command is in, by the convention
// for environment variables; none where what is there is not a traceparent.
func (t *tree) trace() api.Trace {
	for _, kv := range t.Env {
		if value, ok := strings.CutPrefix(kv, api.TraceVariable+"="); ok {
			parent, _ := api.ParseTrace(value)
			return parent
		}
	}
	return ""
}
