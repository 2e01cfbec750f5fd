package cli

import (
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The state of the machine's installation is read as the service's account; that of a
// person's own as the person.
func TestAnAnchorIsComparedAsTheAccountThatHasTheState(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		api.ModeSameUser: {"/p/bailiwickd", "anchor", "show"},
		api.ModeSystem:   {"/usr/bin/sudo", "-u", "bailiwick", "-H", "--", "/p/bailiwickd", "anchor", "show"},
	} {
		v := &anchorVerbs{operatorVerbs: &operatorVerbs{&tree{Config: Config{Beside: "/p", Dirs: api.Dirs{Mode: mode}}}}}
		path, argv := v.daemon([]string{"anchor", "show"})
		if got := append([]string{path}, argv...); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}
