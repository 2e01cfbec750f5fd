package broker

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkModel compares the way through the broker with a direct connection, in turn:
// the time to the first byte of an answer, and the rate of a stream of events.
func BenchmarkModel(b *testing.B) {
	delta := []byte("event: content_block_delta\ndata: " + strings.ReplaceAll(anthropicDelta, "hi", "a few words") + "\n\n")
	chunk := bytes.Repeat(delta, 64<<10/len(delta))
	size := 0
	w := newModelWorld(b, api.AnthropicMessages, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+anthropicStart+"\n\n")
		for sent := 0; sent < size; sent += len(chunk) {
			_, _ = w.Write(chunk)
		}
		_, _ = io.WriteString(w, "data: "+anthropicEnd+"\n\ndata: "+anthropicStop+"\n\n")
	}, nil)
	direct := w.upstream.URL + "/base/v1/messages"
	ask := func(url, body string) (first time.Duration, n int64) {
		from := time.Now()
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		resp, err := w.upstream.Client().Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		buf := make([]byte, 64<<10)
		n1, err := resp.Body.Read(buf)
		first = time.Since(from)
		n2, _ := io.CopyBuffer(io.Discard, struct{ io.Reader }{resp.Body}, buf)
		if err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		return first, int64(n1) + n2
	}
	large := strings.Replace(anthropicBody, "hi", strings.Repeat("a line of a conversation\\n", 5000), 1)
	for name, body := range map[string]string{"FirstByte/100B": anthropicBody, "FirstByte/130KB": large} {
		b.Run(name, func(b *testing.B) {
			size = 0
			var near, far []time.Duration
			for b.Loop() {
				d, _ := ask(direct, body)
				f, _ := ask(w.base+"/v1/messages", body)
				near, far = append(near, d), append(far, f)
			}
			us := func(all []time.Duration) float64 { return float64(middle(all).Nanoseconds()) / 1e3 }
			b.ReportMetric(us(near), "direct-µs")
			b.ReportMetric(us(far), "broker-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
	b.Run("Stream", func(b *testing.B) {
		size = 256 << 20
		rate := map[string][]time.Duration{}
		var n int64
		for b.Loop() {
			for _, url := range []string{direct, w.base + "/v1/messages"} {
				from := time.Now()
				_, n = ask(url, anthropicBody)
				rate[url] = append(rate[url], time.Since(from))
			}
		}
		for url, all := range rate {
			unit := "broker-MB/s"
			if url == direct {
				unit = "direct-MB/s"
			}
			b.ReportMetric(float64(n)/1e6/middle(all).Seconds(), unit)
		}
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkInspect measures the check of a body of a long conversation.
func BenchmarkInspect(b *testing.B) {
	body := []byte(cliBodies()[api.AnthropicMessages])
	messages := bytes.Index(body, []byte(`{"role":"user","content":[{"type":"text"`))
	one := []byte(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"` + strings.Repeat(`a line of a file\n`, 100) + `"}]}]},`)
	body = append(append(bytes.Clone(body[:messages]), bytes.Repeat(one, 500)...), body[messages:]...)
	rules, m := anthropicRules(), testModel(api.AnthropicMessages)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := inspect(body, rules, m); err != nil {
			b.Fatal(err)
		}
	}
}

func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
