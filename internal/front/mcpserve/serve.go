// Package mcpserve serves MCP clients: nine tools that call the run-time API.
//
// It is a client of the service and nothing else: it decides nothing, stores
// nothing, starts nothing and imports no package that could. It never trusts what
// a message says about its sender: the principal is that of the socket's peer or
// of a token that the service verified, and a ceiling that a session or request
// declares can only reduce authority (session.go). The tools are a frozen list
// (tools.go); there are no resources, no prompts, and no other method that changes
// anything. internal/front/mcphttp serves the same tools over HTTP.
//
// It carries R-B2, the serving side of R-B6 and R-B7, R-T1, R-T5, R-T8 and
// R-T9.
package mcpserve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

// Config is the configuration of a Server.
type Config struct {
	// Conn connects to the service. It does not start one: if none runs, each tool
	// says what a person has to do.
	Conn *client.RuntimeConn
	// Token authenticates the caller on stdio. Empty: the account of this process.
	Token  string
	Now    func() time.Time
	Logger *slog.Logger // never stdout, which is the protocol's
}

func (c Config) validate() error {
	if c.Conn == nil || c.Now == nil || c.Logger == nil {
		return errors.New("mcpserve: Conn, Now and Logger are required")
	}
	if c.Token != "" {
		return api.CheckToken(c.Token)
	}
	return nil
}

// Server answers MCP clients.
type Server struct {
	cfg   Config
	tools []tool
}

// New returns a server; Stdio or ForCaller serves clients.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg}
	var err error
	s.tools, err = s.newTools()
	return s, err
}

const instructions = `Bailiwick runs AI workers ("subagents") in jails, under a catalog that humans signed. You combine what they defined; you cannot define, change or approve anything.
Begin with bailiwick_subagents_list, start work with bailiwick_dispatch, and read results with bailiwick_dispatch_describe. Work takes minutes: a dispatch returns an id at once, or waits up to 50 seconds with wait.
A refusal with code "denied" is final: the same call will be refused again. Its hint says what you may do instead, or what to ask a human for.`

// Stdio serves one client over in and out until in ends or ctx is done, and
// returns within endTime of either. It opens no socket but the one to the service.
func (s *Server) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	who := s.newCaller(s.cfg.Token)
	t := newStdio(ctx, in, out, func(method string, err error) { s.report(ctx, who, method, err) })
	session, err := s.serverFor(who).Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	err = t.await(session.Wait)
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil //nolint:nilerr // a regular end of the session
	}
	return err
}

// ForCaller returns an MCP server for a caller that a transport has
// authenticated. It applies the ceilings that requests declare; the transport
// applies the one that initialize declares.
func (s *Server) ForCaller(rt client.Runtime) *mcp.Server { return s.serverFor(&caller{fixed: &rt}) }

func (s *Server) serverFor(who *caller) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bailiwick", Title: "Bailiwick", Version: api.Version()}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       DebugLogger(s.cfg.Logger),
		// Tools only, and they do not change while the server runs.
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SupportedProtocolVersions: mcpwire.Revisions(),
		SetCacheable:              func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	for _, t := range s.tools {
		server.AddTool(t.definition, s.handler(who, t))
	}
	server.AddReceivingMiddleware(s.guard(who))
	return server
}
