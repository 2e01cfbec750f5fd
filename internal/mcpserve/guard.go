package mcpserve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
)

// guard stands before everything that the SDK would answer.
func (s *Server) guard(who *caller) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if !strings.HasPrefix(method, "notifications/") && !slices.Contains(methods(), method) {
				return nil, refuse(jsonrpc.CodeMethodNotFound, "method not found: this server has tools and nothing else")
			}
			switch req := req.(type) {
			case *mcp.ServerRequest[*mcp.InitializeParams]:
				who.below(ceilingOfRequest(req))
			case *mcp.CallToolRequest:
				if !slices.Contains(Names(), req.Params.Name) {
					return nil, s.unknownTool(ctx, who, req)
				}
			}
			result, err := next(ctx, method, req)
			if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
				list.Tools = s.inOrder(list.Tools)
			}
			return result, err
		}
	}
}

// unknownTool refuses a tool that there is not, whatever it would be elsewhere:
// the answer to any two differs only in the name and the number of the entry.
func (s *Server) unknownTool(ctx context.Context, who *caller, req *mcp.CallToolRequest) error {
	c := &call{who: who, ceiling: LowerCeiling(who.below(nil), ceilingOfRequest(req))}
	name := Truncate(req.Params.Name, 128)
	e := faultOf(s.logged(ctx, c, "tools/call", api.Errorf(api.CodeDenied, "unknown tool %q", name)))
	e.Hint = "retrying is useless; the tools are those of tools/list"
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: e.Message, Data: data}
}

// inOrder returns tools in the order of the frozen list.
func (s *Server) inOrder(list []*mcp.Tool) []*mcp.Tool {
	order := Names()
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *mcp.Tool) int { return slices.Index(order, a.Name) - slices.Index(order, b.Name) })
	return list
}
