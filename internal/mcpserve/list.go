package mcpserve

import (
	"context"

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
}

func (s *Server) list(ctx context.Context, c *call, kind api.Kind, in listInput) (listOutput, error) {
	page, err := ask(ctx, c, func(rt client.Runtime) (api.ListingPage, error) { return rt.Listing(ctx, kind, in.Cursor) })
	if err != nil {
		return listOutput{}, err
	}
	if page.Items == nil {
		page.Items = []api.Listing{}
	}
	return listOutput(page), nil
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
