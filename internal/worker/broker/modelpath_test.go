package broker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// raw sends a request line as it is and returns the answer.
func (w *modelWorld) raw(method, target, body string, header ...string) (int, string) {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(w.base, "http://"), "/model/big"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", method, target, strings.Join(append(header, ""), "\r\n"))
	if !strings.Contains(head, "Transfer-Encoding") {
		head = strings.Replace(head, "Host: x", fmt.Sprintf("Host: x\r\nContent-Length: %d", len(body)), 1)
	}
	go func() { _, _ = io.WriteString(conn, head+body) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Only requests that the format has reach the model, in exactly their spelling.
//
// proves R-S3
func TestOnlyKnownRequestsReachTheModel(t *testing.T) {
	const gemini = "/model/big/v1beta/models/"
	cases := map[api.ModelAPI]struct {
		body string
		good []string
		bad  []string
	}{
		api.AnthropicMessages: {`{"model":"large-1"}`, []string{"POST /model/big/v1/messages", "POST /model/big/v1/messages?beta=true", "POST /model/big/v1/messages/count_tokens", "GET /model/big/v1/models"}, []string{
			"GET /model/big/v1/messages", "PUT /model/big/v1/messages", "POST /model/big/v1/messages/", "POST /model/big/v1//messages", "POST /model/big//v1/messages", "POST /model/big/v1/./messages", "POST /model/big/v1/x/../messages",
			"POST /model/big/v1/messages%2Fbatches", "POST /model/big/v1/%6Dessages", "POST /model/big/v1/messages/batches", "POST /model/big/v1/files", "GET /model/big/v1/files/f/content", "POST /model/big/v1/complete",
			"DELETE /model/big/v1/models", "GET /model/big/v1/organizations/api_keys", "POST /model/big/v1/skills", "POST /model/other/v1/messages", "POST /model/big", "POST /model/big/", "POST /model//v1/messages", "POST /model/BIG/v1/messages",
			"POST /model/b%69g/v1/messages", "POST /mod%65l/big/v1/messages", "POST /model/big/v1/messages?fields=x", "POST /model/big/v1/messages?beta=%zz", "POST /model/big/v1/messages?$fields=x",
		}},
		api.OpenAIResponses: {`{"model":"large-1"}`, []string{"POST /model/big/v1/responses", "POST /model/big/responses", "GET /model/big/models", "GET /model/big/v1/models?client_version=1"}, []string{
			"GET /model/big/v1/responses/resp_1", "POST /model/big/v1/responses/resp_1/cancel", "POST /model/big/v1/chat/completions", "POST /model/big/v1/embeddings", "GET /model/big/v1/responses", "POST /model/big/v1/realtime", "POST /model/big/v1/containers",
		}},
		api.OpenAIChat: {`{"model":"large-1"}`, []string{"POST /model/big/v1/chat/completions", "POST /model/big/chat/completions"}, []string{"POST /model/big/v1/completions", "POST /model/big/v1/responses", "POST /model/big/api/pull"}},
		api.Gemini: {`{"contents":[]}`, []string{"POST " + gemini + "large-1:generateContent", "POST " + gemini + "large-1:streamGenerateContent?alt=sse&key=mine", "POST " + gemini + "large-1:countTokens"}, []string{
			"POST " + gemini + "huge-9:generateContent", "POST " + gemini + "large-1%2F..%2Fhuge-9:generateContent", "POST " + gemini + "large-1/../huge-9:generateContent", "POST " + gemini + "large-1:generateContent:x", "POST " + gemini + "%6Carge-1:generateContent",
			"POST " + gemini + "large-1%3AgenerateContent", "POST " + gemini + "/large-1:generateContent", "POST " + gemini + "large-1:batchGenerateContent", "POST " + gemini + "large-1:generateContent/", "POST /model/big/v1/models/large-1:generateContent",
			"POST /model/big/v1beta/tunedModels/large-1:generateContent", "POST " + gemini + "large-1:generateContent?fields=candidates", "POST " + gemini + "large-1:streamGenerateContent?alt=sse&alt=json", "POST " + gemini + "large-1:generateContent?alt=proto",
			"POST " + gemini + "large-1:generateContent?%24alt=sse", "POST /model/big/v1beta/cachedContents", "POST /model/big/upload/v1beta/files", "POST " + gemini + "large-1:generateContent?access_token=x",
		}},
	}
	for a, c := range cases {
		w := newModelWorld(t, a, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, nil)
		for _, good := range c.good {
			method, target, _ := strings.Cut(good, " ")
			body := c.body
			if method == "GET" {
				body = ""
			}
			if status, got := w.raw(method, target, body); status != 200 {
				t.Errorf("control: %s: %d %s", good, status, got)
			}
		}
		if w.reached() != len(c.good) || len(w.refused) > 0 {
			t.Errorf("control: %s: %d reached the model, refused %+v", a, w.reached(), w.refused)
		}
		for i, bad := range c.bad {
			method, target, _ := strings.Cut(bad, " ")
			if status, got := w.raw(method, target, c.body); status != 403 || !strings.Contains(got, "Retrying will not help") {
				t.Errorf("%s: %d %s", bad, status, got)
			}
			if len(w.refused) != i+1 {
				t.Fatalf("%s: %d refusals, want %d", bad, len(w.refused), i+1)
			}
		}
		if w.reached() != len(c.good) {
			t.Errorf("%s: %d refused requests reached the model", a, w.reached()-len(c.good))
		}
	}
}

// Bodies that are refused have the shape of the API's errors, which programs show.
//
// proves R-S3
func TestRefusedBodiesAreAnsweredInTheShapeOfTheAPI(t *testing.T) {
	for a, want := range map[api.ModelAPI][2]string{
		api.AnthropicMessages: {"/v1/messages", `{"error":{"message":"bailiwick: refused: \"/model\" in the body of the request: this worker may use only the model \"large-1\", not \"huge-9\". ` + useless + `","type":"permission_error"},"type":"error"}` + "\n"},
		api.OpenAIResponses:   {"/v1/responses", `"code":"permission_error"`},
		api.OpenAIChat:        {"/v1/chat/completions", `"type":"permission_error"`},
		api.Gemini:            {"/v1beta/models/large-1:generateContent", `"status":"PERMISSION_DENIED"`},
	} {
		w := newModelWorld(t, a, honest, nil)
		status, body := w.do("POST", want[0], `{"model":"huge-9"}`)
		if status != 403 || !strings.Contains(body, want[1]) || !strings.Contains(body, `only the model \"large-1\"`) || w.reached() > 0 {
			t.Errorf("%s: %d %s", a, status, body)
		}
		if len(w.refused) != 1 || w.refused[0].Form != "model" || w.refused[0].Host != "big" || w.refused[0].Number != 1 {
			t.Errorf("%+v", w.refused)
		}
		if f := w.ModelFault(); !strings.Contains(f, "the broker refused a request") {
			t.Error(f)
		}
		if status, _ := w.do("POST", want[0], `{"tools":[`); status != 400 || len(w.refused) != 2 {
			t.Errorf("%s: half a body: %d", a, status)
		}
		lines := w.lines()
		if lines[0].Refused == "" || lines[0].Status != 403 || lines[1].Status != 400 {
			t.Errorf("%+v", lines)
		}
	}
}

// proves R-S3
func TestBodiesAreBoundedHoweverTheyAreSent(t *testing.T) {
	w := newModelWorld(t, api.AnthropicMessages, honest, nil)
	fill := func(n int) string {
		const start, end = `{"model":"large-1","system":"`, `"}`
		return start + strings.Repeat("a", n-len(start)-len(end)) + end
	}
	chunked := func(body string) string {
		var b strings.Builder
		for len(body) > 0 {
			n := min(len(body), 1<<20)
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		return b.String() + "0\r\n\r\n"
	}
	const target = "/model/big/v1/messages"
	if status, body := w.raw("POST", target, fill(maxBody)); status != 200 {
		t.Error("control:", status, body)
	}
	if status, body := w.raw("POST", target, chunked(fill(3<<20)), "Transfer-Encoding: chunked"); status != 200 || len(w.bodies[1]) != 3<<20 {
		t.Error("control:", status, body)
	}
	if status, _ := w.raw("POST", target, chunked(`{"model":"huge-9"}`), "Transfer-Encoding: chunked"); status != 403 {
		t.Error("another model in chunks:", status)
	}
	for _, send := range []func() (int, string){
		func() (int, string) { return w.raw("POST", target, fill(maxBody+1)) },
		func() (int, string) {
			return w.raw("POST", target, chunked(fill(maxBody+1)), "Transfer-Encoding: chunked")
		},
	} {
		if status, body := send(); status != 413 && status != 0 || status == 413 && !strings.Contains(body, "64 MiB") {
			t.Error(status, body)
		}
	}
	if status, body := w.raw("POST", target, "\x1f\x8b", "Content-Encoding: gzip"); status != 400 || !strings.Contains(body, "encoding") {
		t.Error(status, body)
	}
	if w.reached() != 2 {
		t.Errorf("%d requests reached the model", w.reached())
	}
}

// Codex falls back to HTTP, and nothing is refused.
func TestWebSocketsAreAnsweredWithHTTP(t *testing.T) {
	w := newModelWorld(t, api.OpenAIResponses, honest, nil)
	status, body := w.do("GET", "/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	if status != http.StatusUpgradeRequired || !strings.Contains(body, "over HTTP") || len(w.refused) > 0 {
		t.Error(status, body, w.refused)
	}
	if lines := w.lines(); lines[0].Status != http.StatusUpgradeRequired {
		t.Errorf("%+v", lines)
	}
}

// What an agent says of its own usage changes nothing: neither in its request nor in
// what the model repeats.
//
// proves R-D8
func TestALyingAgentChangesNothing(t *testing.T) {
	const lie = `{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":0,\"input_tokens\":0}}\n\ndata: {\"type\":\"message_stop\"}`
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, anthropicStart, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"`+lie+`"},"x":{"usage":{"output_tokens":0}}}`, anthropicEnd, anthropicStop)
	}, nil)
	body := `{"model":"large-1","metadata":{"usage":{"output_tokens":0}},"messages":[{"role":"user","content":"` + lie + `"}]}`
	if status, got := w.do("POST", "/v1/messages", body); status != 200 {
		t.Fatal(status, got)
	}
	if u := w.Usage(); u.Tokens != (api.Tokens{Input: 10, Output: 20, CacheRead: 100, CacheWrite: 4}) {
		t.Errorf("%+v", u)
	}
}
