package broker

import (
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// Errors of the model reach the agent as they are, and explain why it failed.
func TestFaultsOfTheModelPass(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		body   string
		want   string
	}{
		{429, "30", `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, "answered 429: rate_limit_error: slow down"},
		{529, "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "answered 529: overloaded_error: Overloaded"},
		{500, "", "plain\n\x1b[31mtext", "answered 500: plain [31mtext"},
		{503, "Wed, 21 Oct 2026 07:28:00 GMT", "", "answered 503"},
		{401, "", `{"error":{"message":"Incorrect API key provided: ` + testKey + `"}}`, "answered 401 to the secret \"s\": Incorrect API key provided: [redacted]"},
	} {
		w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) {
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			w.Header().Set("X-Echo", testKey)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}, nil)
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.base+"/v1/messages", strings.NewReader(anthropicBody))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.upstream.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		status, body := w.do("POST", "/v1/messages", anthropicBody)
		if status != c.status || body != strings.ReplaceAll(c.body, testKey, "[redacted]") || resp.Header.Get("Retry-After") != c.header || resp.Header.Get("X-Echo") != "[redacted]" {
			t.Errorf("%d %q %v", status, body, resp.Header)
		}
		if got, want := w.ModelFault(), `2 requests in a row failed; with the last, the model "big" `+c.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		lines := w.lines()
		if len(lines) != 2 || lines[0].Status != c.status || lines[0].Usage != nil || lines[0].Refused != "" || !strings.HasPrefix(lines[0].Error, "the model answered: ") || strings.Contains(lines[0].Error, testKey) {
			t.Errorf("%+v", lines)
		}
		if u := w.Usage(); u.Requests != 2 || u.Turns != 0 || len(w.spent)+len(w.refused) > 0 {
			t.Errorf("%+v", u)
		}
	}
}

// A fault is forgotten when the model answers.
func TestAnAnswerForgetsFaults(t *testing.T) {
	n := 0
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		honest(w, r)
	}, nil)
	w.do("POST", "/v1/messages", anthropicBody)
	if f := w.ModelFault(); f != `the model "big" answered 503` {
		t.Error(f)
	}
	w.do("POST", "/v1/messages", anthropicBody)
	if f := w.ModelFault(); f != "" {
		t.Error(f)
	}
}

func TestAnUnreachableModelIsSaidSo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newModelWorld(t, api.AnthropicMessages, honest, func(cfg *Config) {
		cfg.Model.Loopback = mustAddrPort(l.Addr().String())
	})
	_ = l.Close()
	status, body := w.do("POST", "/v1/messages", anthropicBody)
	if status != 502 || !strings.Contains(body, `"type":"api_error"`) || !strings.Contains(body, `the model \"big\" did not answer`) || !strings.Contains(body, "refused") {
		t.Error(status, body)
	}
	if f := w.ModelFault(); !strings.Contains(f, "did not answer") {
		t.Error(f)
	}
	if lines := w.lines(); lines[0].Status != 0 || !strings.Contains(lines[0].Error, "refused") || lines[0].Error == "" || w.reached() > 0 {
		t.Errorf("%+v", lines)
	}
}

// An agent that runs out of time while its model is silent names the model and how long
// it was silent, and so does the line of the request.
func TestASilentModelIsNamed(t *testing.T) {
	var ahead atomic.Int64
	asked, stop, got := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := newModelWorld(t, api.AnthropicMessages, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-stop
	}, func(cfg *Config) {
		cfg.Now = func() time.Time { return time.Unix(1_800_000_000+ahead.Load(), 0) }
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"/v1/messages", strings.NewReader(anthropicBody))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(got)
		if resp, err := w.upstream.Client().Do(r); err == nil { // the end of the broker breaks it
			_ = resp.Body.Close()
		}
	}()
	<-asked
	host := strings.TrimPrefix(w.upstream.URL, "http://")
	for seconds, want := range map[int64]string{4: "", 45: `the model "big" at ` + host + " has not answered for 45s"} {
		if ahead.Store(seconds); w.ModelFault() != want {
			t.Errorf("after %d seconds: %q, want %q", seconds, w.ModelFault(), want)
		}
	}
	ahead.Store(45)
	_ = w.CloseWithin(time.Millisecond)
	if lines := w.lines(); len(lines) != 1 || lines[0].Status != 0 || !strings.Contains(lines[0].Error, "no answer of "+host+" within 45s") {
		t.Errorf("%+v", lines)
	}
	close(stop)
	<-got
	if f := w.ModelFault(); f != "" {
		t.Errorf("after the end: %q", f)
	}
}

