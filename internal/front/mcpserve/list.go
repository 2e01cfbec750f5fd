package mcpserve

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// listInput requests a page.
type listInput struct {
	Cursor cursorText `json:"cursor,omitempty" jsonschema:"next from the previous page"`
}

// listOutput is a page of what the caller may use, sorted by name.
type listOutput struct {
	Items []api.Listing `json:"items"`
	Next  string        `json:"next,omitempty" jsonschema:"cursor of the next page; absent on the last page"`
	// Advice mentions what a low ceiling hides, so that the caller does not conclude
	// that it does not exist.
	Advice string `json:"advice,omitempty" jsonschema:"what a human can do to make more available"`
}

func (s *Server) list(ctx context.Context, c *call, kind api.Kind, in listInput) (listOutput, error) {
	page, err := withRuntime(ctx, c, func(rt client.Runtime) (api.ListingPage, error) { return rt.Listing(ctx, kind, string(in.Cursor)) })
	if err != nil {
		return listOutput{}, err
	}
	if page.Items == nil {
		page.Items = []api.Listing{}
	}
	out := listOutput{Items: page.Items, Next: page.Next}
	if page.AboveCeiling > 0 {
		who, err := withRuntime(ctx, c, func(rt client.Runtime) (api.Who, error) { return rt.Who(ctx) })
		if err != nil {
			return listOutput{}, err
		}
		out.Advice = aboveAdvice(page.AboveCeiling, who)
	}
	return out, nil
}

// aboveAdvice says who can make subagents above the ceiling available: an operator
// cannot raise a ceiling that the session itself declared.
func aboveAdvice(n int, who api.Who) string {
	text := fmt.Sprintf("%d more subagents are granted to you but are above tier %s, ", n, who.Ceiling)
	if who.Ceiling < who.Consent {
		return text + "the ceiling that this session declared with consentCeiling; a human can start a client that declares " + who.Consent.String() + " or nothing"
	}
	return text + "the ceiling that an operator set for you; a human can raise it with: bailiwick ceiling set " + string(who.Principal) + " TIER"
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
