package api

import "fmt"

// Identity says who the people of an identity provider are: the artifact that maps its
// subjects to principals. People signed it: no setting of the service says who a person
// is.
type Identity struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`
	Issuer      string `json:"issuer"` // as in iss, exactly
	Client      string `json:"client"` // as in aud: the id that the provider knows the service by
	// Groups are what the provider calls the groups of people, by their name in the manifest.
	// A person in one logs in only while the provider says so.
	Groups map[Name]string  `json:"groups,omitempty"`
	People []IdentityPerson `json:"people"`
}

// IdentityPerson is a person of an Identity.
type IdentityPerson struct {
	Principal Principal `json:"principal"` // of kind human
	Subject   string    `json:"subject"`   // as in sub, exactly
	Groups    []Name    `json:"groups,omitempty"`
}

// Bounds of an Identity.
const (
	MaxPeople        = 2000
	MaxPersonSubject = 255 // bytes; OpenID Connect Core, section 2
	MaxGroupName     = 255 // of what the provider calls a group
)

// Person returns the person with a subject.
func (i *Identity) Person(subject string) (IdentityPerson, bool) {
	for _, p := range i.People {
		if p.Subject == subject {
			return p, true
		}
	}
	return IdentityPerson{}, false
}

// Check returns what is wrong with each part of i, by its field.
func (i *Identity) Check() (problems []FieldProblem) {
	add := func(field, format string, args ...any) {
		problems = append(problems, FieldProblem{field, fmt.Sprintf(format, args...)})
	}
	if len(i.People) > MaxPeople {
		add("people", "%d people, more than %d", len(i.People), MaxPeople)
		return problems
	}
	for name, group := range i.Groups {
		if group == "" || len(group) > MaxGroupName {
			add("groups", "%s: want what the provider calls it, of at most %d bytes", name, MaxGroupName)
		}
	}
	subjects, principals, looks := map[string]Principal{}, map[Principal]int{}, map[string]Principal{}
	for n, p := range i.People {
		at := fmt.Sprintf("people[%d]", n)
		if other, twice := subjects[p.Subject]; twice {
			add(at, "subject %.80q is %s already", p.Subject, other)
		}
		if p.Subject == "" || len(p.Subject) > MaxPersonSubject {
			add(at, "subject: want 1 to %d bytes", MaxPersonSubject)
		}
		if first, twice := principals[p.Principal]; twice {
			add(at, "duplicate principal %s, first in people[%d]", p.Principal, first)
		} else {
			for _, look := range p.Principal.Looks() {
				if other, taken := looks[look]; taken && other != p.Principal {
					add(at, "principal %s is easily taken for %s", p.Principal, other)
					break
				}
				looks[look] = p.Principal
			}
		}
		if !p.Principal.Human() {
			add(at, "principal %s: want human:NAME", p.Principal)
		}
		subjects[p.Subject], principals[p.Principal] = p.Principal, n
		seen := map[Name]bool{}
		for _, g := range p.Groups {
			if _, known := i.Groups[g]; !known {
				add(at, "no such group %q", g)
			}
			if seen[g] {
				add(at, "duplicate group %q", g)
			}
			seen[g] = true
		}
	}
	return problems
}

// FieldProblem is a problem of a field of an artifact.
type FieldProblem struct{ Field, Message string }
