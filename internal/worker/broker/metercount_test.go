package broker

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

var honestStreams = flag.Int("streams", 500, "streamed answers of each API for TestHonestStreamsAreCountedExactly")

// countedIn returns what an answer has said, written in pieces of at most n bytes.
func countedIn(t testing.TB, a api.ModelAPI, answer string, n int) said {
	t.Helper()
	c, err := newCounter(a, "", maxInflated)
	if err != nil {
		t.Fatal(err)
	}
	for rest := []byte(answer); len(rest) > 0; {
		p := rest[:min(n, len(rest))]
		if err := c.write(p); err != nil {
			t.Fatal(err)
		}
		rest = rest[len(p):]
	}
	c.close()
	return c.state()
}

func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

// Shapes as the providers document them and the programs understand them.
func TestAnswersOfEachAPIAreCounted(t *testing.T) {
	type want struct {
		tokens      api.Tokens
		usage, last bool
		fault       string
	}
	const (
		responsesUsage = `"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":5},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":107}`
		chatUsage      = `"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":3}}`
		geminiUsage    = `"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":7,"thoughtsTokenCount":3,"toolUsePromptTokenCount":2,"totalTokenCount":112}`
	)
	open := api.Tokens{Input: 40, Output: 7, CacheRead: 60}
	for name, c := range map[string]struct {
		api    api.ModelAPI
		answer string
		want   want
	}{
		"anthropic": {api.AnthropicMessages, stream(anthropicStart, `{"type":"ping"}`, anthropicDelta, anthropicEnd, anthropicStop), want{api.Tokens{Input: 10, Output: 20, CacheRead: 100, CacheWrite: 4}, true, true, ""}},
		"anthropic with names of events": {api.AnthropicMessages, "event: message_start\r\ndata: " + anthropicStart + "\r\n\r\n: a comment\r\nevent: message_delta\r\ndata:" + anthropicEnd + "\r\n\r\n" +
			"event: message_stop\rdata: {\"type\":\rdata: \"message_stop\"}\r\r", want{api.Tokens{Input: 10, Output: 20, CacheRead: 100, CacheWrite: 4}, true, true, ""}},
		"anthropic, broken off":             {api.AnthropicMessages, stream(anthropicStart, anthropicDelta) + "data: " + anthropicEnd[:len(anthropicEnd)-1], want{api.Tokens{Input: 10, Output: 1, CacheRead: 100, CacheWrite: 4}, true, false, ""}},
		"anthropic, without the empty line": {api.AnthropicMessages, stream(anthropicStart) + "data: " + anthropicEnd, want{api.Tokens{Input: 10, Output: 20, CacheRead: 100, CacheWrite: 4}, true, false, ""}},
		"anthropic, all in the delta": {
			api.AnthropicMessages, stream(anthropicStart, `{"type":"message_delta","usage":{"input_tokens":11,"cache_read_input_tokens":0,"cache_creation_input_tokens":null,"output_tokens":3,"server_tool_use":{"web_search_requests":1}}}`, anthropicStop),
			want{api.Tokens{Input: 11, Output: 3, CacheWrite: 4}, true, true, ""},
		},
		"anthropic, compacted": {
			api.AnthropicMessages, stream(anthropicStart, `{"type":"message_delta","usage":{"output_tokens":3,"iterations":[{"type":"compaction","input_tokens":500,"output_tokens":30},{"type":"message","input_tokens":10,"output_tokens":3}]}}`, anthropicStop),
			want{api.Tokens{Input: 510, Output: 33, CacheRead: 100, CacheWrite: 4}, true, true, ""},
		},
		"anthropic, whole":         {api.AnthropicMessages, `{"type":"message","content":[{"type":"tool_use","input":{"usage":{"input_tokens":999},"type":"x"}}],"usage":{"input_tokens":5,"output_tokens":6}}`, want{api.Tokens{Input: 5, Output: 6}, true, true, ""}},
		"anthropic, overloaded":    {api.AnthropicMessages, stream(anthropicStart, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), want{api.Tokens{Input: 10, Output: 1, CacheRead: 100, CacheWrite: 4}, true, false, "overloaded_error: Overloaded"}},
		"anthropic, negative":      {api.AnthropicMessages, stream(`{"type":"message_start","message":{"usage":{"input_tokens":-5,"output_tokens":1}}}`), want{}},
		"anthropic, a fraction":    {api.AnthropicMessages, stream(`{"type":"message_start","message":{"usage":{"input_tokens":1.5,"output_tokens":1}}}`), want{}},
		"responses":                {api.OpenAIResponses, stream(`{"type":"response.created","response":{"usage":null,"error":null}}`, `{"type":"response.output_text.delta","delta":"\"usage\":{\"input_tokens\":9}"}`, `{"type":"response.completed","response":{"status":"completed","error":null,`+responsesUsage+`}}`), want{api.Tokens{Input: 35, Output: 7, CacheRead: 60, CacheWrite: 5}, true, true, ""}},
		"responses, incomplete":    {api.OpenAIResponses, stream(`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},` + responsesUsage + `}}`), want{api.Tokens{Input: 35, Output: 7, CacheRead: 60, CacheWrite: 5}, true, true, ""}},
		"responses, failed":        {api.OpenAIResponses, stream(`{"type":"response.failed","response":{"error":{"code":"server_error","message":"no"},"usage":null}}`), want{api.Tokens{}, false, true, "server_error: no"}},
		"responses, an error":      {api.OpenAIResponses, stream(`{"type":"error","code":"rate_limit","message":"slow down","param":null}`), want{api.Tokens{}, false, false, "rate_limit: slow down"}},
		"responses, whole":         {api.OpenAIResponses, ` {"object":"response","status":"completed","error":null,"output":[],` + responsesUsage + `}`, want{api.Tokens{Input: 35, Output: 7, CacheRead: 60, CacheWrite: 5}, true, true, ""}},
		"responses, broken off":    {api.OpenAIResponses, stream(`{"type":"response.created","response":{}}`), want{}},
		"chat":                     {api.OpenAIChat, "\ufeff" + stream(`{"object":"chat.completion.chunk","choices":[{"delta":{"content":"x"}}],"usage":null}`, `{"choices":[],`+chatUsage+`}`, `[DONE]`), want{open, true, true, ""}},
		"chat, usage in each":      {api.OpenAIChat, stream(`{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":1}}`, `{"choices":[],`+chatUsage+`}`), want{open, true, false, ""}},
		"chat, whole":              {api.OpenAIChat, `{"object":"chat.completion","choices":[],` + chatUsage + `}`, want{open, true, true, ""}},
		"chat, no usage":           {api.OpenAIChat, stream(`{"choices":[]}`, `[DONE]`), want{api.Tokens{}, false, true, ""}},
		"chat, an error":           {api.OpenAIChat, stream(`{"error":"out of memory"}`), want{api.Tokens{}, false, false, "out of memory"}},
		"gemini":                   {api.Gemini, stream(`{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":100,"totalTokenCount":100}}`, `{"candidates":[{"finishReason":"STOP"}],`+geminiUsage+`}`), want{api.Tokens{Input: 42, Output: 10, CacheRead: 60}, true, true, ""}},
		"gemini, whole":            {api.Gemini, `{"candidates":[{"finishReason":"STOP"}],` + geminiUsage + `}`, want{api.Tokens{Input: 42, Output: 10, CacheRead: 60}, true, true, ""}},
		"gemini, a list":           {api.Gemini, "[{\"candidates\":[]}\n,\r\n{\"candidates\":[{\"finishReason\":\"STOP\"}]," + geminiUsage + "}]", want{api.Tokens{Input: 42, Output: 10, CacheRead: 60}, true, true, ""}},
		"gemini, a list that ends": {api.Gemini, `[{"candidates":[],` + geminiUsage + `},{"candidates"`, want{api.Tokens{Input: 42, Output: 10, CacheRead: 60}, true, false, ""}},
		"gemini, blocked":          {api.Gemini, stream(`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}`), want{api.Tokens{Input: 4}, true, true, ""}},
		"gemini, an error":         {api.Gemini, stream(`{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}`), want{api.Tokens{}, false, false, "UNAVAILABLE: busy"}},
		"nothing":                  {api.OpenAIChat, " \n", want{}},
	} {
		for _, n := range []int{1, 2, 3, 7, 1 << 20} {
			s := countedIn(t, c.api, c.answer, n)
			if got := (want{s.tokens, s.usage, s.last, s.fault}); got != c.want {
				t.Errorf("%s in pieces of %d: got %+v, want %+v", name, n, got, c.want)
			}
		}
	}
	for _, bad := range []string{`{"usage":{"prompt_tokens":-1}}`, `{"usage":{"prompt_tokens":1e30}}`, `{"usage":{"prompt_tokens":99999999999999}}`, `{"usage":"x"}`} {
		if s := countedIn(t, api.OpenAIChat, stream(bad), 9); !errors.Is(s.bad, errUsage) || s.usage {
			t.Errorf("%s: %+v", bad, s)
		}
	}
}

