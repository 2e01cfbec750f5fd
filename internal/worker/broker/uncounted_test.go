package broker

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// send sends a request as an agent that ends without its answer. It returns the
// connection once the request is written.
func (w *modelWorld) send(body string) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(w.base, "http://"), "/model/big"))
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = fmt.Fprintf(c, "POST /model/big/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// An agent that ends before its answers arrive has used them: they are read to their
// end for a bounded time, and what is outstanding then is uncounted.
//
// proves R-D8, R-P10
func TestAnAgentThatEndsBeforeItsAnswersHasUsedThem(t *testing.T) {
	const requests = 20
	for _, c := range []struct {
		name   string
		answer bool // the model answers after the agent has ended
		want   api.ModelUsage
	}{
		{"answers arrive", true, api.ModelUsage{Tokens: api.Tokens{Input: 500 * requests}, Requests: requests, Turns: requests, Cost: 1500 * requests, Currency: "usd"}},
		{"answers do not arrive", false, api.ModelUsage{Requests: requests, Uncounted: requests, UncountedUnbound: requests, Currency: "usd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var arrived sync.WaitGroup
			arrived.Add(requests)
			gate := make(chan struct{})
			w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, r *http.Request) {
				arrived.Done()
				select {
				case <-gate:
					sse(w, ends(500), "[DONE]")
				case <-r.Context().Done():
				}
			}, func(cfg *Config) {
				if cfg.bounds = defaultBounds(); !c.answer {
					cfg.bounds.drain = 10 * time.Millisecond
				}
			})
			for range requests {
				defer w.send(chatBody).Close()
			}
			arrived.Wait()
			closed := make(chan error, 1)
			go func() { closed <- w.Close() }()
			<-w.ctx.Done() // nothing of the agent passes any more
			if c.answer {
				close(gate)
			}
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			if u := w.Usage(); u != c.want {
				t.Errorf("got  %+v\nwant %+v", u, c.want)
			}
			uncounted := int64(0)
			for _, l := range w.lines() {
				if l.Uncounted {
					uncounted++
				}
			}
			if uncounted != c.want.Uncounted {
				t.Errorf("%d lines of the record are uncounted", uncounted)
			}
		})
	}
}

