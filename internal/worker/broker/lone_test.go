package broker

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A request has a bound only if its body says one that every server reads in the same way, and if it
// has nothing but text. The controls are the bounded ones.
//
// proves R-D8
func TestWhatHasABound(t *testing.T) {
	chat := func(rest string) string { return `{"model":"large-1","messages":[],` + rest + `}` }
	parts := func(part string) string {
		return `{"model":"large-1","max_tokens":9,"messages":[{"role":"user","content":[` + part + `]}]}`
	}
	gemini := func(part, config string) string {
		return `{"contents":[{"parts":[` + part + `]}],"generationConfig":{` + config + `}}`
	}
	item := func(item string) string { return `{"model":"large-1","max_output_tokens":9,"input":[` + item + `]}` }
	for _, c := range []struct {
		api   api.ModelAPI
		body  string
		bound int64 // 0: none
	}{
		{api.OpenAIChat, chat(`"max_tokens":9`), 9},
		{api.OpenAIChat, chat(`"max_tokens":9,"max_completion_tokens":12`), 12},
		{api.OpenAIChat, chat(`"max_tokens":9,"max_completion_tokens":null`), 9},
		{api.OpenAIChat, chat(`"max_tokens":9,"max_completion_tokens":1e5`), 0},
		{api.OpenAIChat, chat(`"max_tokens":9.0`), 0},
		{api.OpenAIChat, chat(`"max_tokens":"9"`), 0},
		{api.OpenAIChat, chat(`"max_tokens":-1`), 0},
		{api.OpenAIChat, chat(`"max_tokens":9,"max_completion_tokens":0`), 0},
		{api.OpenAIChat, chat(`"max_tokens":9,"max_completion_tokens":9223372036854775808`), 0},
		{api.OpenAIChat, chat(`"max_tokens":9,"max_completion_tokens":[9]`), 0},
		{api.OpenAIChat, chat(`"max_tokens":9,"prediction":{"type":"content","content":"x"}`), 0},
		{api.OpenAIChat, parts(`{"type":"text","text":"x"}`), 9},
		{api.OpenAIChat, parts(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}`), 0},
		{api.OpenAIChat, parts(`{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}`), 0},
		{api.OpenAIChat, parts(`{"type":"file","file":{"file_data":"data:application/pdf;base64,AA"}}`), 0},
		{api.OpenAIResponses, item(`{"role":"user","content":[{"type":"input_text","text":"x"}]}`), 9},
		{api.OpenAIResponses, item(`{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA"}]}`), 0},
		{api.OpenAIResponses, item(`{"role":"user","content":[{"type":"input_file","file_data":"data:application/pdf;base64,AA"}]}`), 0},
		{api.OpenAIResponses, item(`{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA"}}`), 0},
		{api.OpenAIResponses, item(`{"type":"image_generation_call","result":"AA"}`), 0},
		{api.OpenAIResponses, `{"model":"large-1","max_output_tokens":9,"input":"x","context_management":[{"type":"compaction"}]}`, 0},
		{api.AnthropicMessages, parts(`{"type":"text","text":"x"}`), 9},
		{api.AnthropicMessages, parts(`{"type":"image","source":{"type":"base64","data":"AA"}}`), 0},
		{api.AnthropicMessages, parts(`{"type":"tool_result","content":[{"type":"document","source":{"type":"base64","data":"AA"}}]}`), 0},
		{api.AnthropicMessages, chat(`"max_tokens":9,"tools":[{"name":"x","input_schema":{}}]`), 9},
		{api.AnthropicMessages, chat(`"max_tokens":9,"tools":[{"name":"computer","type":"computer_20250124"}]`), 0},
		{api.AnthropicMessages, chat(`"max_tokens":9,"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}`), 9},
		{api.AnthropicMessages, chat(`"max_tokens":9,"context_management":{"edits":[{"type":"compact_20260112"}]}`), 0},
		{api.AnthropicMessages, chat(`"max_tokens":9,"context_management":{"edits":[{"type":"comp\u0061ct_20260112"}]}`), 0},
		{api.Gemini, gemini(`{"text":"x"}`, `"maxOutputTokens":9`), 9},
		{api.Gemini, gemini(`{"text":"x"}`, `"maxOutputTokens":"9"`), 0},
		{api.Gemini, gemini(`{"inlineData":{"mimeType":"image/png","data":"AA"}}`, `"maxOutputTokens":9`), 0},
		{api.Gemini, gemini(`{"functionResponse":{"parts":[{"inline_data":{"data":"AA"}}]}}`, `"maxOutputTokens":9`), 0},
	} {
		f, err := inspect([]byte(c.body), rulesOf(c.api), testModel(c.api))
		if err != nil || f.output() != c.bound {
			t.Errorf("%s %s: bound %d, %v; want %d", c.api, c.body, f.output(), err, c.bound)
		}
	}
}

// A request for several answers is refused where a limit counts them, in each spelling of
// the number. The controls ask for one, or have no such limit.
//
// proves R-D8
func TestALimitAllowsOneAnswerForARequest(t *testing.T) {
	const chat, gemini = "/v1/chat/completions", "/v1beta/models/large-1:generateContent"
	for _, c := range []struct {
		api   api.ModelAPI
		path  string
		value string
		want  int
	}{
		{api.OpenAIChat, chat, `1`, 200},
		{api.OpenAIChat, chat, `null`, 200},
		{api.OpenAIChat, chat, `128`, 403},
		{api.OpenAIChat, chat, `8.0`, 403},
		{api.OpenAIChat, chat, `"8"`, 403},
		{api.OpenAIChat, chat, `8e0`, 403},
		{api.Gemini, gemini, `1`, 200},
		{api.Gemini, gemini, `8`, 403},
		{api.Gemini, gemini, `"8"`, 403},
	} {
		body := `{"model":"large-1","max_tokens":9,"messages":[],"n":` + c.value + `}`
		if c.api == api.Gemini {
			body = `{"contents":[],"generationConfig":{"maxOutputTokens":9,"candidateCount":` + c.value + `}}`
		}
		for _, limits := range []api.Limits{{Tokens: 50_000}, {Cost: 1_000_000}, {Turns: 9}} {
			w := newModelWorld(t, c.api, honest, func(cfg *Config) { cfg.Limits = limits })
			want := c.want
			if limits.Turns > 0 {
				want = 200
			}
			status, text := w.do("POST", c.path, body)
			if status != want || want == 403 && !strings.Contains(text, "one only: leave the member out") {
				t.Errorf("%s %s with %+v: %d %s", c.api, c.value, limits, status, text)
			}
		}
	}
}

// A budget settles at least what the model may have billed for answers that were lost,
// however little the attempt had reserved. An answer without a bound is counted as such.
//
// proves R-D8, R-P10
func TestABudgetSettlesTheBoundOfLostAnswers(t *testing.T) {
	reserved := api.Spend{Cost: 100_000, Currency: "usd", Dispatches: 1, Millis: 60_000, Tokens: 1000}
	for name, c := range map[string]struct {
		bound     string
		cost      api.Cost // least that is settled
		unbounded int64
	}{
		"above the reservation": {`"max_tokens":16384,`, 16384 * 15, 0},
		"below it":              {`"max_tokens":5,`, 100_000, 0},
		"no bound":              {``, 100_000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{})
			w := newModelWorld(t, api.OpenAIChat, func(_ http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-r.Context().Done()
			}, func(cfg *Config) {
				cfg.Limits = api.Limits{Cost: 100_000}
				cfg.bounds = defaultBounds()
				cfg.bounds.drain = 20 * time.Millisecond
			})
			defer w.send(fmt.Sprintf(`{"model":"large-1",%s"messages":[]}`, c.bound)).Close()
			<-arrived
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			u := w.Usage()
			s := record.SettledSpend(reserved, true, &api.ResultSummary{Usage: api.Usage{Model: &u}}, 100)
			if s.Cost < c.cost || s.Cost > c.cost+10_000 || s.Tokens < reserved.Tokens || s.Currency != "usd" || u.Uncounted != 1 || u.UncountedUnbound != c.unbounded {
				t.Errorf("settled %+v of %+v", s, u)
			}
		})
	}
}

// A limit that is unknown because of lost answers says what bounds them.
func TestALostAnswerNamesItsBound(t *testing.T) {
	first := true
	w := newModelWorld(t, api.OpenAIResponses, func(w http.ResponseWriter, _ *http.Request) {
		if first {
			first = false
			panic(http.ErrAbortHandler)
		}
		sse(w, `{"type":"response.completed","response":{"usage":{"input_tokens":5,"output_tokens":5}}}`)
	}, func(cfg *Config) { cfg.Limits = api.Limits{Tokens: 5_000_000} })
	body := `{"model":"large-1","stream":true,"input":"x"}`
	w.do("POST", "/v1/responses", body)
	status, text := w.do("POST", "/v1/responses", body)
	if status != 403 || !strings.Contains(text, "1 answer was not counted") || !strings.Contains(text, "max_output_tokens") {
		t.Errorf("%d %s", status, text)
	}
}
