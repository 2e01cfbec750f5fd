package scriptmodel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// client is a request of each format: in its body, TOOLS and TURNS stand for more.
type client struct {
	api          api.ModelAPI
	path, stream string
	body, answer string // answer: of a call, that follows the first request
}

func clients() []client {
	return []client{
		{
			api.AnthropicMessages, "/v1/messages", "/v1/messages",
			`{"model":"m","stream":STREAM,"tools":[{"name":"Bash","input_schema":{"required":["command","why"]}}],"messages":[{"role":"user","content":"do it"}TURNS]}`,
			`,{"role":"assistant","content":[{"type":"tool_use","id":"toolcall_0","name":"Bash","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolcall_0","content":"done"}]}`,
		},
		{
			api.OpenAIResponses, "/v1/responses", "/v1/responses",
			`{"model":"m","stream":STREAM,"tools":[{"type":"function","name":"exec_command"}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"do it"}]}TURNS]}`,
			`,{"type":"function_call","call_id":"call_0","name":"exec_command"},{"type":"function_call_output","call_id":"call_0","output":"done"}`,
		},
		{
			api.OpenAIChat, "/v1/chat/completions", "/v1/chat/completions",
			`{"model":"m","stream":STREAM,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"bash"}}],"messages":[{"role":"user","content":"do it"}TURNS]}`,
			`,{"role":"assistant","tool_calls":[{"id":"call_0","function":{"name":"bash"}}]},{"role":"tool","tool_call_id":"call_0","content":"done"}`,
		},
		{
			api.Gemini, "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse",
			`{"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}],"contents":[{"role":"user","parts":[{"text":"do it"}]}TURNS]}`,
			`,{"role":"model","parts":[{"functionCall":{"name":"run_shell_command"}}]},{"role":"user","parts":[{"functionResponse":{"name":"run_shell_command","response":{"output":"done"}}}]}`,
		},
	}
}

