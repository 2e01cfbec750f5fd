package mcpserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
)

// toolInfo describes a tool to clients.
type toolInfo struct {
	name, title, description string
	hints                    hints
}

// tool is a tool and its implementation.
type tool struct {
	definition *mcp.Tool
	run        func(ctx context.Context, c *call, arguments json.RawMessage) (any, error)
}

// builder collects the tools.
type builder struct {
	tools []tool
	errs  []error
}

// add makes a tool of a function and derives its schemas from the types.
func add[In, Out any](b *builder, a toolInfo, f func(context.Context, *call, In) (Out, error)) {
	in, err := inputSchema[In]()
	out, outErr := outputSchema[Out]()
	if err = errors.Join(err, outErr); err != nil {
		b.errs = append(b.errs, fmt.Errorf("tool %s: %w", a.name, err))
		return
	}
	shown, shownErr := advertisedSchema[In](in)
	resolved, err := in.Resolve(nil)
	if err = errors.Join(err, shownErr); err != nil {
		b.errs = append(b.errs, fmt.Errorf("tool %s: %w", a.name, err))
		return
	}
	b.tools = append(b.tools, tool{
		definition: &mcp.Tool{
			Name: a.name, Title: a.title, Description: a.description, Annotations: a.hints.annotations(a.title),
			InputSchema: shown, OutputSchema: out,
		},
		run: func(ctx context.Context, c *call, arguments json.RawMessage) (any, error) {
			v, err := decodeArguments[In](arguments, resolved)
			if err != nil {
				return nil, &invalidInput{api.Errorf(api.CodeInvalid, "%s: %w", a.name, err)}
			}
			return f(ctx, c, v)
		},
	})
}

// invalidInput is input refused before the service saw it, and not yet in the
// audit log.
type invalidInput struct{ err *api.Error }

func (e *invalidInput) Error() string { return e.err.Error() }

// decodeArguments reads the arguments of a call strictly. It refuses unknown
// members by name, and what the schema forbids.
func decodeArguments[In any](arguments json.RawMessage, schema *jsonschema.Resolved) (v In, err error) {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	arguments, err = canon.Canonicalize(arguments)
	if err != nil {
		return v, err
	}
	if arguments[0] != '{' {
		return v, errors.New("arguments: want a JSON object")
	}
	var loose any
	if err := json.Unmarshal(arguments, &loose); err != nil {
		return v, err
	}
	// Schema errors come first: models know their terms. Decode then checks the
	// types.
	if err := schema.Validate(loose); err != nil {
		return v, explain(err)
	}
	return v, canon.Decode(arguments, &v)
}

// emptyText is how the validator says that a text must not be empty.
var emptyText = regexp.MustCompile(`pattern: "" does not match.*`)

// explain rewrites a schema error to a path and a reason.
func explain(err error) error {
	return errors.New(cuttext.Text(emptyText.ReplaceAllString(canon.SchemaText(err), "must not be empty; omit it instead"), 500))
}

// call is one call of a tool.
type call struct {
	caller   *caller
	ceiling  *api.Tier
	progress func(ctx context.Context, done float64, message string) // does nothing unless the client requested progress
}

func newCall(who *caller, req mcp.Request) *call {
	return &call{caller: who, ceiling: LowerCeiling(who.ceiling(nil), ceilingOfRequest(req))}
}

// withRuntime makes one request to the service for the caller. If the service
// refuses the handle of the token, as after a restart, it retries once with a new
// handle; the refused request had no effect. Its errors name no path of this
// machine.
func withRuntime[T any](ctx context.Context, c *call, f func(client.Runtime) (T, error)) (v T, err error) {
	defer func() {
		if e, ok := errors.AsType[*api.Error](err); ok {
			err = usererror.ForAgents(e)
		}
	}()
	rt, handle, err := c.caller.runtime(ctx, c.ceiling, "")
	if err != nil {
		return v, err
	}
	v, err = f(rt)
	if err == nil || api.CodeOf(err) != api.CodeUnauthenticated || c.caller.token == "" {
		return v, err
	}
	if rt, _, err = c.caller.runtime(ctx, c.ceiling, handle); err != nil {
		return v, err
	}
	return f(rt)
}

// handler answers the calls of one tool for one caller.
func (s *Server) handler(who *caller, t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c := newCall(who, req)
		c.progress = progressOf(req)
		out, err := t.run(ctx, c, req.Params.Arguments)
		if ctx.Err() != nil {
			return nil, ctx.Err() // cancelled
		}
		if invalid, ok := errors.AsType[*invalidInput](err); ok {
			err = s.logRefusal(ctx, c, t.definition.Name, invalid.err)
		}
		if err == nil {
			var result *mcp.CallToolResult
			if result, err = resultOf(out); err == nil {
				return result, nil
			}
		}
		return s.failed(ctx, t.definition.Name, err)
	}
}

// resultOf returns an answer as structured content and, for clients that do not
// read that, the same as text.
func resultOf(v any) (*mcp.CallToolResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		StructuredContent: json.RawMessage(b),
		Content:           []mcp.Content{&mcp.TextContent{Text: string(b)}},
	}, nil
}

// failed returns a failure as the result of a call, so that the model sees it.
func (s *Server) failed(ctx context.Context, name string, err error) (*mcp.CallToolResult, error) {
	e := toolError(err)
	if e.Code == api.CodeInternal || e.Code == api.CodeUnavailable {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "tool call failed", slog.String("tool", name), slog.Any("err", err))
	}
	b, err := json.Marshal(struct {
		Error *api.Error `json:"error"`
	}{e})
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		IsError: true, StructuredContent: json.RawMessage(b),
		Content: []mcp.Content{&mcp.TextContent{Text: errorText(e)}},
	}, nil
}

// progressOf returns a function that sends progress notifications, if the client
// requested them.
func progressOf(req *mcp.CallToolRequest) func(context.Context, float64, string) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func(context.Context, float64, string) {}
	}
	return func(ctx context.Context, done float64, message string) {
		// Best effort: the answer does not depend on it.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Message: message})
	}
}
