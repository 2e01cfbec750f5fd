package gitexec

import (
	"strings"
	"testing"
)

func TestPromisorIsThatOfGit(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "whole",
		"[remote \"o\"]\n\turl = x":             "whole",
		"[remote \"o\"]\n\tpromisor = false":    "whole",
		"[remote \"o\"]\n\tpromisor":            "o",
		"[remote \"a.b\"]\n\tpromisor = true":   "a.b",
		"[extensions]\n\tpartialClone = old":    "old",
		"[remote \"--exec=x\"]\n\tpromisor = 1": "",
	} {
		c, err := ParseConfig(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, partial := c.Promisor()
		if !partial {
			got = "whole"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got, want := FetchMissing("/a b", "origin"), "git -C '/a b' fetch --refetch --no-filter origin;"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}
