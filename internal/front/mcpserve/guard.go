package mcpserve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

// guard is middleware that refuses unsupported methods and unknown tools.
func (s *Server) guard(who *caller) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if !strings.HasPrefix(method, "notifications/") && !slices.Contains(mcpwire.Methods(), method) {
				return nil, mcpwire.Refuse(jsonrpc.CodeMethodNotFound, "method not found: this server has tools only")
			}
			switch req := req.(type) {
			case *mcp.ServerRequest[*mcp.InitializeParams]:
				who.ceiling(ceilingOfRequest(req))
			case *mcp.CallToolRequest:
				if !slices.Contains(Names(), req.Params.Name) {
					return nil, s.unknownTool(ctx, who, req)
				}
			}
			result, err := next(ctx, method, req)
			if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
				list.Tools = s.sortTools(list.Tools)
			}
			return result, err
		}
	}
}

// unknownTool refuses a tool that does not exist. The answers to two unknown names
// differ only in the name and the audit entry.
func (s *Server) unknownTool(ctx context.Context, who *caller, req *mcp.CallToolRequest) error {
	name := cuttext.Text(req.Params.Name, 128)
	e := toolError(s.logRefusal(ctx, newCall(who, req), "tools/call", api.Errorf(api.CodeDenied, "unknown tool %q", name)))
	e.Hint = "do not retry; tools/list has the available tools"
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: e.Message, Data: data}
}

// sortTools returns tools in the order of Names.
func (s *Server) sortTools(list []*mcp.Tool) []*mcp.Tool {
	order := Names()
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *mcp.Tool) int { return slices.Index(order, a.Name) - slices.Index(order, b.Name) })
	return list
}
