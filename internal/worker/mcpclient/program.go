package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Program is a server that runs, with its standard streams.
type Program struct {
	In     *io.PipeWriter
	Out    io.Reader
	Exited <-chan struct{}
	// Close ends the program and returns the end of what it wrote to its standard error,
	// without secrets.
	Close func() (said string, err error)
}

// writeTime bounds how long a server takes to read what is sent to it.
const writeTime = 10 * time.Second

// programLink exchanges messages with a program, a line each.
type programLink struct {
	*Program

	writing chan struct{} // holds a token while somebody writes
}

func openProgram(ctx context.Context, cfg Config, start func(context.Context) (*Program, error), changed func(), discover bool) (*Session, error) {
	p, err := start(ctx)
	if err != nil {
		return nil, err
	}
	session := newSession(cfg, &programLink{p, make(chan struct{}, 1)}, changed)
	go session.readLines(p.Out)
	if err := session.open(ctx, discover); err != nil {
		_ = session.Close()
		return nil, err
	}
	return session, nil
}

// send writes a message as a line. A server that does not read for writeTime is gone.
func (p *programLink) send(ctx context.Context, m outgoing) error {
	select {
	case p.writing <- struct{}{}:
	case <-ctx.Done():
		return &UnsentError{context.Cause(ctx)}
	case <-p.Exited:
		return &UnsentError{errors.New("the server ended")}
	}
	defer func() { <-p.writing }()
	// A part of a message may be in the pipe then, so no other can follow.
	slow := time.AfterFunc(writeTime, func() { _ = p.In.CloseWithError(io.ErrShortWrite) })
	defer slow.Stop()
	if _, err := p.In.Write(append(m.text, '\n')); err != nil {
		return fmt.Errorf("the server does not read: %w", err)
	}
	return nil
}

func (p *programLink) agreed(string) {}

func (p *programLink) listen() {} // it has one stream for everything

func (p *programLink) close() (said string, err error) { return p.Close() }
