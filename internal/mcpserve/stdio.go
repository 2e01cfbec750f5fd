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
)

const (
	// maxCalls bounds the calls of one session that are under way.
	maxCalls = 64
	// drainTime is how long calls may take to end after the client has closed
	// its side, so that what is piped in is answered.
	drainTime = 2 * time.Second
)

// stdio is one session over a pair of streams: one message a line. The strict
// reading is done here, before the SDK sees a message.
type stdio struct {
	ctx    context.Context //nolint:containedctx // the life of the process, which Read has to watch
	in     *bufio.Reader
	report func(method string, err error)

	lines  chan line
	closed chan struct{}
	once   sync.Once

	writing sync.Mutex
	out     io.Writer // guarded by writing

	mu      sync.Mutex
	open    map[jsonrpc.ID]bool // calls under way; guarded by mu
	sending int                 // answers that are being written; guarded by mu
	idle    chan struct{}       // closed when the last one ends after the input did; guarded by mu
}

// line is one line of the input, or why there is none.
type line struct {
	text []byte
	err  error
}

var errTooLong = errors.New("line too long")

func newStdio(ctx context.Context, in io.Reader, out io.Writer, report func(string, error)) *stdio {
	t := &stdio{
		ctx: ctx, in: bufio.NewReaderSize(in, 64<<10), out: out, report: report,
		lines: make(chan line), closed: make(chan struct{}), open: map[jsonrpc.ID]bool{},
	}
	go t.read() // ends with the input, or with the process
	return t
}

// Connect implements mcp.Transport: a stdio is its own one connection.
func (t *stdio) Connect(context.Context) (mcp.Connection, error) { return t, nil }

// SessionID implements mcp.Connection.
func (t *stdio) SessionID() string { return "" }

// Close implements mcp.Connection.
func (t *stdio) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// read hands over the lines. A read of standard input cannot be interrupted,
// so it is done apart from Read.
func (t *stdio) read() {
	for {
		text, err := readLine(t.in)
		select {
		case t.lines <- line{text, err}:
		case <-t.closed:
			return
		}
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
	}
}

// readLine returns the next line without its end. Of one that is too long
// nothing is kept, and the line behind it is the next.
func readLine(r *bufio.Reader) ([]byte, error) {
	var text []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if !long {
			text = append(text, part...)
			if len(text) > MaxMessage+2 { // and its end
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
		return text, nil // the last line may lack its end
	}
}

// Read implements mcp.Connection: the next message that passes the gate. What
// does not pass is answered here.
func (t *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.ctx.Done():
			return nil, io.EOF // calls under way are cancelled
		case <-t.closed:
			return nil, io.EOF
		case l := <-t.lines:
			if l.err != nil && !errors.Is(l.err, errTooLong) {
				t.drain()
				return nil, l.err
			}
			msg, err := t.take(l)
			if msg != nil || err != nil {
				return msg, err
			}
		}
	}
}

// take returns the message of a line, or nil when it has been dealt with.
func (t *stdio) take(l line) (jsonrpc.Message, error) {
	if l.err == nil && len(bytes.TrimSpace(l.text)) == 0 {
		return nil, nil //nolint:nilnil // an empty line is nothing
	}
	text, err := []byte(nil), refuse(jsonrpc.CodeInvalidRequest, "the message is larger than 1 MiB")
	if l.err == nil {
		text, err = readMessage(l.text)
	}
	if err != nil {
		t.report("message", err)
		return nil, t.send(ErrorResponse(l.text, err))
	}
	msg, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		return nil, t.send(ErrorResponse(text, refuse(jsonrpc.CodeInvalidRequest, "not a JSON-RPC message")))
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() && !t.begin(req.ID) {
		return nil, t.send(ErrorResponse(text, refuse(jsonrpc.CodeInvalidRequest, "the id is in use, or more than 64 calls are under way: wait for their answers")))
	}
	return msg, nil
}

// begin counts a call that is under way.
func (t *stdio) begin(id jsonrpc.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxCalls || t.open[id] {
		return false
	}
	t.open[id] = true
	return true
}

// answer sends the answer of a call. Its place is free before the client can
// have read it: who waits for an answer to call again must not be refused.
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

// drain lets calls end that are under way when the input ends: the SDK drops
// them as soon as it is told.
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

// wireError gives an error of the SDK a code that has a meaning: a message that
// came at the wrong time has none there.
func wireError(err error) error {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code != 0 {
		return err
	}
	return refuse(jsonrpc.CodeInvalidRequest, err.Error())
}

func (t *stdio) send(b []byte) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	_, err := t.out.Write(append(b, '\n'))
	return err
}
