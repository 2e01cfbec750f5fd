package catalogdiff

import (
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// identity adds the people who can log in, or as whom, and the groups that the provider no
// longer has to confirm.
func (w *widening) identity(ref api.Ref, old, v api.Identity, had bool) {
	switch {
	case !had:
		w.add(ref, "new identity provider: %s, for client %s", v.Issuer, v.Client)
	case old.Issuer != v.Issuer || old.Client != v.Client:
		w.add(ref, "other identity provider: %s for client %s, was %s for client %s: it says who each person is", v.Issuer, v.Client, old.Issuer, old.Client)
	}
	for _, p := range v.People {
		was, before := old.Person(p.Subject)
		switch {
		case !before:
			w.add(ref, "subject %q logs in as %s", p.Subject, p.Principal)
		case was.Principal != p.Principal:
			w.add(ref, "subject %q logs in as %s, was %s", p.Subject, p.Principal, was.Principal)
		default:
			for _, g := range missing(was.Groups, p.Groups) {
				if _, still := v.Groups[g]; still {
					w.add(ref, "%s logs in without being in group %s", p.Principal, g)
				}
			}
		}
	}
	for _, g := range slices.Sorted(maps.Keys(old.Groups)) {
		if now, has := v.Groups[g]; had && has && now != old.Groups[g] {
			w.add(ref, "group %s: who is in %q at the provider, was %q", g, now, old.Groups[g])
		} else if had && !has {
			w.add(ref, "group %s is no longer confirmed by the provider", g)
		}
	}
}

func (n *narrowing) identity(ref api.Ref, old, v api.Identity, has bool) {
	if !has {
		n.add(ref, "removed identity provider: nobody logs in with %s", old.Issuer)
		return
	}
	for _, p := range old.People {
		now, still := v.Person(p.Subject)
		switch {
		case !still || now.Principal != p.Principal:
			n.add(ref, "subject %q no longer logs in as %s", p.Subject, p.Principal)
		default:
			for _, g := range missing(now.Groups, p.Groups) {
				n.add(ref, "%s logs in only while the provider says group %s", p.Principal, g)
			}
		}
	}
}
