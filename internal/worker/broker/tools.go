package broker

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// toolsPath is where an agent calls its tools, by MCP over streamable HTTP.
const toolsPath = "/mcp"

// Errors of Config.Tools.
var (
	// ErrAway says that the message did not reach the service.
	ErrAway = errors.New("the service is away")
	// ErrAgentEnded says that the agent, which the tools are for, has ended.
	ErrAgentEnded = errors.New("the agent has ended")
)

var (
	errLost     = errors.New("the answer is lost")
	errToolPart = errors.New("the agent has a part of an answer")
)

// Bounds of the messages to tools.
const (
	maxToolCalls  = 32               // at once; one more is refused
	maxToolStream = 16 << 20         // of an answer with its progress, in bytes
	maxToolWhole  = 64 << 10         // of an answer that is read whole before the agent gets its first byte
	toolBodyTime  = 30 * time.Second // for the agent to send a message
	toolWriteTime = time.Minute      // for the agent to take a part of an answer
)

// sentToService lists the fields of a request that the service gets.
func sentToService() []string {
	return []string{"Accept", "Content-Type", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version"}
}

// sentToAgent lists the fields of an answer that the agent gets.
func sentToAgent() []string {
	return []string{"Allow", "Cache-Control", "Content-Type", "Retry-After"}
}

// serveTools passes one message of the agent to the service, and its answer back. The
// service reads, decides and logs it; the connection to the service says whose agent calls.
func (b *Broker) serveTools(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(b.cfg.Now().Add(toolBodyTime)); err != nil {
		panic(http.ErrAbortHandler)
	}
	if status, why := b.checkTools(w, r); status != 0 {
		refuseTools(w, status, why)
		return
	}
	select {
	case b.tools <- struct{}{}:
		defer func() { <-b.tools }()
	default:
		w.Header().Set("Retry-After", "1")
		refuseTools(w, http.StatusTooManyRequests, fmt.Sprintf("%d messages are out already: wait until one is answered", maxToolCalls))
		return
	}
	message, status, why := readMessage(w, r)
	if status != 0 {
		w.Header().Set("Connection", "close")
		refuseTools(w, status, why)
		return
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil { // it would abort the answer
		panic(http.ErrAbortHandler)
	}
	b.passMessage(w, r, message)
}

// checkTools says why a request is refused before its body is read. A page that a
// browser in the jail shows cannot make one that passes.
func (b *Broker) checkTools(w http.ResponseWriter, r *http.Request) (int, string) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case b.cfg.Tools == nil:
		return http.StatusNotFound, "tools are for the agent of a dispatch, and this is not its jail"
	case !ownHost(r):
		return http.StatusForbidden, "host not allowed: use the address 127.0.0.1"
	case len(r.Header["Origin"]) > 0:
		return http.StatusForbidden, "origin not allowed: web pages cannot call tools"
	case r.URL.RawQuery != "" || r.URL.ForceQuery:
		return http.StatusBadRequest, "query not allowed: the path is " + toolsPath
	case r.Method != http.MethodPost: // it has neither streams of its own nor sessions
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "method not allowed: POST a message of MCP; there are no sessions"
	case err != nil || kind != "application/json" || len(params) > 1 || len(params) == 1 && !strings.EqualFold(params["charset"], "utf-8") || r.Header.Get("Content-Encoding") != "":
		return http.StatusUnsupportedMediaType, "Content-Type must be application/json, in UTF-8 and uncompressed"
	}
	return 0, ""
}

// ownHost reports whether a request names the listener by its address or as localhost. A
// page whose name resolves to 127.0.0.1 names itself.
func ownHost(r *http.Request) bool {
	here, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	_, port, err := net.SplitHostPort(here.String())
	return err == nil && (r.Host == here.String() || strings.EqualFold(r.Host, "localhost:"+port))
}

// readMessage reads a message whole, within its bounds.
func readMessage(w http.ResponseWriter, r *http.Request) (message []byte, status int, why string) {
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mcpwire.MaxMessage))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return nil, http.StatusRequestEntityTooLarge, "the message is larger than 1 MiB"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout, "timed out reading the message"
	case err != nil:
		return nil, http.StatusBadRequest, "cannot read the message"
	}
	return message, 0, ""
}

// refuseTools answers a request with a JSON-RPC error that has no id.
func refuseTools(w http.ResponseWriter, status int, why string) {
	answerTools(w, status, mcpwire.ErrorResponse(nil, mcpwire.Refuse(jsonrpc.CodeInvalidRequest, why)))
}

func answerTools(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// How often a message is sent to a service that breaks the connection, and the pause before
// it is sent again.
const (
	maxTries   = 10
	againPause = 100 * time.Millisecond
)

// passMessage sends a message to the service and relays the answer. After a broken
// connection it sends the message again under the same key: the service decides it once.
func (b *Broker) passMessage(w http.ResponseWriter, r *http.Request, message []byte) {
	a := &toolAnswer{w: w, c: http.NewResponseController(w), now: b.cfg.Now, message: message}
	key := rand.Text()
	method, undecided := http.MethodPost, true // nothing was sent
	for try := 1; ; try++ {
		resp, err := b.roundTrip(r, method, key, message)
		if err == nil {
			err = a.relay(resp)
			_ = resp.Body.Close()
		}
		broken, again := errors.AsType[*brokenError](err)
		switch {
		case err == nil:
			return
		case errors.Is(err, errToolPart):
			panic(http.ErrAbortHandler) // the agent must not take a part for the whole
		case again && try < maxTries && background.Pause(r.Context(), time.Duration(try)*againPause) == nil:
			method, undecided = http.MethodPut, undecided && broken.undecided
			continue
		case !undecided: // whether the service or the agent is gone now
			err = errLost
		}
		if a.lost(err) != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
}

// roundTrip sends a message to the service, by PUT after it was sent before.
func (b *Broker) roundTrip(r *http.Request, method, key string, message []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(r.Context(), method, "http://bailiwick"+toolsPath, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	for _, name := range sentToService() {
		if v := r.Header[name]; len(v) > 0 {
			out.Header[name] = v
		}
	}
	out.Header["User-Agent"] = nil
	out.Header.Set(record.ToolMessage, key)
	resp, err := b.cfg.Tools.RoundTrip(out)
	switch {
	case errors.Is(err, ErrAway), errors.Is(err, ErrAgentEnded):
		return nil, err
	case err != nil:
		return nil, &brokenError{err: err}
	case method == http.MethodPut && resp.StatusCode == http.StatusMethodNotAllowed: // an older service
		return nil, errors.Join(errLost, resp.Body.Close())
	case resp.Header.Get(record.ToolUndecided) != "":
		return nil, errors.Join(&brokenError{err: ErrAway, undecided: true}, resp.Body.Close())
	}
	return resp, nil
}

// lostResponse is the JSON-RPC error for a message that the service did not answer.
func lostResponse(message []byte, err error) []byte {
	why := "the connection to the service of Bailiwick broke: it is not known whether the call took effect; find out before you repeat it"
	switch {
	case errors.Is(err, ErrAway):
		why = "the service of Bailiwick is restarting: the call was not made; try it again in some seconds"
	case errors.Is(err, ErrAgentEnded):
		why = "the agent has ended, and its tools with it: the call was not made"
	}
	return mcpwire.ErrorResponse(message, mcpwire.Refuse(jsonrpc.CodeInternalError, why))
}
