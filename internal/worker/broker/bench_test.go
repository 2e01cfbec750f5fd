package broker

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ways lists how a benchmark reaches a server: without a broker, and through one.
func ways(b *testing.B) []way {
	secret, _ := brokered(api.Brokered{Hosts: []string{"ended.example.com:443"}, Header: "Authorization", Prefix: "Bearer "})
	w := newWorld(b, Config{Egress: []string{"plain.example.com:80", "blind.example.com:443", "ended.example.com:443"}, Secrets: []Secret{secret}})
	serve := func(rw http.ResponseWriter, r *http.Request) {
		block := make([]byte, 256<<10)
		for i := range block {
			block[i] = byte(i * 7)
		}
		for n := 0; r.URL.Path == "/much" && n < 64<<20; n += len(block) {
			if _, err := rw.Write(block); err != nil {
				return
			}
		}
		_, _ = io.WriteString(rw, "x")
	}
	w.host("plain.example.com:80", serve)
	w.host("blind.example.com:443", serve)
	w.host("ended.example.com:443", serve)
	transport := func() *http.Transport { // of HTTP/1.1, for equal ways
		return &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: w.trust(), NextProtos: []string{"http/1.1"}}, DisableCompression: true,
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		}
	}
	direct, proxied := transport(), transport()
	direct.DialContext = w.dial
	proxied.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: w.proxy})
	b.Cleanup(func() { direct.CloseIdleConnections(); proxied.CloseIdleConnections() })
	return []way{
		{"plain/direct", direct, "http://plain.example.com"},
		{"plain/broker", proxied, "http://plain.example.com"},
		{"tls/direct", direct, "https://blind.example.com"},
		{"tls/blind", proxied, "https://blind.example.com"},
		{"tls/ended", proxied, "https://ended.example.com"},
	}
}

type way struct {
	name string
	via  *http.Transport
	url  string
}

// BenchmarkFirstByte measures a request with a short answer on an open connection.
func BenchmarkFirstByte(b *testing.B) {
	for _, w := range ways(b) {
		b.Run(w.name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				get(b, w, "/")
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkThroughput measures answers of 64 MiB. Client, broker and server share the
// processors.
func BenchmarkThroughput(b *testing.B) {
	for _, w := range ways(b) {
		b.Run(w.name, func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				get(b, w, "/much")
			}
		})
	}
}

func get(b *testing.B, w way, path string) {
	r, err := http.NewRequest(http.MethodGet, w.url+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := w.via.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		b.Fatal(resp.StatusCode, err)
	}
}

// BenchmarkTunnel measures the bytes of a blind tunnel alone, beside a connection
// without a broker: neither end encrypts.
func BenchmarkTunnel(b *testing.B) {
	const size = 256 << 20
	w := newWorld(b, Config{Egress: []string{"blind.example.com:443"}})
	w.raw("blind.example.com:443", func(c net.Conn) {
		defer c.Close()
		if _, err := c.Read(make([]byte, 16<<10)); err != nil {
			return
		}
		block := make([]byte, 256<<10)
		for range size / len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	hello := helloOf("blind.example.com")
	for name, open := range map[string]func() (net.Conn, error){
		"direct": func() (net.Conn, error) { return w.dial(b.Context(), "", "blind.example.com:443") },
		"blind": func() (net.Conn, error) {
			c, refused := w.tunnel("blind.example.com:443")
			if c == nil {
				return nil, fmt.Errorf("refused: %s", refused)
			}
			return c, nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				c, err := open()
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.WriteString(c, hello)
				if n, err := io.CopyBuffer(io.Discard, onlyReader{c}, make([]byte, 256<<10)); n != size || err != nil {
					b.Fatal(n, err)
				}
				_ = c.Close()
			}
		})
	}
}
