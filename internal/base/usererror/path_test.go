package usererror

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestAbsolutePathsAreWithheld(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"source \"repo\": /srv/git/repo: no such file or directory":    "source \"repo\": (a path of this machine): no such file or directory",
		"open /home/ann b/my repo/.git/HEAD: permission denied, retry": "open (a path of this machine): permission denied, retry",
		`fatal: not a repository: "/srv/a b/c"`:                        "fatal: not a repository: (a path of this machine)",
		"run: chmod go-w /var/lib/bailiwick":                           "run: chmod go-w (a path of this machine)",
		"see(/etc/x),'/etc/y' =/etc/z":                                 "see((a path of this machine)),'(a path of this machine)' =(a path of this machine)",
		"/a/b":                                                         "(a path of this machine)",
		"x\n/a/b\n/c":                                                  "x\n(a path of this machine)\n(a path of this machine)",
		// Controls.
		"outputs/result.json: 1/2 of and/or": "outputs/result.json: 1/2 of and/or",
		"see https://example.org/a/b":        "see https://example.org/a/b",
		"a / b, // c":                        "a / b, // c",
		"want application/json, ./a, ../b":   "want application/json, ./a, ../b",
	} {
		if got := WithoutPaths(text); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", text, got, want)
		}
	}
	e := api.Errorf(api.CodeIntegrity, "trust root /etc/x: bad").WithHint("see /var/y")
	e.Problems = []api.Problem{{Path: "$.a", Message: "/srv/z"}}
	got := ForAgents(e)
	if api.CodeOf(got) != api.CodeIntegrity || strings.ContainsAny(strings.ReplaceAll(got.Error(), "$.a", ""), "/") {
		t.Errorf("%v", got)
	}
	if e.Problems[0].Message != "/srv/z" {
		t.Error("ForAgents changed the error that it was given")
	}
}
