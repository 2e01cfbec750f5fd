package runverbs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// person is who makes commits: the one that git would name in the user's repository.
type person struct {
	author, committer [2]string // name and address
	known             bool      // the user has set all of them
}

// noEmail is the address of the author for users without a name or an address.
const noEmail = "bailiwick@invalid"

// authorOf reads who the user is where git reads it: from the environment, then from
// the configuration of the repository, of the user and of the system.
func authorOf(env []string, repo *gitexec.Foreign) person {
	of := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		of[name] = value
	}
	role := func(name string) [2]string {
		upper := "GIT_" + strings.ToUpper(name)
		return [2]string{
			strings.TrimSpace(cmp.Or(of[upper+"_NAME"], repo.Setting(name+".name"), repo.Setting("user.name"))),
			strings.TrimSpace(cmp.Or(of[upper+"_EMAIL"], repo.Setting(name+".email"), repo.Setting("user.email"), of["EMAIL"])),
		}
	}
	p := person{role("author"), role("committer"), true}
	if slices.Contains([]string{p.author[0], p.author[1], p.committer[0], p.committer[1]}, "") {
		nobody := [2]string{"bailiwick", noEmail}
		return person{nobody, nobody, false}
	}
	return p
}

// identity returns the variables of git for a commit at a time.
func (p person) identity(at time.Time) []string {
	date := fmt.Sprintf("%d +0000", at.Unix())
	author, committer := gitexec.Identity(p.author[0], p.author[1], date), gitexec.Identity(p.committer[0], p.committer[1], date)
	const each = 3 // variables of a role
	return append(author[:each:each], committer[each:]...)
}
