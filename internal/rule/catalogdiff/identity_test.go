package catalogdiff

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// proves R-C6
func TestEachPersonWhoLogsInHasALine(t *testing.T) {
	base := func() api.Identity {
		return api.Identity{
			Name: "corp", Issuer: "https://id.example", Client: "bailiwick", Groups: map[api.Name]string{"dev": "Developers"},
			People: []api.IdentityPerson{{Principal: "human:ann", Subject: "1", Groups: []api.Name{"dev"}}, {Principal: "human:bob", Subject: "2"}},
		}
	}
	put := func(s *catalog.Set, v api.Identity) { s.Identities["corp"] = v }
	other := "other identity provider: https://other.example for client bailiwick, was https://id.example for client bailiwick: it says who each person is"
	back := "other identity provider: https://id.example for client bailiwick, was https://other.example for client bailiwick: it says who each person is"
	checkChanges(t, "identity/corp", base, put, []change[api.Identity]{
		{"issuer", func(v *api.Identity) { v.Issuer = "https://other.example" }, other, "", back, ""},
		{"a person", func(v *api.Identity) { v.People = v.People[:1] }, "", `subject "2" no longer logs in as human:bob`, `subject "2" logs in as human:bob`, ""},
		{"another principal", func(v *api.Identity) { v.People[1].Principal = "human:eve" }, `subject "2" logs in as human:eve, was human:bob`, `subject "2" no longer logs in as human:bob`, `subject "2" logs in as human:bob, was human:eve`, `subject "2" no longer logs in as human:eve`},
		{"a group", func(v *api.Identity) { v.People[0].Groups = nil }, "human:ann logs in without being in group dev", "", "", "human:ann logs in only while the provider says group dev"},
		{"what the provider calls it", func(v *api.Identity) { v.Groups["dev"] = "Everybody" }, `group dev: who is in "Everybody" at the provider, was "Developers"`, "", `group dev: who is in "Developers" at the provider, was "Everybody"`, ""},
	})
	whole := catalog.NewSet()
	put(whole, base())
	checkWhole(t, "identity", whole, `identity/corp: new identity provider: https://id.example, for client bailiwick
identity/corp: subject "1" logs in as human:ann
identity/corp: subject "2" logs in as human:bob`, "identity/corp: removed identity provider: nobody logs in with https://id.example")
}
