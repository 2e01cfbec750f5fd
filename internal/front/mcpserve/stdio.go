package mcpserve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

const (
	// maxCalls bounds the concurrent calls of one session.
	maxCalls = 64
	// drainTime is how long calls may take to finish after the input has ended, so
	// that piped input is answered.
	drainTime = 2 * time.Second
	// endTime is how long a session may take to end after a signal or the end of
	// its input. A client that does not read its answers would otherwise keep it.
	endTime = 4 * time.Second
	// maxLines is how many lines are read ahead, so that the end of the input is
	// seen behind lines that wait for the client to read.
	maxLines = 64
)

// stdio is one session over a pair of streams, with one message per line. It reads
// messages strictly before the SDK sees them.
type stdio struct {
	ctx    context.Context //nolint:containedctx // of the process, which Read must watch
	in     *bufio.Reader
	report func(method string, err error)

	lines  chan line
	ended  chan struct{} // closed by read at the end of the input
	stuck  chan struct{} // closed by read when no line has been accepted for endTime
	closed chan struct{}
	once   sync.Once

	writing sync.Mutex
	out     io.Writer // guarded by writing

	mu      sync.Mutex
	open    map[jsonrpc.ID]bool // concurrent calls; guarded by mu
	sending int                 // answers being written; guarded by mu
	idle    chan struct{}       // closed when the last call is answered after the input has ended; guarded by mu
}

// line is a line of the input, or an error.
type line struct {
	text []byte
	err  error
}

var errTooLong = errors.New("line too long")

func newStdio(ctx context.Context, in io.Reader, out io.Writer, report func(string, error)) *stdio {
	t := &stdio{
		ctx: ctx, in: bufio.NewReaderSize(in, 64<<10), out: out, report: report,
		lines: make(chan line, maxLines), ended: make(chan struct{}), stuck: make(chan struct{}), closed: make(chan struct{}), open: map[jsonrpc.ID]bool{},
	}
	go t.read() // until the input ends, or the process
	return t
}

// Connect implements mcp.Transport: a stdio is its own connection.
func (t *stdio) Connect(context.Context) (mcp.Connection, error) { return t, nil }

// SessionID implements mcp.Connection.
func (t *stdio) SessionID() string { return "" }

// Close implements mcp.Connection.
func (t *stdio) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// read sends lines to Read. Reading standard input cannot be interrupted, so it
// has a goroutine of its own.
func (t *stdio) read() {
	for {
		text, err := readLine(t.in)
		last := err != nil && !errors.Is(err, errTooLong)
		if last {
			close(t.ended)
		}
		if !t.queue(line{text, err}) || last {
			return
		}
	}
}

// queue hands a line to Read. It returns false when the session is over or stuck.
func (t *stdio) queue(l line) bool {
	select {
	case t.lines <- l:
		return true
	default:
	}
	patience := time.NewTimer(endTime)
	defer patience.Stop()
	select {
	case t.lines <- l:
		return true
	case <-t.closed:
	case <-patience.C:
		close(t.stuck)
	}
	return false
}

// await returns when the session has ended, as wait reports it, or cannot end
// because its client does not read: then what is left to write is lost, and the
// process has to exit under the goroutines that write it.
func (t *stdio) await(wait func() error) error {
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		return err
	case <-t.stuck:
		return nil
	case <-t.ended:
	case <-t.ctx.Done():
	}
	patience := time.NewTimer(endTime)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-t.stuck:
	case <-patience.C:
	}
	return nil
}

// readLine returns the next line. It skips a line that is too long and returns
// errTooLong.
func readLine(r *bufio.Reader) ([]byte, error) {
	var text []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if !long {
			text = append(text, part...)
			if len(text) > mcpwire.MaxMessage+2 { // and CRLF
				text, long = nil, true
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(text) == 0 && !long || !errors.Is(err, io.EOF)):
			return nil, err
		case long:
			return nil, errTooLong
		}
		return text, nil // the last line may lack a newline
	}
}

// Read implements mcp.Connection: it returns the next valid message and answers
// invalid ones itself.
func (t *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.ctx.Done():
			return nil, io.EOF // cancels calls
		case <-t.closed:
			return nil, io.EOF
		case l := <-t.lines:
			if l.err != nil && !errors.Is(l.err, errTooLong) {
				t.drain()
				return nil, l.err
			}
			msg, err := t.accept(l)
			if msg != nil || err != nil {
				return msg, err
			}
		}
	}
}

// accept returns the message of a line, or nil if it has answered the line.
func (t *stdio) accept(l line) (jsonrpc.Message, error) {
	if l.err == nil && len(bytes.TrimSpace(l.text)) == 0 {
		return nil, nil //nolint:nilnil // an empty line is ignored
	}
	m, err := Message{}, mcpwire.Refuse(jsonrpc.CodeInvalidRequest, "the message is larger than 1 MiB")
	if l.err == nil {
		m, err = ParseMessage(l.text)
	}
	if err != nil {
		t.report("message", err)
		return nil, t.send(mcpwire.ErrorResponse(l.text, err))
	}
	msg, err := jsonrpc.DecodeMessage(m.Text)
	if err != nil {
		return nil, t.send(mcpwire.ErrorResponse(m.Text, mcpwire.Refuse(jsonrpc.CodeInvalidRequest, "not a JSON-RPC message")))
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() && !t.begin(req.ID) {
		return nil, t.send(mcpwire.ErrorResponse(m.Text, mcpwire.Refuse(jsonrpc.CodeInvalidRequest, "the id is in use, or 64 calls are in progress: wait for their answers")))
	}
	return msg, nil
}

// begin registers a call; it returns false if there is no room or the id is in use.
func (t *stdio) begin(id jsonrpc.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxCalls || t.open[id] {
		return false
	}
	t.open[id] = true
	return true
}

// answer sends the answer of a call. It frees the id first, so that a client that
// has read the answer can reuse it.
func (t *stdio) answer(id jsonrpc.ID, b []byte) error {
	t.mu.Lock()
	delete(t.open, id)
	t.sending++
	t.mu.Unlock()
	err := t.send(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sending--; len(t.open)+t.sending == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
	return err
}

// drain waits for calls in progress when the input ends: the SDK drops them once
// Read returns EOF.
func (t *stdio) drain() {
	t.mu.Lock()
	if len(t.open)+t.sending == 0 {
		t.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	t.idle = idle
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.ctx, drainTime)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-t.closed:
	}
}

// Write implements mcp.Connection.
func (t *stdio) Write(_ context.Context, msg jsonrpc.Message) error {
	resp, ok := msg.(*jsonrpc.Response)
	if ok && resp.Error != nil {
		resp = &jsonrpc.Response{ID: resp.ID, Error: wireError(resp.Error)}
		msg = resp
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if ok {
		return t.answer(resp.ID, b)
	}
	return t.send(b)
}

// wireError gives an error of the SDK a code: a message at the wrong time has
// none.
func wireError(err error) error {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code != 0 {
		return err
	}
	return mcpwire.Refuse(jsonrpc.CodeInvalidRequest, err.Error())
}

func (t *stdio) send(b []byte) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	_, err := t.out.Write(append(b, '\n'))
	return err
}
