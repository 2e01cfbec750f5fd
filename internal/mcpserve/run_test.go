package mcpserve

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The id of a run is a name and no way to another call of the service.
func TestARunIDIsNoPath(t *testing.T) {
	server := newStandIn(t).server(t)
	c := &call{who: server.callerOf("")}
	for id, want := range map[string]api.Code{
		"r-1": api.CodeNotFound, "A_b-9": api.CodeNotFound, // the stand-in has none
		"": api.CodeInvalid, ".": api.CodeInvalid, "..": api.CodeInvalid, "a/b": api.CodeInvalid, "a?b": api.CodeInvalid, "a\x00": api.CodeInvalid,
		"\u017f": api.CodeInvalid, strings.Repeat("r", maxRunID+1): api.CodeInvalid,
	} {
		if _, err := server.status(t.Context(), c, runInput{RunID: id}); codeOf(err) != want {
			t.Errorf("status of %q: %v", id, err)
		}
		if _, err := server.watch(t.Context(), c, watchInput{RunID: id}); codeOf(err) != want {
			t.Errorf("watch of %q: %v", id, err)
		}
		if _, err := server.submit(t.Context(), c, submitInput{Plan: object("{}"), RunID: id}); (codeOf(err) == api.CodeInvalid) != (want == api.CodeInvalid && id != "") {
			t.Errorf("submit of %q: %v", id, err)
		}
	}
}

func codeOf(err error) api.Code {
	if invalid, ok := err.(*invalidInput); ok { //nolint:errorlint // as the tools return it
		return invalid.err.Code
	}
	return api.CodeOf(err)
}
