package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/internal/base/eventstream"
)

// revision is the protocol revision of MCP that has no sessions.
const revision = "2026-07-28"

// maxAnswer bounds an answer with its progress, in bytes.
const maxAnswer = 32 << 20

// client sends MCP messages, each in a request of its own.
type client struct {
	url  string
	http http.RoundTripper
	errs io.Writer // gets the progress of a call
}

func newClient(url string, errs io.Writer) *client {
	return &client{url, &http.Transport{}, errs} // without a proxy: the address is in the jail
}

// failure is a JSON-RPC error.
type failure struct {
	Message string `json:"message"`
	Data    reason `json:"data"`
}

// reason is why the service did not make a call.
type reason struct {
	Code string `json:"code"`
	Hint string `json:"hint"`
}

// status is the exit status for a call that was not made.
func (r reason) status() int {
	switch r.Code {
	case "denied":
		return exitRefused
	case "not_finished":
		return exitWaiting
	}
	return exitFailed
}

// answer is a JSON-RPC message of the service.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Message string `json:"message"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *failure        `json:"error"`
}

// request sends one request and decodes its result.
func (c *client) request(ctx context.Context, method, name string, params map[string]any, result any) error {
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    revision,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "bailiwick-tool", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		"progressToken": 1,
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return fail(exitUsage, "BAILIWICK_MCP_URL: %v", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", revision)
	r.Header.Set("Mcp-Method", method)
	if name != "" {
		r.Header.Set("Mcp-Name", name)
	}
	resp, err := c.http.RoundTrip(r)
	if err != nil {
		return fail(exitFailed, "%v: this program works in the jail of an agent, while the agent runs", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	a, err := c.read(resp)
	switch {
	case err != nil:
		return fail(exitFailed, "the answer cannot be read: %v: it is not known whether the call took effect", err)
	case a.Error != nil && a.Error.Data.Hint != "":
		return fail(a.Error.Data.status(), "%s; %s", a.Error.Message, a.Error.Data.Hint)
	case a.Error != nil:
		return fail(a.Error.Data.status(), "%s", a.Error.Message)
	}
	return json.Unmarshal(a.Result, result)
}

// read reads the answer to a request, which is JSON or the end of an event stream.
func (c *client) read(resp *http.Response) (a answer, err error) {
	in := io.LimitReader(resp.Body, maxAnswer)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		err = json.NewDecoder(in).Decode(&a)
	case "text/event-stream":
		a, err = c.readEvents(in)
	default:
		text, _ := io.ReadAll(io.LimitReader(in, 1<<10))
		err = fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(text))
	}
	if err == nil && a.Result == nil && a.Error == nil {
		err = fmt.Errorf("status %d without a result", resp.StatusCode)
	}
	return a, err
}

// errAnswered ends an event stream that has the answer.
var errAnswered = errors.New("answered")

// readEvents reads an event stream to the answer, and prints progress.
func (c *client) readEvents(in io.Reader) (found answer, err error) {
	_, err = io.Copy(&eventstream.Splitter{Most: maxAnswer, Event: func(data []byte) error {
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		if a.Method == "" {
			found = a
			return errAnswered
		}
		if a.Method == "notifications/progress" && a.Params.Message != "" {
			_, _ = fmt.Fprintln(c.errs, clean(a.Params.Message))
		}
		return nil
	}}, in)
	switch {
	case errors.Is(err, errAnswered):
		return found, nil
	case err == nil:
		err = errors.New("the event stream ends without an answer")
	}
	return answer{}, err
}

// tool is a tool of the list.
type tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// maxPages bounds a list of tools.
const maxPages = 1000

// tools returns the tools of the agent's role: as they are, and what list prints.
func (c *client) tools(ctx context.Context) (raw []json.RawMessage, list []tool, err error) {
	params := map[string]any{}
	for range maxPages {
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := c.request(ctx, "tools/list", "", params, &page); err != nil {
			return nil, nil, err
		}
		for _, doc := range page.Tools {
			var t tool
			if err := json.Unmarshal(doc, &t); err != nil {
				return nil, nil, err
			}
			raw, list = append(raw, doc), append(list, t)
		}
		if page.Next == "" {
			return raw, list, nil
		}
		params = map[string]any{"cursor": page.Next}
	}
	return nil, nil, fail(exitFailed, "the list of tools has more than %d pages", maxPages)
}

// result is what a tool answers.
type result struct {
	raw        json.RawMessage
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
	Meta       struct {
		Reason reason `json:"io.bailiwick/error"` // of a call that was not made
	} `json:"_meta"`
}

// call calls a tool by the name that the list has.
func (c *client) call(ctx context.Context, name string, arguments any) (r result, err error) {
	if err := c.request(ctx, "tools/call", name, map[string]any{"name": name, "arguments": arguments}, &r.raw); err != nil {
		return r, err
	}
	return r, json.Unmarshal(r.raw, &r)
}
