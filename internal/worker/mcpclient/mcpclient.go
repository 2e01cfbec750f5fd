// Package mcpclient speaks to servers of tools, as a client of the Model Context
// Protocol: over the standard streams of a program, or over streamable HTTP, with the
// credential of the server. Only bailiwick-toolhost links it, so that the service holds no
// credential and reads nothing that a server wrote.
//
// What a server sends is hostile. Each message is read once, strictly and bounded. One
// that cannot be read fails the request that it answers; a second answer, or one to a
// request that was not made, ends the session. Requests of a server are refused, and
// what it says by itself is bounded by a bucket. Nothing in this package decides
// whether a tool may be called.
//
// Carries R-G5.
package mcpclient

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Config configures how servers are reached.
type Config struct {
	Dial  egress.DialFunc   // of servers over HTTP without an address; nil: public hosts
	Roots *x509.CertPool    // that those servers must chain to; nil: the system's
	Now   func() time.Time  // nil: time.Now
	Said  func(line string) // gets a line about what a server does wrong; nil: nobody
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

// Server is a server over HTTP with the values of its secrets.
type Server struct {
	api.ToolServer

	Secrets record.Secrets
}

// openTime bounds the start of a server, with the first exchange of messages.
const openTime = 60 * time.Second

// OpenHTTP connects to a server over HTTP. changed is called when it says that its tools
// have changed; it must return at once. The caller must Close the session.
func OpenHTTP(ctx context.Context, cfg Config, s Server, changed func()) (*Session, error) {
	ctx, cancel := opening(ctx)
	defer cancel()
	return openHTTP(ctx, cfg.withDefaults(), s, changed)
}

// OpenProgram is OpenHTTP for a program that speaks on its standard streams. start starts
// it, a second time if it exits because the first message is not initialize.
func OpenProgram(ctx context.Context, cfg Config, start func(context.Context) (*Program, error), changed func()) (*Session, error) {
	ctx, cancel := opening(ctx)
	defer cancel()
	cfg = cfg.withDefaults()
	session, err := openProgram(ctx, cfg, start, changed, true)
	var ended *EndedError
	if errors.As(err, &ended) && ctx.Err() == nil && !ended.Broke {
		session, err = openProgram(ctx, cfg, start, changed, false)
	}
	return session, err
}

func opening(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, openTime, fmt.Errorf("it was not ready after %s", openTime))
}

// Offer is what a server has.
type Offer struct {
	Tools  []api.ToolDefinition // in canonical form, sorted by name
	Unused []string             // what no agent gets, such as resources; no words of the server
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
