package catalog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// identityProblems returns what is wrong with the identities of the set: each by itself,
// and two that map the people of one provider for one client.
func (s *Set) identityProblems() (all []Problem) {
	of := map[[2]string]api.Name{}
	for _, name := range slices.Sorted(maps.Keys(s.Identities)) {
		v := s.Identities[name]
		for _, p := range v.Check() {
			all = append(all, Problem{Ref: api.RefTo(api.KindIdentity, name), Field: p.Field, Message: p.Message})
		}
		if other, twice := of[[2]string{v.Issuer, v.Client}]; twice {
			all = append(all, Problem{Ref: api.RefTo(api.KindIdentity, name), Field: "issuer", Message: fmt.Sprintf("identity %q has the same issuer and client", other)})
		}
		of[[2]string{v.Issuer, v.Client}] = name
	}
	return all
}

// Identity returns the identity of a provider and a client.
func (s *Set) Identity(issuer, client string) (api.Identity, bool) {
	for _, v := range s.Identities {
		if v.Issuer == issuer && v.Client == client {
			return v, true
		}
	}
	return api.Identity{}, false
}
