package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// identity is the answer of whoami: the caller and what it may dispatch.
type identity struct {
	api.Who
	Server       string             `json:"server,omitempty"` // URL, on another machine
	Grants       []api.ArtifactInfo `json:"grants"`
	Subagents    []api.ArtifactInfo `json:"subagents"` // up to the ceiling
	AboveCeiling int                `json:"aboveCeiling,omitempty"`
	Queues       []api.Name         `json:"queues,omitempty"` // of an orchestrator; for an operator
}

func (t *findVerbs) whoamiCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		return t.withConn(func(c *client.Conn) error {
			id, err := t.identity(ctx, c)
			if err != nil {
				return err
			}
			id.Server = c.Server()
			return t.Emit(id, string(id.Principal), func() { t.printIdentity(id) })
		})
	})
}

// identity returns the caller with its grants. Where the catalog is refused it has
// none.
func (t *findVerbs) identity(ctx context.Context, c *client.Conn) (id identity, err error) {
	id.Grants, id.Subagents = []api.ArtifactInfo{}, []api.ArtifactInfo{}
	if id.Who, err = c.Runtime().Who(ctx); err != nil {
		return id, err
	}
	if id.Operator {
		queues, err := c.Operator().Queues(ctx)
		if err != nil && api.CodeOf(err) != api.CodeNotConfigured {
			return id, err
		}
		for _, q := range queues {
			id.Queues = append(id.Queues, q.Name)
		}
	}
	if id.CatalogError != "" || id.Revision == 0 {
		return id, nil
	}
	if id.Grants, _, err = t.artifacts(ctx, c, api.Who{}, api.KindGrant); err != nil {
		return id, err
	}
	id.Subagents, id.AboveCeiling, err = t.artifacts(ctx, c, id.Who, api.KindSubagent)
	return id, err
}

func (t *findVerbs) printIdentity(id identity) {
	by := "the account at the other end of the socket"
	switch id.Auth {
	case api.AuthToken:
		by = "a token"
	case api.AuthSession:
		by = "a login"
	case api.AuthAccount:
	}
	if id.Server != "" {
		t.Row("server", "%s", id.Server)
	}
	t.Row("principal", "%s, established by %s", id.Principal, by)
	if id.Operator {
		t.Row("operator", "yes: may run this service and read all of its log")
	}
	ceiling := "an operator consented to " + id.Consent.String()
	if id.Consent == api.Observe {
		ceiling = "the default; an operator can raise it: bailiwick ceiling set " + string(id.Principal) + " TIER"
	}
	if id.Ceiling < id.Consent {
		ceiling += ", and this session declared less"
	}
	t.Row("ceiling", "%s: %s", id.Ceiling, ceiling)
	for _, stop := range id.Stops {
		t.Row("STOPPED", "%s; only an operator can lift it: bailiwick stop lift %[1]s", stop)
	}
	switch {
	case id.CatalogError != "":
		t.Row("catalog", "REFUSED: %s", id.CatalogError)
	case id.Revision == 0:
		t.Row("catalog", "none applied yet: bailiwick catalog apply")
	default:
		t.Row("catalog", "revision %d", id.Revision)
	}
	if len(id.Queues) > 0 {
		t.Row("queues", "%s", console.Joined(id.Queues, ", ", ""))
	}
	if len(id.Grants) == 0 {
		t.Row("grants", "none, so nothing may be dispatched; see: bailiwick can")
	}
	label := "grants"
	for _, g := range id.Grants {
		t.Row(label, "%s", grantText(g))
		label = ""
	}
	t.Rows("may run", len(id.Subagents), func(i int) string {
		s := id.Subagents[i]
		return fmt.Sprintf("%s (%s)", s.Name, s.Tier)
	})
	if id.AboveCeiling > 0 {
		t.Row("", "and not yet, above the ceiling %s: %d; see: bailiwick can", id.Ceiling, id.AboveCeiling)
	}
}

// grantText says on one line what a grant lets its principal dispatch.
func grantText(g api.ArtifactInfo) string {
	parts := []string{fmt.Sprintf("%s: up to %s, subagents %s", g.Name, tierText(g.Ceiling), joined(g.Subagents))}
	for _, p := range []struct {
		label string
		list  []api.Name
	}{{"targets", g.Targets}, {"sources", g.Sources}, {"envs", g.Envs}, {"capabilities", g.Capabilities}} {
		if len(p.list) > 0 {
			parts = append(parts, p.label+" "+joined(p.list))
		}
	}
	return strings.Join(parts, "; ")
}
