package broker

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// An agent that makes an answer too large to count has not used it for nothing. The
// control: without a limit of tokens, nothing ends it.
//
// proves R-D8
func TestAnAnswerTooLargeToCountIsNotFree(t *testing.T) {
	for _, c := range []struct {
		limits api.Limits
		spent  int
	}{{api.Limits{Turns: 9}, 0}, {api.Limits{Tokens: 1000}, 1}} {
		w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
			piece := strings.Repeat("x", 1<<20)
			_, _ = io.WriteString(w, `{"object":"chat.completion","choices":["`)
			for range maxCounted>>20 + 1 {
				_, _ = io.WriteString(w, piece)
			}
			_, _ = io.WriteString(w, `"],"usage":{"prompt_tokens":7}}`)
		}, func(cfg *Config) { cfg.Limits = c.limits })
		w.do("POST", "/v1/chat/completions", chatBody)
		if l := w.lines()[0]; !strings.Contains(l.Error, errTooLarge.Error()) || len(w.spent) != c.spent {
			t.Errorf("%+v: spent %q, record %+v", c.limits, w.spent, l)
		}
	}
}

// An agent cannot keep the end of an answer, which has its usage, from being counted by
// not reading it.
//
// proves R-D8
func TestAnAgentThatDoesNotReadIsCounted(t *testing.T) {
	answered := make(chan struct{})
	w := newModelWorld(t, api.OpenAIChat, func(w http.ResponseWriter, _ *http.Request) {
		defer close(answered)
		text := fmt.Sprintf(`{"choices":[{"delta":{"content":%q}}]}`, strings.Repeat("x", 1<<20))
		for range 32 { // more than the buffers between it and the agent
			sse(w, text)
		}
		sse(w, ends(500), "[DONE]")
	}, nil)
	w.proxy.write = 50 * time.Millisecond
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(w.base, "http://"), "/model/big"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "POST /model/big/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(chatBody), chatBody)
	select {
	case <-answered:
	case <-time.After(20 * time.Second):
		t.Fatal("the answer waits for the agent")
	}
	w.proxy.slots <- struct{}{}
	for len(w.proxy.slots) > 1 {
		<-w.proxy.slots
		w.proxy.slots <- struct{}{}
	}
	if u := w.Usage(); u.Input != 500 {
		t.Errorf("%+v", u)
	}
}

// The record of requests has a bound, whatever requests they are, also for processes
// that no limit ends.
//
// proves R-S3
func TestTheRecordIsBounded(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"upgrades": func(r *http.Request) { r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}} },
		"refusals": func(r *http.Request) { r.URL.Path += "/other" },
	} {
		w := newModelWorld(t, api.OpenAIResponses, honest, func(cfg *Config) {
			cfg.bounds = defaultBounds()
			cfg.bounds.requests = 50
		})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		for range 50 + record.MaxRefusals + 100 {
			if resp, err := w.upstream.Client().Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		if n := len(w.lines()); n < record.MaxRefusals || n > 50+record.MaxRefusals+1 {
			t.Errorf("%s: %d lines", name, n)
		}
	}
}

// No part of the credential comes back with an error: not at the end of a text that is
// cut, not compressed, and not in what explains the failure of an agent.
//
// proves R-C3
func TestErrorsHaveNoPartOfTheCredential(t *testing.T) {
	part := testKey[:len(testKey)-1]
	packed := &bytes.Buffer{}
	z := gzip.NewWriter(packed)
	_, _ = io.WriteString(z, testKey)
	_ = z.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"cut for the record": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, strings.Repeat("x", maxFaultText-len(part))+testKey)
		},
		"cut for the agent": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, strings.Repeat("x", maxFault-len(part))+testKey+"xxx")
		},
		"compressed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(500)
			_, _ = w.Write(packed.Bytes())
		},
		"redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/"+strings.Repeat("x", maxFaultText-len(part)-1)+testKey)
			w.WriteHeader(302)
		},
		"in a stream": func(w http.ResponseWriter, _ *http.Request) {
			sse(w, fmt.Sprintf(`{"type":"error","error":{"type":"e","message":%q}}`, strings.Repeat("x", maxFaultText-len(part)-3)+testKey))
		},
	} {
		w := newModelWorld(t, api.AnthropicMessages, answer, nil)
		_, body := w.do("POST", "/v1/messages", anthropicBody)
		if r, err := gzip.NewReader(strings.NewReader(body)); err == nil {
			plain, _ := io.ReadAll(r)
			body += string(plain)
		}
		fault := w.ModelFault()
		if name != "in a stream" && strings.Contains(body, part) { // see docs/threats.md
			t.Errorf("%s: the agent gets %.100q", name, body[max(0, len(body)-100):])
		}
		if line := fmt.Sprintf("%+v", w.lines()); fault == "" || strings.Contains(fault+line, part) {
			t.Errorf("%s: %s\n%s", name, fault, line)
		}
	}
}

// The work on a body does not grow with how deep it is.
//
// proves R-S3
func TestDeepBodiesAreInspectedInLinearTime(t *testing.T) {
	body := func(depth, leaves int) []byte {
		return []byte(`{"model":"large-1","messages":[` + strings.Repeat(`{"content":[`, depth) +
			strings.TrimSuffix(strings.Repeat(`"",`, leaves), ",") + strings.Repeat(`]}`, depth) + `]}`)
	}
	rules := rulesOf(api.AnthropicMessages)
	took := func(b []byte) time.Duration {
		least := time.Hour
		for range 3 {
			from := time.Now()
			if _, err := inspect(b, rules, testModel(api.AnthropicMessages)); err != nil {
				t.Fatal(err)
			}
			least = min(least, time.Since(from))
		}
		return least
	}
	flat, deep := took(body(1, 100_000)), took(body(4000, 100_000))
	if deep > 20*flat+50*time.Millisecond {
		t.Errorf("flat %s, deep %s", flat, deep)
	}
}

// The agent cannot ask the host of a secret for parts of an answer, where no part has
// the whole value. The control: a host without a secret gets the range.
//
// proves R-D8
func TestPartsOfAnAnswerCannotBeAskedFor(t *testing.T) {
	s, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "Authorization"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443", "a.example.com:443"}, Secrets: []Secret{s}})
	serve := func(rw http.ResponseWriter, r *http.Request) {
		http.ServeContent(rw, r, "x", time.Time{}, strings.NewReader("it is "+r.Header.Get("Authorization")+"."))
	}
	w.host("api.example.com:443", serve)
	w.host("a.example.com:443", serve)
	for host, want := range map[string]int{"api.example.com": 200, "a.example.com": 206} {
		r, _ := http.NewRequest(http.MethodGet, "https://"+host+"/", nil)
		r.Header.Set("Range", "bytes=0-8")
		if status, body := w.send(r); status != want || strings.Contains(body, secretValue[:3]) {
			t.Errorf("%s: %d %s", host, status, body)
		}
	}
}
