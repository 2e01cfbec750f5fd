package broker

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestPricesAreExact(t *testing.T) {
	p := api.Price{Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000, CacheWrite: 3_750_000}
	for _, c := range []struct {
		price  api.Price
		tokens api.Tokens
		want   api.Cost
	}{
		{p, api.Tokens{}, 0},
		{p, api.Tokens{Input: 1_000_000}, 3_000_000},
		{p, api.Tokens{Input: 1, Output: 1, CacheRead: 10, CacheWrite: 4}, 36},
		{p, api.Tokens{CacheRead: 1}, 1}, // rounded up
		{api.Price{Input: 2_000_000}, api.Tokens{CacheRead: 5, CacheWrite: 5}, 20},
		{api.Price{Output: 999_999_999_999_999}, api.Tokens{Output: maxTokens}, math.MaxInt64},
	} {
		if got := costOf(price(c.price, c.tokens)); got != c.want {
			t.Errorf("%+v of %+v: %s, want %s", c.tokens, c.price, got, c.want)
		}
	}
	// What each answer costs adds up without rounding.
	m, err := newMeter(Config{Model: &Model{Model: api.Model{Prices: map[string]api.Price{"m": {Input: 1}}}, ID: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 1_000_000 {
		m.set(&bill{}, api.Tokens{Input: 1})
	}
	if got := m.usage().Cost; got != 1 {
		t.Errorf("a million tokens at a millionth for a million: %s", got)
	}
}

func TestALimitOfCostNeedsAPrice(t *testing.T) {
	cfg := Config{Limits: api.Limits{Cost: 1}, Model: &Model{Model: api.Model{Name: "big"}, ID: "m"}}
	if _, err := newMeter(cfg); err == nil || !strings.Contains(err.Error(), `no price for "m"`) {
		t.Error(err)
	}
}

// ends says that an answer used so many tokens.
func ends(tokens int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":0}}`, tokens)
}

const chatBody = `{"model":"large-1","stream":true,"messages":[]}`

// A spent limit refuses the next request, one that is passed breaks the stream, and
// either ends the agent once.
//
// proves R-D8
func TestLimitsEndTheAgent(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits api.Limits
		each   int
		passed int // requests that are answered as a whole
		broken bool
		spent  string
	}{
		{"tokens, used up", api.Limits{Tokens: 2000}, 1000, 2, false, "tokens: used 2,000 of 2,000"},
		{"tokens, passed", api.Limits{Tokens: 2500}, 1234, 2, true, "tokens: used 3,702 of 2,500"},
		{"tokens, one less", api.Limits{Tokens: 2467}, 1234, 1, true, "tokens: used 2,468 of 2,467"},
		{"turns", api.Limits{Turns: 3}, 1000, 3, false, "turns: used 3 of 3"},
		{"cost, used up", api.Limits{Cost: 6000}, 1000, 2, false, "cost: used 0.006 of 0.006 usd"},
		{"cost, passed", api.Limits{Cost: 5999}, 1000, 1, true, "cost: used 0.006 of 0.005999 usd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
				sse(w, `{"choices":[{"delta":{"content":"x"}}]}`, ends(c.each), "[DONE]")
			}, func(cfg *Config) { cfg.Limits = c.limits })
			for i := range c.passed {
				if status, body := w.do("POST", "/v1/chat/completions", chatBody); status != 200 || !strings.HasSuffix(body, "[DONE]\n\n") {
					t.Fatalf("request %d: %d %s", i, status, body)
				}
			}
			if len(w.spent) > 0 {
				t.Fatal("spent too soon:", w.spent)
			}
			if c.broken {
				if _, body := w.do("POST", "/v1/chat/completions", chatBody); !strings.Contains(body, "!unexpected EOF") || strings.Contains(body, "DONE") {
					t.Errorf("it did not break: %s", body)
				}
			}
			reached := w.reached()
			for range 2 {
				status, body := w.do("POST", "/v1/chat/completions", chatBody)
				if status != 403 || !strings.Contains(body, "permission_error") || !strings.Contains(body, c.spent) {
					t.Errorf("%d %s", status, body)
				}
			}
			if status, _ := w.do("GET", "/v1/models", ""); status != 200 {
				t.Errorf("a list of models: %d", status)
			}
			if w.reached() != reached+1 || len(w.spent) != 1 || w.spent[0] != c.spent {
				t.Errorf("%d requests reached the model, spent %q", w.reached()-reached, w.spent)
			}
		})
	}
}

// Requests at the same time get no more turns than the limit, and count exactly.
//
// proves R-D8
func TestParallelRequestsKeepTheLimits(t *testing.T) {
	w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, ends(7), "[DONE]")
	}, func(cfg *Config) { cfg.Limits = api.Limits{Turns: 20, Tokens: 1000} })
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { w.do("POST", "/v1/chat/completions", chatBody) })
	}
	wg.Wait()
	if u := w.Usage(); u.Turns != 20 || u.Requests != 50 || u.Input != 140 || w.reached() != 20 || len(w.spent) != 1 {
		t.Errorf("%+v, %d reached the model, spent %q", u, w.reached(), w.spent)
	}
	if lines := w.lines(); len(lines) != 50 {
		t.Errorf("%d lines", len(lines))
	}
}

// An agent cannot save tokens by hanging up before the answer says what it used.
//
// proves R-D8
func TestAnAgentThatHangsUpIsCounted(t *testing.T) {
	gone := make(chan struct{})
	w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, `{"choices":[{"delta":{"content":"x"}}]}`)
		<-gone
		for range 100 {
			sse(w, `{"choices":[{"delta":{"content":"x"}}]}`)
		}
		sse(w, ends(500), "[DONE]")
	}, nil)
	r, err := http.NewRequestWithContext(t.Context(), "POST", w.base+"/v1/chat/completions", strings.NewReader(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.upstream.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = resp.Body.Read(make([]byte, 10))
	_ = resp.Body.Close()
	close(gone)
	w.upstream.Close() // waits until the model has answered
	w.proxy.slots <- struct{}{}
	for len(w.proxy.slots) > 1 {
		<-w.proxy.slots // no sleep: the broker frees its slot when it has counted
		w.proxy.slots <- struct{}{}
	}
	if lines := w.lines(); len(lines) != 1 || lines[0].Usage == nil || lines[0].Usage.Input != 500 || lines[0].Error != "the agent hung up" {
		t.Errorf("%+v", lines)
	}
	if u := w.Usage(); u.Input != 500 || u.Turns != 1 {
		t.Errorf("%+v", u)
	}
}

// An answer that does not say what it used ends the agent if there is a limit to keep.
func TestAnswersWithoutUsageAreNotFree(t *testing.T) {
	for _, limits := range []api.Limits{{}, {Tokens: 1000}} {
		w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) { sse(w, `{"choices":[]}`, "[DONE]") },
			func(cfg *Config) { cfg.Limits = limits })
		status, _ := w.do("POST", "/v1/chat/completions", chatBody)
		lines := w.lines()
		if status != 200 || lines[0].Error != errNoUsage.Error() || lines[0].Usage != nil {
			t.Errorf("%d %+v", status, lines)
		}
		if want := "tokens: unknown, because the answer does not say how many tokens it used"; (limits.Tokens > 0) != (len(w.spent) == 1 && w.spent[0] == want) {
			t.Errorf("%+v: spent %q", limits, w.spent)
		}
	}
}
