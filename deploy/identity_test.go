package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const people = `identities:
  - name: corp
    issuer: https://id.example
    client: bailiwick
    groups: {dev: Developers, ops: Operators}
    people:
      - {principal: "human:ann", subject: "1", groups: [dev, ops]}
      - {principal: "human:Bob.B", subject: "2", groups: [dev]}
      - {principal: "human:eve", subject: "3"}
`

// The grant of a group is written out for each of its people, so that what is signed
// names them.
//
// proves R-C6
func TestAGroupIsWrittenOut(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.write("bailiwick.yaml", goodManifest+`  - {group: dev, subagents: [fixer], targets: [local], ceiling: reversible}
  - {name: reviewers, group: ops, subagents: [fixer], targets: [local]}
`+people)
	p := f.plan(Options{})
	f.apply(f.signers...)
	rev, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, g := range rev.Set().Grants {
		got = append(got, string(g.Name)+" "+string(g.Principal)+" "+g.Ceiling.String())
	}
	slices.Sort(got)
	project := string(p.Project)
	want := []string{project + "-agent-claude agent:claude reversible", project + "-dev-ann human:ann reversible", project + "-dev-bob.b human:Bob.B reversible", "reviewers-ann human:ann observe"}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("grants %q, want %q", got, want)
	}
	for _, line := range []string{`subject "1" logs in as human:ann`, "new identity provider: https://id.example, for client bailiwick", "human:ann"} {
		if !slices.ContainsFunc(p.Widens, func(c api.AuthorityChange) bool { return strings.Contains(c.What, line) }) {
			t.Errorf("no line %q in %v", line, p.Widens)
		}
	}
}

// proves R-C6
func TestBadIdentitiesAreRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	for name, c := range map[string]struct{ text, want string }{
		"the control":            {people, ""},
		"a misspelt key":         {strings.Replace(people, "subject: \"1\"", "subjct: \"1\"", 1), `unknown key "subjct"; did you mean "subject"?`},
		"a subject twice":        {strings.Replace(people, `"2"`, `"1"`, 1), `subject "1" is human:ann already`},
		"a principal twice":      {strings.Replace(people, "human:eve", "human:ann", 1), "duplicate principal human:ann, first in people[0]"},
		"a principal like ann":   {strings.Replace(people, "human:eve", "human:Ann", 1), "principal human:Ann is easily taken for human:ann"},
		"an AI":                  {strings.Replace(people, "human:eve", "agent:eve", 1), "principal agent:eve: want human:NAME"},
		"an account":             {strings.Replace(people, "human:eve", "local:eve", 1), "principal local:eve: want human:NAME"},
		"an unknown group":       {strings.Replace(people, "groups: [dev]", "groups: [dve]", 1), `no such group "dve"`},
		"no issuer":              {strings.Replace(people, "    issuer: https://id.example\n", "", 1), `the key "issuer" is missing`},
		"an issuer over http":    {strings.Replace(people, "https://id", "http://id", 1), "want https://"},
		"a grant of no group":    {"  - {group: dve, subagents: [fixer]}\n" + people, `no such group "dve" in the identities of this manifest; did you mean "dev"?`},
		"a group and a person":   {"  - {group: dev, principal: human:eve, subagents: [fixer]}\n" + people, "write one of principal and group"},
		"two of one provider":    {people + strings.Replace(strings.TrimPrefix(people, "identities:\n"), "name: corp", "name: other", 1), `identity "corp" has the same issuer and client`},
		"a subject that is long": {strings.Replace(people, `"3"`, `"`+strings.Repeat("s", 256)+`"`, 1), "subject: want 1 to 255 bytes"},
	} {
		f.write("bailiwick.yaml", goodManifest+c.text)
		m, err := f.load()
		if err == nil {
			_, err = f.open().Plan(t.Context(), m, Options{})
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
