// Package toolclient speaks to servers of tools, as a client of the Model Context
// Protocol: over the standard streams of bailiwick-toolhost, which it starts, or
// over streamable HTTP. The service calls tools with it, and bailiwick-deploy lists
// their definitions.
//
// What a server sends is hostile. Each message is read once, strictly and bounded. One
// that cannot be read fails the request that it answers; a second answer, or one to a
// request that was not made, ends the session. Requests of a server are refused, and
// what it says by itself is bounded by a bucket. Nothing in this package decides
// whether a tool may be called.
//
// Carries R-G5.
package toolclient

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Config configures how servers are reached.
type Config struct {
	Program string           // path of bailiwick-toolhost
	Env     []string         // its environment; the jail gets none of it
	Dial    egress.DialFunc  // of servers over HTTP without an address; nil: public hosts
	Roots   *x509.CertPool   // that those servers must chain to; nil: the system's
	Now     func() time.Time // nil: time.Now
	// Said gets what bailiwick-toolhost says about a server, such as a refused
	// request. nil: nobody.
	Said func(server api.Name, line string)
	// Killed is called after a bailiwick-toolhost was killed: its jail left control
	// groups. nil: they stay until the next jail starts.
	Killed func()
}

func (c Config) withDefaults() Config {
	if c.Dial == nil {
		c.Dial = egress.Public(egress.Config{}).DialContext
	}
	if c.Now == nil {
		c.Now = time.Now //nolint:forbidigo // the default clock
	}
	return c
}

// Server is a server with what is not in its document.
type Server struct {
	api.ToolServer

	Secrets record.Secrets // values, by name of artifact
	Files   []File         // of its capability
	// Renew returns the value of a secret again, after a server over HTTP refused it. nil:
	// the value does not change.
	Renew func(context.Context, api.Name) (string, error)
}

// File is a file of a capability.
type File struct {
	api.File

	Open func() (io.ReadCloser, error)
}

// SecretNames lists the secrets whose values a server needs, sorted.
func SecretNames(s api.ToolServer) []api.Name {
	var names []api.Name
	host := hostOf(s)
	for _, n := range host.Secrets {
		names = append(names, n)
	}
	if h := s.HTTP; h != nil && h.Header != nil {
		names = append(names, h.Header.Secret)
	}
	if h := s.HTTP; h != nil && h.OAuth != nil {
		names = append(names, h.OAuth.Secret)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Capability is the capability whose files a server needs; "" for none.
func Capability(s api.ToolServer) api.Name { return hostOf(s).Capability }

func hostOf(s api.ToolServer) api.ToolHost {
	switch {
	case s.Stdio != nil:
		return s.Stdio.ToolHost
	case s.Run != nil:
		return s.Run.ToolHost
	}
	return api.ToolHost{}
}

// openTime bounds the start of a server, with the first exchange of messages.
const openTime = 60 * time.Second

// Open connects to a server, starting it if it is a program. changed is called when it
// says that its tools have changed; it must return at once. The caller must Close the
// session.
func Open(ctx context.Context, cfg Config, s Server, changed func()) (*Session, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, fmt.Errorf("it was not ready after %s", openTime))
	defer cancel()
	switch {
	case s.Stdio != nil:
		session, err := openStdio(ctx, cfg, s, changed, true)
		var ended *EndedError
		if errors.As(err, &ended) && ctx.Err() == nil && !ended.Broke {
			// Some servers exit when the first message is not initialize.
			session, err = openStdio(ctx, cfg, s, changed, false)
		}
		return session, err
	case s.HTTP != nil:
		return openHTTP(ctx, cfg, s, changed)
	}
	return nil, fmt.Errorf("%s is no MCP server", s.Name)
}

func openStdio(ctx context.Context, cfg Config, s Server, changed func(), discover bool) (*Session, error) {
	p, err := start(ctx, cfg, s, nil)
	if err != nil {
		return nil, err
	}
	session := newSession(cfg, s.Name, p, changed)
	go session.readLines(p.out)
	if err := session.open(ctx, discover); err != nil {
		_ = session.Close()
		return nil, err
	}
	return session, nil
}

// Offer is what a server has.
type Offer struct {
	Tools  []api.ToolDefinition // in canonical form, sorted by name
	Unused []string             // what no agent gets, such as resources; no words of the server
}

// Definitions connects to a server, reads the definitions of all its tools, and
// disconnects. A declared command has none to ask for.
func Definitions(ctx context.Context, cfg Config, s Server) (Offer, error) {
	session, err := Open(ctx, cfg, s, nil)
	if err != nil {
		return Offer{}, err
	}
	list, u, err := session.definitions(ctx)
	return Offer{list, session.offer.list(u)}, errors.Join(err, session.Close())
}

// EndedError says that a session has ended.
type EndedError struct {
	Why   string // for a person
	Broke bool   // the server broke the protocol or a bound
	Said  string // the end of its standard error; secrets are redacted
}

func (e *EndedError) Error() string {
	if e.Said == "" {
		return e.Why
	}
	return e.Why + ": " + lastLine(e.Said)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// RefusedError is an error that a server answers to a request.
type RefusedError struct {
	Code    int64
	Message string // in the server's words
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server answers error %d: %s", e.Code, e.Message)
}

// UnsentError says that a request did not reach the server.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return e.Err.Error() }
func (e *UnsentError) Unwrap() error { return e.Err }
