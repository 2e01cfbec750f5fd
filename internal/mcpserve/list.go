package mcpserve

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// listInput asks for a page.
type listInput struct {
	Cursor string `json:"cursor,omitempty" jsonschema:"next of the page before"`
}

// listOutput is a page of what the caller may use, in the order of names.
type listOutput struct {
	Items []api.Listing `json:"items"`
	Next  string        `json:"next,omitempty" jsonschema:"cursor of the next page; absent at the end"`
	// Advice keeps a caller whose ceiling is low from taking what is not listed
	// for not being there.
	Advice string `json:"advice,omitempty" jsonschema:"what a human could do so that there is more"`
}

func (s *Server) list(ctx context.Context, c *call, kind api.Kind, in listInput) (listOutput, error) {
	page, err := ask(ctx, c, func(rt client.Runtime) (api.ListingPage, error) { return rt.Listing(ctx, kind, in.Cursor) })
	if err != nil {
		return listOutput{}, err
	}
	if page.Items == nil {
		page.Items = []api.Listing{}
	}
	out := listOutput{Items: page.Items, Next: page.Next}
	if page.AboveCeiling > 0 {
		who, err := ask(ctx, c, func(rt client.Runtime) (api.Who, error) { return rt.Who(ctx) })
		if err != nil {
			return listOutput{}, err
		}
		out.Advice = aboveAdvice(page.AboveCeiling, who)
	}
	return out, nil
}

// aboveAdvice says of subagents that reach too far who could do what about it:
// an operator cannot raise what a session has bound itself to.
func aboveAdvice(n int, who api.Who) string {
	text := fmt.Sprintf("%d more subagents are granted to you but reach further than tier %s, ", n, who.Ceiling)
	if who.Ceiling < who.Consent {
		return text + "to which this session has bound itself with consentCeiling; a human can start a client that declares " + who.Consent.String() + " or nothing"
	}
	return text + "to which an operator consented for you; a human can raise that with: bailiwick ceiling set " + string(who.Principal) + " TIER"
}

func (s *Server) capabilities(ctx context.Context, c *call, in listInput) (listOutput, error) {
	return s.list(ctx, c, api.KindCapability, in)
}

func (s *Server) subagents(ctx context.Context, c *call, in listInput) (listOutput, error) {
	return s.list(ctx, c, api.KindSubagent, in)
}

func (s *Server) envs(ctx context.Context, c *call, in listInput) (listOutput, error) {
	return s.list(ctx, c, api.KindEnv, in)
}