// honestStream returns a random stream, and what it says it used after each of its
// bytes: the index in ends of the first end that is not before the break.
func honestStream(r *rand.Rand, a api.ModelAPI) (text string, ends []int, said []api.Tokens) {
	var b strings.Builder
	newline := []string{"\n", "\r\n", "\r"}[r.IntN(3)]
	var now api.Tokens
	emit := func(data string, t api.Tokens) {
		if r.IntN(4) == 0 {
			b.WriteString(": keep-alive" + newline + newline)
		}
		if r.IntN(3) == 0 {
			b.WriteString("event: x" + newline + "id: 7" + newline)
		}
		// A break between tokens of JSON may be a new line of data.
		if at := strings.IndexByte(data, ','); at > 0 && r.IntN(5) == 0 {
			data = data[:at+1] + newline + "data: " + data[at+1:]
		}
		b.WriteString([]string{"data: ", "data:"}[r.IntN(2)] + data)
		now = t
		ends, said = append(ends, b.Len()), append(said, now)
		b.WriteString(newline + newline)
	}
	words := []string{`"usage":{"input_tokens":5}`, "data: [DONE]\n\n", "\r\n\r\n", "hello", "日本語", `{"usageMetadata":{"promptTokenCount":9}}`, "\\", `"}`}
	say := func() string {
		s := ""
		for range r.IntN(5) {
			s += words[r.IntN(len(words))]
		}
		quoted, _ := json.Marshal(s)
		return string(quoted)
	}
	in, out, read, write := r.Int64N(1<<20), r.Int64N(1<<16), r.Int64N(1<<20), r.Int64N(1<<12)
	full := api.Tokens{Input: in, Output: out, CacheRead: read}
	n := r.IntN(12)
	switch a {
	case api.AnthropicMessages:
		full.CacheWrite = write
		first := full
		first.Output = 1
		emit(fmt.Sprintf(`{"type":"message_start","message":{"usage":{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":1}}}`, in, write, read), first)
		for range n {
			emit(`{"type":"content_block_delta","delta":{"type":"text_delta","text":`+say()+`}}`, now)
		}
		emit(fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}`, out), full)
		emit(`{"type":"message_stop"}`, full)
	case api.OpenAIResponses:
		for range n {
			emit(`{"type":"response.output_text.delta","delta":`+say()+`}`, now)
		}
		emit(fmt.Sprintf(`{"type":"response.completed","response":{"output":[%s],"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d}}}`, say(), in+read, read, out), full)
	case api.OpenAIChat:
		for range n {
			emit(`{"choices":[{"delta":{"content":`+say()+`}}],"usage":null}`, now)
		}
		emit(fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, in+read, out, read), full)
		emit(`[DONE]`, full)
	case api.Gemini:
		for i := range n {
			part := api.Tokens{Input: in, Output: int64(i)}
			emit(fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%s}]}}],"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d}}`, say(), in, i), part)
		}
		thoughts := r.Int64N(out + 1)
		emit(fmt.Sprintf(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":%d,"cachedContentTokenCount":%d,"candidatesTokenCount":%d,"thoughtsTokenCount":%d}}`, in+read, read, out-thoughts, thoughts), full)
	}
	return b.String(), ends, said
}