// An answer that does not say to its end what it used is uncounted. One that was counted,
// or that the model did not bill, is not.
//
// proves R-D8, R-P10
func TestWhatIsUncounted(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    int64
	}{
		{"a whole answer", func(w http.ResponseWriter, _ *http.Request) { sse(w, ends(5), "[DONE]") }, 0},
		{"an answer in one document", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"object":"chat.completion","usage":{"prompt_tokens":7}}`)
		}, 0},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 0},
		{"too many requests", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 0},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusTemporaryRedirect) }, 0},
		{"no usage", func(w http.ResponseWriter, _ *http.Request) { sse(w, `{"choices":[]}`, "[DONE]") }, 1},
		{"a break before the usage", func(w http.ResponseWriter, _ *http.Request) {
			sse(w, `{"choices":[]}`)
			panic(http.ErrAbortHandler)
		}, 1},
		{"a break before the status", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 1},
		{"a stream that ends early", func(w http.ResponseWriter, _ *http.Request) { sse(w, ends(5)) }, 1},
		{"silence", func(w http.ResponseWriter, r *http.Request) { sse(w, `{"choices":[]}`); <-r.Context().Done() }, 1},
		{"an error in the answer", func(w http.ResponseWriter, _ *http.Request) { sse(w, `{"error":{"message":"x"}}`) }, 1},
		{"a usage that is no number", func(w http.ResponseWriter, _ *http.Request) { sse(w, `{"usage":{"prompt_tokens":-1}}`, "[DONE]") }, 1},
	} {
		w := newModelWorld(t, api.OpenAIChat, c.handler, nil)
		if c.name == "silence" {
			w.proxy.idle = 50 * time.Millisecond
		}
		w.do("POST", "/v1/chat/completions", chatBody)
		l := w.lines()
		if u := w.Usage(); u.Uncounted != c.want || len(l) != 1 || l[0].Uncounted != (c.want > 0) {
			t.Errorf("%s: %+v, line %+v", c.name, u, l)
		}
	}
	// A model that was never asked.
	w := newModelWorld(t, api.OpenAIChat, honest, nil)
	w.upstream.Close()
	w.do("POST", "/v1/chat/completions", chatBody)
	if u := w.Usage(); u.Uncounted != 0 || u.Requests != 1 {
		t.Errorf("%+v", u)
	}
}

// An uncounted answer counts for a limit as what it may have used at most. The control:
// its request said less.
//
// proves R-D8, R-P10
func TestLimitsCountWhatIsUncounted(t *testing.T) {
	for output, want := range map[int]int{100: 200, 90_000: 403} {
		first := true
		w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
			if first {
				first = false
				panic(http.ErrAbortHandler)
			}
			sse(w, ends(5), "[DONE]")
		}, func(cfg *Config) { cfg.Limits = api.Limits{Tokens: 50_000} })
		body := fmt.Sprintf(`{"model":"large-1","stream":true,"max_tokens":%d,"messages":[]}`, output)
		w.do("POST", "/v1/chat/completions", body)
		if status, text := w.do("POST", "/v1/chat/completions", body); status != want || (len(w.spent) == 1) != (want == 403) {
			t.Errorf("with at most %d tokens of output: %d %s, spent %q", output, status, text, w.spent)
		}
	}
}

// Parallel requests count for a limit as what they may use at most, so together they pass
// it by no more than the last answer. The control: without the bound of a limit, all pass.
//
// proves R-D8, R-P10
func TestALimitCountsRequestsUnderWay(t *testing.T) {
	const each = 790 // tokens of output, 0.01185 usd
	for name, c := range map[string]struct {
		limits api.Limits
		body   string
		most   int // answers
	}{
		"cost":                {api.Limits{Cost: 100_000}, `"max_tokens":800,`, 9},
		"tokens":              {api.Limits{Tokens: 10 * each}, `"max_completion_tokens":800,`, 10},
		"no bound":            {api.Limits{Cost: 100_000}, ``, 9},
		"control: no limit":   {api.Limits{}, ``, 24},
		"control: turns only": {api.Limits{Turns: 24}, ``, 24},
	} {
		t.Run(name, func(t *testing.T) {
			w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
				sse(w, fmt.Sprintf(`{"usage":{"prompt_tokens":0,"completion_tokens":%d}}`, each), "[DONE]")
			}, func(cfg *Config) { cfg.Limits = c.limits })
			var wg sync.WaitGroup
			for range 24 {
				wg.Go(func() {
					w.do("POST", "/v1/chat/completions", `{"model":"large-1","stream":true,`+c.body+`"messages":[]}`)
				})
			}
			wg.Wait()
			if n := w.reached(); n != c.most {
				t.Errorf("%d requests reached the model, want %d; %+v", n, c.most, w.Usage())
			}
		})
	}
}

// A program that sends a few small requests at the same time is served at the same time
// if its limit has room for them, in each format.
func TestSmallRequestsRunInParallel(t *testing.T) {
	for a, request := range map[api.ModelAPI][2]string{
		api.OpenAIChat:        {"/v1/chat/completions", `{"model":"large-1","stream":true,"max_tokens":1000,"messages":[]}`},
		api.OpenAIResponses:   {"/v1/responses", `{"model":"large-1","stream":true,"max_output_tokens":1000,"input":"x"}`},
		api.AnthropicMessages: {"/v1/messages", `{"model":"large-1","stream":true,"max_tokens":1000,"messages":[]}`},
		api.Gemini:            {"/v1beta/models/large-1:generateContent", `{"contents":[],"generationConfig":{"maxOutputTokens":1000}}`},
	} {
		var together atomic.Int64
		gate := make(chan struct{})
		w := newModelWorld(t, a, func(http.ResponseWriter, *http.Request) {
			if together.Add(1) == 4 {
				close(gate)
			}
			<-gate
		}, func(cfg *Config) { cfg.Limits = api.Limits{Tokens: 50_000, Cost: 1_000_000} })
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { w.do("POST", request[0], request[1]) })
		}
		wg.Wait()
		if together.Load() != 4 {
			t.Errorf("%s: %d requests", a, together.Load())
		}
	}
}
