package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// service answers in the place of the service, and keeps what reached it.
type service struct {
	answer func(r *http.Request, body string) (*http.Response, error)
	got    chan *http.Request
	bodies chan string
}

func newService(answer func(r *http.Request, body string) (*http.Response, error)) *service {
	return &service{answer, make(chan *http.Request, 1000), make(chan string, 1000)}
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.got <- r
	s.bodies <- string(b)
	return s.answer(r, string(b))
}

func answered(kind, body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}, "Set-Cookie": {"a=b"}, "X-Other": {"c"}}, Body: io.NopCloser(strings.NewReader(body))}
}

func finished(*http.Request, string) (*http.Response, error) {
	return answered("application/json", `{"jsonrpc":"2.0","id":7,"result":{}}`), nil
}

const toolMessage = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"report","arguments":{"text":"x"}}}`

// replied is an answer without its body.
type replied struct {
	StatusCode int
	Header     http.Header
}

// post sends a message to the tools. edit may change the request.
func (w *world) post(body io.Reader, edit func(*http.Request)) (*replied, string) {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+w.proxy+"/mcp", body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if edit != nil {
		edit(r)
	}
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return nil, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return &replied{resp.StatusCode, resp.Header}, string(text) + err.Error()
	}
	return &replied{resp.StatusCode, resp.Header}, string(text)
}

// Only the message and a few fields cross, in both directions.
//
// proves R-G2
func TestOnlyAMessageReachesTheService(t *testing.T) {
	s := newService(finished)
	w := newWorld(t, Config{Tools: s})
	resp, text := w.post(strings.NewReader(toolMessage), func(r *http.Request) {
		for name, v := range map[string]string{
			"Authorization": "Bearer x", record.ToolMessage: "chosen", "Cookie": "a=b", "Mcp-Session-Id": "another", "X-Forwarded-For": "1.2.3.4", "X-Bailiwick-Dispatch": "d-other",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "report",
		} {
			r.Header.Set(name, v)
		}
	})
	if resp == nil || resp.StatusCode != http.StatusOK || !strings.Contains(text, `"id":7`) {
		t.Fatalf("%v %s", resp, text)
	}
	if resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("X-Other") != "" {
		t.Errorf("the agent got %v", resp.Header)
	}
	got := <-s.got
	for _, name := range []string{"Authorization", "Cookie", "Mcp-Session-Id", "X-Forwarded-For", "X-Bailiwick-Dispatch"} {
		if got.Header.Get(name) != "" {
			t.Errorf("the service got %s", name)
		}
	}
	if got.Header.Get(record.ToolMessage) == "chosen" {
		t.Error("the agent chose the key of its message")
	}
	if body := <-s.bodies; body != toolMessage || got.Header.Get("Mcp-Name") != "report" || got.Header.Get("Mcp-Protocol-Version") != "2026-07-28" {
		t.Errorf("the service got %v %s", got.Header, body)
	}
}

// A page in a browser of the jail, a rebound name, other methods and other content do
// not reach the service. The control is the request without the change.
//
// proves R-G2
func TestRequestsThatNoAgentMakesAreRefused(t *testing.T) {
	s := newService(finished)
	w := newWorld(t, Config{Tools: s})
	_, port, _ := net.SplitHostPort(w.proxy)
	for name, c := range map[string]struct {
		status int
		body   string
		edit   func(*http.Request)
	}{
		"control":           {http.StatusOK, toolMessage, nil},
		"localhost":         {http.StatusOK, toolMessage, func(r *http.Request) { r.Host = "localhost:" + port }},
		"a page":            {http.StatusForbidden, toolMessage, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"a file's page":     {http.StatusForbidden, toolMessage, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		"an empty origin":   {http.StatusForbidden, toolMessage, func(r *http.Request) { r.Header["Origin"] = []string{""} }},
		"a rebound name":    {http.StatusForbidden, toolMessage, func(r *http.Request) { r.Host = "evil.example:" + port }},
		"another port":      {http.StatusForbidden, toolMessage, func(r *http.Request) { r.Host = "127.0.0.1:1" }},
		"a form":            {http.StatusUnsupportedMediaType, toolMessage, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		"no type":           {http.StatusUnsupportedMediaType, toolMessage, func(r *http.Request) { r.Header.Del("Content-Type") }},
		"a compressed body": {http.StatusUnsupportedMediaType, toolMessage, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }},
		"a stream":          {http.StatusMethodNotAllowed, "", func(r *http.Request) { r.Method = http.MethodGet }},
		"the end of one":    {http.StatusMethodNotAllowed, "", func(r *http.Request) { r.Method = http.MethodDelete }},
		"a query":           {http.StatusBadRequest, toolMessage, func(r *http.Request) { r.URL.RawQuery = "role=transform" }},
		"another path":      {http.StatusNotFound, toolMessage, func(r *http.Request) { r.URL.Path = "/mcp/" }},
		"an escaped path":   {http.StatusNotFound, toolMessage, func(r *http.Request) { r.URL.RawPath = "/%6dcp" }},
		"too large":         {http.StatusRequestEntityTooLarge, strings.Repeat("x", 1<<20+1), nil},
	} {
		before := len(s.got)
		resp, text := w.post(strings.NewReader(c.body), c.edit)
		if resp == nil || resp.StatusCode != c.status {
			t.Errorf("%s: %v %s", name, resp, text)
		}
		if reached := len(s.got) > before; reached != (c.status == http.StatusOK) {
			t.Errorf("%s: reached the service: %t", name, reached)
		}
		if c.status == http.StatusNotFound && !strings.Contains(text, "/mcp") {
			t.Errorf("%s: does not name what is there: %s", name, text)
		}
	}
}

// A message whose connection breaks is sent again under its key, and the agent gets one
// answer, in the form that it began to read.
//
// proves R-G7
func TestALostMessageIsSentAgainUnderItsKey(t *testing.T) {
	const progress, result = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n", `{"jsonrpc":"2.0","id":7,"result":{}}`
	stream := func(body io.Reader, trailer http.Header) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body), Trailer: trailer}
	}
	undecided := http.Header{record.ToolUndecided: {"1"}}
	for name, c := range map[string]struct {
		first, again func() (*http.Response, error)
		want         string
		events       bool
	}{
		"killed": {
			func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			func() (*http.Response, error) { return answered("application/json", result), nil }, `"result"`, false,
		},
		"killed in the answer": {
			func() (*http.Response, error) { return withBody("application/json", `{"jsonrpc"`), nil },
			func() (*http.Response, error) { return answered("application/json", result), nil }, `"result"`, false,
		},
		"killed in the stream": {
			func() (*http.Response, error) {
				return stream(io.MultiReader(strings.NewReader(progress), failing{}), nil), nil
			},
			func() (*http.Response, error) { return answered("application/json", result), nil }, `"result"`, true,
		},
		"stopped": {
			func() (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: undecided, Body: http.NoBody}, nil
			},
			func() (*http.Response, error) { return stream(strings.NewReader("data: "+result+"\n\n"), nil), nil }, `"result"`, true,
		},
		"stopped in the stream": {
			func() (*http.Response, error) { return stream(strings.NewReader(progress), undecided), nil },
			func() (*http.Response, error) {
				return stream(strings.NewReader(progress+"data: "+result+"\n\n"), nil), nil
			}, `"result"`, true,
		},
		"stopped, and away": {
			func() (*http.Response, error) { return stream(strings.NewReader(progress), undecided), nil },
			func() (*http.Response, error) { return nil, ErrAway }, "the call was not made", true,
		},
		"killed, and away": {
			func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			func() (*http.Response, error) { return nil, ErrAway }, "not known whether the call took effect", false,
		},
		"killed, and the agent ends": {
			func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			func() (*http.Response, error) { return nil, ErrAgentEnded }, "not known whether the call took effect", false,
		},
		"stopped, and the agent ends": {
			func() (*http.Response, error) { return stream(strings.NewReader(progress), undecided), nil },
			func() (*http.Response, error) { return nil, ErrAgentEnded }, "the call was not made", true,
		},
		"an older service": {
			func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			func() (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody}, nil
			}, "not known whether the call took effect", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var keys, methods []string
			w := newWorld(t, Config{Tools: newService(func(r *http.Request, _ string) (*http.Response, error) {
				keys, methods = append(keys, r.Header.Get(record.ToolMessage)), append(methods, r.Method)
				if len(methods) == 1 {
					return c.first()
				}
				return c.again()
			})})
			resp, text := w.post(strings.NewReader(toolMessage), nil)
			if resp == nil || !strings.Contains(text, c.want) || strings.Count(text, `"id":7`) != 1 || strings.Contains(text, "data: ") != c.events {
				t.Errorf("%v %s", resp, text)
			}
			if len(keys) != 2 || keys[0] != keys[1] || len(keys[0]) < 26 || !slices.Equal(methods, []string{http.MethodPost, http.MethodPut}) {
				t.Errorf("keys %q, methods %q", keys, methods)
			}
		})
	}
	// The control: another message has another key.
	s := newService(finished)
	w := newWorld(t, Config{Tools: s})
	w.post(strings.NewReader(toolMessage), nil)
	w.post(strings.NewReader(toolMessage), nil)
	if one, two := <-s.got, <-s.got; one.Header.Get(record.ToolMessage) == two.Header.Get(record.ToolMessage) || one.Method != http.MethodPost || two.Method != http.MethodPost {
		t.Errorf("two messages: %v %v", one.Header, two.Header)
	}
}

// An agent always gets an answer that says whether its call may have taken effect.
//
// proves R-G4
func TestALostServiceIsSaidToTheAgent(t *testing.T) {
	broken := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}}
	for name, c := range map[string]struct {
		answer func(*http.Request, string) (*http.Response, error)
		want   string
	}{
		"away":   {func(*http.Request, string) (*http.Response, error) { return nil, ErrAway }, "the call was not made"},
		"ended":  {func(*http.Request, string) (*http.Response, error) { return nil, ErrAgentEnded }, "the call was not made"},
		"broken": {func(*http.Request, string) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, "not known whether the call took effect"},
		"in answer": {func(*http.Request, string) (*http.Response, error) {
			return withBody("application/json", `{"jsonrpc"`), nil
		}, "not known whether the call took effect"},
		"in stream": {func(*http.Request, string) (*http.Response, error) {
			r := *broken
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"), failing{}))
			return &r, nil
		}, "not known whether the call took effect"},
	} {
		w := newWorld(t, Config{Tools: newService(func(r *http.Request, body string) (*http.Response, error) {
			if r.Method == http.MethodPut {
				return nil, ErrAway
			}
			return c.answer(r, body)
		})})
		resp, text := w.post(strings.NewReader(toolMessage), nil)
		if resp == nil || resp.StatusCode != http.StatusOK || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v %s", name, resp, text)
			continue
		}
		if name == "in stream" {
			_, text, _ = strings.Cut(text, "event: message\ndata: ")
		}
		var e struct {
			ID    int
			Error struct{ Code int }
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.ID != 7 || e.Error.Code == 0 {
			t.Errorf("%s: %v %s", name, err, text)
		}
	}
	// In the middle of an event nothing can be said: the connection breaks.
	w := newWorld(t, Config{Tools: newService(func(*http.Request, string) (*http.Response, error) {
		r := *broken
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("data: {\"jsonrpc\""), failing{}))
		return &r, nil
	})})
	if resp, text := w.post(strings.NewReader(toolMessage), nil); resp == nil || !strings.Contains(text, "unexpected EOF") {
		t.Errorf("%v %s", resp, text)
	}
	// A notification is not answered with 200, which would say that it was taken.
	w = newWorld(t, Config{Tools: newService(func(*http.Request, string) (*http.Response, error) { return nil, ErrAway })})
	if resp, _ := w.post(strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil); resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v", resp)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

func withBody(kind, start string) *http.Response {
	r := answered(kind, "")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(start), failing{}))
	return r
}

// An agent that sends slowly, never reads, or calls without end harms its own calls only,
// and only for a time: what it holds is bounded, and its other requests are served.
//
// proves R-G2
func TestHostileCallsAreBounded(t *testing.T) {
	release := make(chan struct{})
	out := make(chan struct{}, 1000)
	s := newService(func(r *http.Request, body string) (*http.Response, error) {
		if strings.Contains(body, "slow") {
			out <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			}
		}
		return finished(r, body)
	})
	w := newWorld(t, Config{Tools: s})
	finished := make(chan string, 200)
	for range maxToolCalls {
		go func() {
			_, text := w.post(strings.NewReader(strings.Replace(toolMessage, "x", "slow", 1)), nil)
			finished <- text
		}()
	}
	for range maxToolCalls {
		<-out
	}
	resp, text := w.post(strings.NewReader(toolMessage), nil)
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(text, "out already") {
		t.Errorf("one more: %v %s", resp, text)
	}
	other, err := http.Get("http://" + w.proxy + "/")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Body.Close(); err != nil || other.StatusCode != http.StatusNotFound {
		t.Errorf("another request: %v", other)
	}
	close(release)
	for range maxToolCalls {
		if text := <-finished; !strings.Contains(text, `"result"`) {
			t.Error(text)
		}
	}
	if resp, _ := w.post(strings.NewReader(toolMessage), nil); resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %v", resp)
	}
}

// Two requests in one, a folded field, huge headers and both lengths: what reaches the
// service is at most the one message that net/http reads.
func TestSmuggledCallsReachNothing(t *testing.T) {
	s := newService(finished)
	w := newWorld(t, Config{Tools: s})
	head := "POST /mcp HTTP/1.1\r\nHost: " + w.proxy + "\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		raw  string
		most int
	}{
		"control":            {head + fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(toolMessage), toolMessage), 1},
		"both lengths":       {head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(toolMessage), toolMessage), 1},
		"two lengths":        {head + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", 0},
		"a folded field":     {head + " folded: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 1},
		"huge headers":       {head + "X: " + strings.Repeat("a", 200<<10) + "\r\n\r\n", 0},
		"a line without end": {"POST /mcp HTTP/1.1\r\nHost: " + w.proxy + "\nContent-Type", 0},
		"a second host":      {"POST /mcp HTTP/1.1\r\nHost: " + w.proxy + "\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 0},
		"HTTP/2":             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
	} {
		before := len(s.got)
		conn, err := net.Dial("tcp", w.proxy)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		go func() { _, _ = io.WriteString(conn, c.raw) }()
		_, _ = io.Copy(io.Discard, bufio.NewReader(conn))
		_ = conn.Close()
		if n := len(s.got) - before; n > c.most || name == "control" && n != 1 {
			t.Errorf("%s: %d messages reached the service", name, n)
		}
	}
}

// An answer has a bound, and a tool of a jail that is not an agent's has none.
func TestAnswersAreBounded(t *testing.T) {
	w := newWorld(t, Config{Tools: newService(func(*http.Request, string) (*http.Response, error) {
		r := answered("text/event-stream", "")
		r.Body = io.NopCloser(endless{})
		return r, nil
	})})
	if resp, text := w.post(strings.NewReader(toolMessage), nil); resp == nil || len(text) > maxToolStream+100 || !strings.Contains(text, "unexpected EOF") {
		t.Errorf("%v, %d bytes", resp, len(text))
	}
	w = newWorld(t, Config{})
	if resp, text := w.post(strings.NewReader(toolMessage), nil); resp == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v %s", resp, text)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