// The oldest silence counts, an answer that began is told apart, and what failed before
// is not forgotten.
func TestSilenceOfSeveralRequests(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	f := faults{model: "big", host: "api.example", secret: redact.New(nil), now: func() time.Time { return now }}
	first, endFirst := f.sent()
	now = now.Add(20 * time.Second)
	f.heard(first)
	_, endSecond := f.sent()
	now = now.Add(10 * time.Second)
	second := f.String() // of the same age
	endSecond()
	if got, want := f.String(), `the model "big" at api.example began an answer and has sent nothing for 10s`; got != want || !strings.HasSuffix(second, " for 10s") {
		t.Errorf("%q, %q, want %q", got, second, want)
	}
	f.add("answered 529")
	if got := f.String(); !strings.HasSuffix(got, `for 10s; before that, the model "big" answered 529`) {
		t.Error(got)
	}
	endFirst()
	if got := f.String(); got != `the model "big" answered 529` {
		t.Error(got)
	}
}

// A provider that repeats the credential in an answer does not tell the agent the value,
// in one piece or in many. The answer still counts.
//
// proves R-D8
func TestAnAnswerDoesNotRepeatTheCredential(t *testing.T) {
	for _, drip := range []bool{false, true} {
		var sent strings.Builder
		w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, r *http.Request) {
			body := `{"id":"m","type":"message","model":"large-1","content":[{"type":"text","text":"` + testKey + ` and ` + html.EscapeString(testKey) + `"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}`
			sent.WriteString(body)
			if !drip {
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				_, _ = io.WriteString(w, body)
				return
			}
			for i := range body {
				_, _ = io.WriteString(w, body[i:i+1])
				_ = http.NewResponseController(w).Flush()
			}
		}, nil)
		status, body := w.do("POST", "/v1/messages", anthropicBody)
		if status != 200 || strings.Contains(body, testKey) || !strings.Contains(body, "[redacted] and [redacted]") || !strings.HasSuffix(body, "}}") {
			t.Errorf("drip %v: %d %s", drip, status, body)
		}
		if !strings.Contains(sent.String(), testKey) { // the control
			t.Error("the model did not repeat it")
		}
		if u := w.Usage(); u.Turns != 1 || u.Input != 3 || u.Output != 4 {
			t.Errorf("%+v", u)
		}
	}
}

// A stream that breaks off does not end like a complete one, and counts what it said.
func TestABrokenStreamBreaks(t *testing.T) {
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, anthropicStart, anthropicDelta)
		panic(http.ErrAbortHandler)
	}, nil)
	status, body := w.do("POST", "/v1/messages", anthropicBody)
	if status != 200 || !strings.HasSuffix(body, "!unexpected EOF") || !strings.Contains(body, "text_delta") {
		t.Error(status, body)
	}
	lines := w.lines()
	if lines[0].Usage == nil || lines[0].Usage.Total() != 115 || !strings.Contains(lines[0].Error, "broke off") || w.Usage().Turns != 1 {
		t.Errorf("%+v", lines)
	}
	if f := w.ModelFault(); !strings.Contains(f, "broke off") {
		t.Error(f)
	}
}

// A stream without bytes ends; one whose pieces come in time does not.
func TestASilentStreamEnds(t *testing.T) {
	stop := make(chan struct{})
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, anthropicStart)
		<-stop
	}, nil)
	t.Cleanup(func() { close(stop) })
	w.proxy.idle = 50 * time.Millisecond
	if _, body := w.do("POST", "/v1/messages", anthropicBody); !strings.HasSuffix(body, "!unexpected EOF") {
		t.Error(body)
	}
	if lines := w.lines(); !strings.Contains(lines[0].Error, errSilent.Error()) || lines[0].Usage.Input != 10 {
		t.Errorf("%+v", lines)
	}
}

// Close ends a stream that does not end, with its line.
func TestCloseEndsAnEndlessStream(t *testing.T) {
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, r *http.Request) {
		sse(w, anthropicStart)
		for r.Context().Err() == nil {
			sse(w, anthropicDelta)
		}
	}, func(cfg *Config) {
		cfg.bounds = defaultBounds()
		cfg.bounds.drain = time.Second
	})
	r, err := http.NewRequestWithContext(t.Context(), "POST", w.base+"/v1/messages", strings.NewReader(anthropicBody))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.upstream.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if lines := w.lines(); len(lines) != 1 || lines[0].Error == "" || lines[0].Usage.Input != 10 {
		t.Errorf("%+v", lines)
	}
}

// proves R-S3
func TestRedirectsOfTheModelAreNotFollowed(t *testing.T) {
	other := 0
	w := newModelWorld(t, api.AnthropicMessages, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/other") {
			other++
		}
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	}, nil)
	status, body := w.do("POST", "/v1/messages", anthropicBody)
	if status != 502 || !strings.Contains(body, "redirects, which is not followed") || other > 0 {
		t.Error(status, body, other)
	}
	if lines := w.lines(); !strings.Contains(lines[0].Error, "/other") {
		t.Errorf("%+v", lines)
	}
}