// An answer counts exactly what the model's server had said when it ended, wherever it
// broke off, however it was cut into pieces, and whatever its texts say.
//
// proves R-D8
func TestHonestStreamsAreCountedExactly(t *testing.T) {
	for i, a := range api.ModelAPIs() {
		r := rand.New(rand.NewPCG(14, uint64(i)))
		breaks := 0
		for n := range *honestStreams {
			text, ends, said := honestStream(r, a)
			if r.IntN(2) == 0 {
				text = text[:r.IntN(len(text)+1)]
				breaks++
			}
			var want api.Tokens
			for i, end := range ends {
				if end <= len(text) {
					want = said[i]
				}
			}
			if got := countedIn(t, a, text, 1+r.IntN(1<<r.IntN(12))).tokens; got != want {
				t.Fatalf("%s, stream %d: got %+v, want %+v of\n%s", a, n, got, want, text)
			}
		}
		if *honestStreams > 0 && breaks == 0 {
			t.Error("no stream broke off")
		}
	}
}

func TestCompressedAnswersAreCountedWithABound(t *testing.T) {
	const most = 1 << 20
	pack := func(s string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(s))
		_ = z.Close()
		return b.Bytes()
	}
	count := func(b []byte) (said, error) {
		c, err := newCounter(api.AnthropicMessages, "gzip", most)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(b); i += 100 {
			if err = c.write(b[i:min(i+100, len(b))]); err != nil {
				break
			}
		}
		c.close()
		return c.state(), errors.Join(err, c.err)
	}
	honest := pack(stream(anthropicStart, anthropicDelta, anthropicEnd, anthropicStop))
	if s, err := count(honest); err != nil || !s.last || s.tokens.Output != 20 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := count(honest[:len(honest)-20]); err != nil || s.tokens.Input != 10 {
		t.Errorf("broken off: %+v, %v", s, err)
	}
	if _, err := count(pack(strings.Repeat(": \n\n", most/4+1))); !errors.Is(err, errTooLarge) {
		t.Errorf("a bomb: %v", err)
	}
	if _, err := count(pack(strings.Repeat(": \n\n", most/4))); err != nil {
		t.Errorf("as much as is allowed: %v", err)
	}
	if _, err := count([]byte("data: x\n\n")); err == nil {
		t.Error("it is not compressed, and was counted")
	}
	if _, err := newCounter(api.AnthropicMessages, "br", most); err == nil {
		t.Error("br was accepted")
	}
}

