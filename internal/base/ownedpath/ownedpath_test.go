//go:build unix

package ownedpath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A link leads only to what its owner has. The controls are links of root and of the owner, and the path itself.
//
// proves R-S4
func TestALinkOfAnotherAccountIsNotFollowed(t *testing.T) {
	const alice, bob = 4711, 4712
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string, owner int, link string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if link == "" {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.Symlink(link, path)
		}
		if err == nil {
			err = os.Lchown(path, owner, owner)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	at("bob", bob, "")
	repo := at("bob/Größe und Maß", bob, "")
	at("alice", alice, "")
	for name, c := range map[string]struct {
		path string
		says string
	}{
		"the path itself":           {repo, ""},
		"root's link":               {at("admin", 0, "bob/Größe und Maß"), ""},
		"the owner's link":          {at("own", bob, repo), ""},
		"another's link":            {at("alice/link", alice, "../bob/Größe und Maß"), "alice/link is a symbolic link of user 4711 to what belongs to user 4712: name the path " + repo},
		"another's link on the way": {at("alice/up", alice, "../bob") + "/Größe und Maß", "alice/up is a symbolic link of user 4711"},
		"by a link of root's":       {at("twice", 0, "alice/link"), "alice/link is a symbolic link of user 4711"},
		"back through ..":           {dir + "/alice/up/../bob/Größe und Maß", "alice/up is a symbolic link of user 4711"},
		"a loop":                    {at("loop", 0, "loop"), "too many"},
		"missing":                   {dir + "/none", "no such file"},
		"relative":                  {"bob", "not an absolute path"},
	} {
		real, owner, err := Resolve(c.path)
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %s of %d, %v", name, real, owner, err)
		case c.says == "" && (err != nil || real != repo || owner != bob):
			t.Errorf("%s: %s of %d, %v", name, real, owner, err)
		}
	}
}