// send posts a request, and returns the status and as much of the body as arrives.
func (c client) send(t *testing.T, url string, streamed bool, turns string) (int, []byte) {
	t.Helper()
	path, flag := c.path, "false"
	if streamed {
		path, flag = c.stream, "true"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(strings.NewReplacer("STREAM", flag, "TURNS", turns).Replace(c.body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer the-key")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, b
}

// usage reads what a client sees as the usage of a whole or partial answer.
func usage(t *testing.T, body []byte) (n api.Tokens) {
	t.Helper()
	type counts struct {
		Input      int64 `json:"input_tokens"`
		Output     int64 `json:"output_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Prompt      int64 `json:"prompt_tokens"`
		Completion  int64 `json:"completion_tokens"`
		ChatDetails struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, _ := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		var e struct {
			Usage    *counts
			Message  struct{ Usage *counts }
			Response struct{ Usage *counts }
			Metadata *struct{ PromptTokenCount, CachedContentTokenCount, CandidatesTokenCount, ThoughtsTokenCount int64 } `json:"usageMetadata"`
		}
		if json.Unmarshal(data, &e) != nil {
			continue
		}
		for _, u := range []*counts{e.Message.Usage, e.Response.Usage, e.Usage} {
			if u != nil {
				cached := u.Details.Cached + u.ChatDetails.Cached
				n = api.Tokens{
					Input: max(n.Input, u.Input+u.Prompt-cached), Output: max(n.Output, u.Output+u.Completion),
					CacheRead: max(n.CacheRead, u.CacheRead+cached), CacheWrite: max(n.CacheWrite, u.CacheWrite),
				}
			}
		}
		if m := e.Metadata; m != nil {
			n = api.Tokens{Input: m.PromptTokenCount - m.CachedContentTokenCount, Output: m.CandidatesTokenCount + m.ThoughtsTokenCount, CacheRead: m.CachedContentTokenCount}
		}
	}
	return n
}

func serve(t *testing.T, script Script) (*Server, string) {
	t.Helper()
	s := &Server{Key: "the-key", Script: script}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// each calls f for each format, streamed and not.
func each(t *testing.T, f func(t *testing.T, c client, streamed bool)) {
	for _, c := range clients() {
		t.Run(string(c.api), func(t *testing.T) { f(t, c, false) })
		t.Run(string(c.api)+" streamed", func(t *testing.T) { f(t, c, true) })
	}
}

// What the server says that it sent is what a client finds in the answer.
func TestSentIsWhatTheClientReceives(t *testing.T) {
	each(t, func(t *testing.T, c client, streamed bool) {
		for _, want := range []*api.Tokens{nil, {Input: 12345, Output: 678, CacheRead: 90}} {
			s, url := serve(t, func(*Turn) Reply { return Reply{Say: strings.Repeat("a text in pieces, ", 20), Tokens: want} })
			status, body := c.send(t, url, streamed, "")
			n, requests, turns := s.Sent()
			if got := usage(t, body); status != http.StatusOK || got != n || n.Output == 0 || n.Input == 0 || n.CacheRead == 0 || want != nil && n != *want || requests != 1 || turns != 1 {
				t.Errorf("status %d, the client counts %+v, the server %+v of %d requests: %s", status, got, n, requests, body)
			}
		}
	})
}

// It is so for a stream that breaks off after any byte.
func TestSentIsExactWhereAStreamBreaksOff(t *testing.T) {
	for _, c := range clients() {
		t.Run(string(c.api), func(t *testing.T) {
			_, url := serve(t, Say("twenty bytes of text, and more"))
			_, whole := c.send(t, url, true, "")
			for n := 1; n <= len(whole); n += 3 {
				s, url := serve(t, Cut(1, n, Say("twenty bytes of text, and more")))
				_, body := c.send(t, url, true, "")
				sent, _, _ := s.Sent()
				if got := usage(t, body); got != sent || len(body) < n || len(body) > n+2 || !s.Requests()[0].Broken {
					t.Fatalf("cut after %d: %d bytes, the client counts %+v, the server %+v", n, len(body), got, sent)
				}
				if _, again := c.send(t, url, true, ""); !bytes.Equal(again, whole) {
					t.Fatalf("the second try: %s", again)
				}
			}
		})
	}
}

func TestScriptUsesTheClientsShell(t *testing.T) {
	each(t, func(t *testing.T, c client, streamed bool) {
		_, url := serve(t, Steps(Write("a/b", "it's\n"), Echo()))
		if _, body := c.send(t, url, streamed, ""); !strings.Contains(string(body), "functionCall") && !strings.Contains(string(body), "Bash") && !strings.Contains(string(body), "exec_command") && !strings.Contains(string(body), `"bash"`) {
			t.Errorf("it calls no shell: %s", body)
		}
		if _, body := c.send(t, url, streamed, c.answer); !strings.Contains(string(body), "done") {
			t.Errorf("after the call: %s", body)
		}
	})
}

func TestFailuresEndAfterSomeTries(t *testing.T) {
	each(t, func(t *testing.T, c client, streamed bool) {
		s, url := serve(t, Fail(2, 529, "1", Say("now")))
		for _, want := range []int{529, 529, 200, 200} {
			if status, body := c.send(t, url, streamed, ""); status != want {
				t.Errorf("want %d, got %d: %s", want, status, body)
			}
		}
		if _, requests, turns := s.Sent(); requests != 4 || turns != 2 {
			t.Errorf("%d requests, %d turns", requests, turns)
		}
		other, elsewhere := serve(t, Say("never"))
		other.Key = "another"
		if status, _ := c.send(t, elsewhere, streamed, ""); status != http.StatusUnauthorized {
			t.Errorf("with a wrong key: %d", status)
		}
		if key := s.Requests()[0].Key(); key != "the-key" {
			t.Errorf("the key that arrived: %q", key)
		}
	})
}

func TestEndlessStreamsEndWithTheirClient(t *testing.T) {
	for _, c := range clients() {
		s, url := serve(t, Endless(time.Millisecond))
		ctx := t.Context()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+c.stream, strings.NewReader(strings.NewReplacer("STREAM", "true", "TURNS", "").Replace(c.body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", "the-key")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 10_000); err != nil {
			t.Errorf("%s: %v", c.api, err)
		}
		_ = resp.Body.Close()
		s.Wait()
		if !s.Requests()[0].Broken {
			t.Errorf("%s: the server ended the stream itself", c.api)
		}
	}
}

// The script after a question sees what follows the answer, in a resumed session and in a
// new one.
func TestAfterSeesOnlyWhatFollows(t *testing.T) {
	script := After("blue", Steps(Say("one"), Say("two")), Steps(Say("three"), Say("four")))
	tool := []Tool{{Name: "bash"}}
	for want, items := range map[string][]Item{
		"two": {{Text: "go"}, {"bash", "blue"}}, "three": {{Text: "go"}, {"bash", ""}, {Text: "the answer is blue"}},
		"four": {{Text: "blue"}, {"bash", ""}},
	} {
		if r := script(&Turn{Tools: tool, Items: items}); r.Say != want {
			t.Errorf("want %s, got %s", want, r.Say)
		}
	}
}