// proves R-S3
func TestHugeEventsAreNotKept(t *testing.T) {
	piece := bytes.Repeat([]byte("a"), 1<<20)
	for _, start := range []string{"data: ", ": ", "{", "data: x\ndata: "} {
		c, err := newCounter(api.OpenAIChat, "", maxInflated)
		if err != nil {
			t.Fatal(err)
		}
		err = c.write([]byte(start))
		written := 0
		for ; err == nil && written < 64; written++ {
			err = c.write(piece)
		}
		if !errors.Is(err, errTooLarge) || written > maxCounted>>20+1 {
			t.Errorf("%q: %d MiB, %v", start, written, err)
		}
		c.close()
	}
}

func FuzzCount(f *testing.F) {
	for i, a := range api.ModelAPIs() {
		text, _, _ := honestStream(rand.New(rand.NewPCG(1, uint64(i))), a)
		f.Add(text, 5)
	}
	f.Add(`[{"usageMetadata":{}},`, 1)
	f.Fuzz(func(t *testing.T, answer string, n int) {
		for _, a := range api.ModelAPIs() {
			whole, parts := countedIn(t, a, answer, len(answer)+1), countedIn(t, a, answer, 1+max(0, n%1000))
			whole.bad, parts.bad = nil, nil
			if whole != parts {
				t.Fatalf("%s: in one piece %+v, in pieces %+v", a, whole, parts)
			}
			if u := parts.tokens; min(u.Input, u.Output, u.CacheRead, u.CacheWrite) < 0 || max(u.Input, u.Output, u.CacheRead, u.CacheWrite) > maxTokens {
				t.Fatalf("%s: %+v", a, u)
			}
		}
	})
}
