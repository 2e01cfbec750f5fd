package mcphttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

// short shortens all timeouts.
func short(c *Config) {
	c.limits.headerTime, c.limits.bodyTime, c.limits.idleTime, c.limits.writeTime = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
}

func TestDefaultLimitsAreAsDocumented(t *testing.T) {
	got := defaultLimits()
	if got.headerTime != 5*time.Second || got.bodyTime != 30*time.Second || got.idleTime != time.Minute || got.connections != 256 || httpguard.MaxHead != 32<<10 || mcpwire.MaxMessage != 1<<20 {
		t.Errorf("%+v", got)
	}
}

// proves R-T3
func TestHeaderAndBodySizesAreBounded(t *testing.T) {
	f := newTestServer(t, nil)
	padding := func(n int) rawRequest { return rawRequest{header: []string{"X: " + strings.Repeat("a", n)}} }
	f.want("30 KiB of header", padding(30<<10), 200)
	f.want("more than 32 KiB of header", padding(33<<10), 431)
	if got := f.raw(f.text(rawRequest{}) + "GET /mcp HTTP/1.1\r\n" + strings.Repeat("X: a\r\n", 8<<10)); got.status != 200 {
		t.Errorf("the request before it: %s", got)
	}
	f.want("many lines", rawRequest{header: strings.Split(strings.Repeat("X: a|", 8<<10)+"X: a", "|")}, 431)
	body := func(n int) rawRequest { return rawRequest{body: toolsList + strings.Repeat(" ", n-len(toolsList))} }
	f.want("1 MiB", body(mcpwire.MaxMessage), 200)
	f.want("more than 1 MiB", body(mcpwire.MaxMessage+1), 413)
	announced := strings.Replace(f.text(rawRequest{}), fmt.Sprintf("Content-Length: %d", len(toolsList)), "Content-Length: 1099511627776", 1)
	if got := f.raw(announced + strings.Repeat(" ", 2<<20)); got.status != 413 {
		t.Errorf("Content-Length of 1 TiB: %s", got)
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat(" ", 64<<10))
	chunked := func(chunks string) string {
		text, _, _ := strings.Cut(f.text(rawRequest{without: "Content-Length", header: []string{"Transfer-Encoding: chunked"}}), "\r\n\r\n")
		return text + "\r\n\r\n" + chunks
	}
	own := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(toolsList), toolsList)
	if got := f.raw(chunked(own)); got.status != 200 {
		t.Errorf("in chunks: %s", got)
	}
	if got := f.raw(chunked(strings.Repeat(chunk, 17) + own)); got.status != 413 {
		t.Errorf("more than 1 MiB in chunks: %s", got)
	}
}

// proves R-T3
func TestHeaderBodyAndIdleTimesAreBounded(t *testing.T) {
	f := newTestServer(t, short)
	text := f.text(rawRequest{})
	header, _, _ := strings.Cut(text, "\r\n\r\n")
	slowly := func(name, sent string, rest string, want int) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := f.dial()
			r := bufio.NewReader(c)
			if _, err := io.WriteString(c, sent); err != nil {
				t.Fatal(err)
			}
			answers := make(chan rawAnswer, 1)
			go func() { answers <- read(r, "POST") }()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case got := <-answers:
					// net/http reports a truncated line as malformed.
					if got.status != want && (want != 0 || got.status != 400) {
						t.Errorf("%d bytes later: %s", i, got)
					}
					if _, err := r.ReadByte(); err == nil {
						t.Error("the connection stays open")
					}
					return
				case <-tick.C:
					if i < len(rest) {
						_, _ = io.WriteString(c, rest[i:i+1])
					}
				}
			}
		})
	}
	slowly("nothing", "", "", 0)
	slowly("a header byte by byte", "", header, 0)
	slowly("a header that stops", header, "", 0)
	slowly("header lines without end", header, strings.Repeat("\r\nX: a", 1000), 0)
	slowly("a body byte by byte", header+"\r\n\r\n", toolsList, 408)
	slowly("a body that stops", text[:len(text)-1], "", 408)
	unknown, _, _ := strings.Cut(f.text(rawRequest{without: "Authorization"}), "\r\n\r\n")
	slowly("an unauthenticated body", unknown+"\r\n\r\n", toolsList, 401)
	nowhere, _, _ := strings.Cut(f.text(rawRequest{path: "/"}), "\r\n\r\n")
	slowly("a body that stops, for an unknown path", nowhere+"\r\n\r\n", "", 404)
	t.Run("silence after an answer", func(t *testing.T) {
		t.Parallel()
		c := f.dial()
		r := bufio.NewReader(c)
		for range 2 { // control: the connection is kept
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			if got := read(r, "POST"); got.status != 200 {
				t.Fatal(got)
			}
		}
		if _, err := r.ReadByte(); err == nil {
			t.Error("an idle connection stays open")
		}
	})
}

// proves R-T3
func TestSmuggledRequestsAreRefused(t *testing.T) {
	f := newTestServer(t, nil)
	good := f.text(rawRequest{})
	length := fmt.Sprintf("Content-Length: %d\r\n", len(toolsList))
	for name, text := range map[string]string{
		"the length twice":     strings.Replace(good, length, length+length, 1),
		"two lengths":          strings.Replace(good, length, length+"Content-Length: 1\r\n", 1),
		"length and chunks":    strings.Replace(good, length, length+"Transfer-Encoding: chunked\r\n", 1),
		"chunks of something":  strings.Replace(good, length, "Transfer-Encoding: gzip, chunked\r\n", 1),
		"line feeds":           strings.ReplaceAll(good, "\r\n", "\n"),
		"a space before colon": strings.Replace(good, "Content-Length:", "Content-Length :", 1),
		"a folded line":        strings.Replace(good, length, length+" x\r\n", 1),
		"two hosts":            strings.Replace(good, length, length+"Host: evil.example\r\n", 1),
		"a URL of another":     strings.Replace(good, "POST /mcp", "POST http://evil.example/mcp", 1),
		"HTTP/1.0":             strings.Replace(good, "HTTP/1.1", "HTTP/1.0", 1),
		"HTTP/2":               "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		if got := f.raw(text); got.status != 400 || strings.Contains(got.body, "jsonrpc") {
			t.Errorf("%s: %s", name, got)
		}
		c := f.dial()
		r := bufio.NewReader(c)
		if _, err := io.WriteString(c, good+text+good); err != nil {
			t.Fatal(err)
		}
		statuses := []int{read(r, "POST").status, read(r, "POST").status, read(r, "POST").status}
		if fmt.Sprint(statuses) != "[200 400 0]" && fmt.Sprint(statuses) != "[0 0 0]" { // an answer under way may be cut off
			t.Errorf("%s behind a good one: %v", name, statuses)
		}
	}
	if got := f.raw(good); got.status != 200 {
		t.Errorf("control: %s", got)
	}
}

// proves R-T3
func TestAFloodOfConnectionsEvictsOnlyItself(t *testing.T) {
	// On a slow machine no connection of the flood may time out before it is counted.
	f := newTestServer(t, func(c *Config) {
		c.limits.connections, c.limits.headerTime, c.limits.idleTime = 16, time.Minute, time.Minute
	})
	kept := f.dial()
	answers := bufio.NewReader(kept)
	ask := func(name string) {
		t.Helper()
		if _, err := io.WriteString(kept, f.text(rawRequest{})); err != nil {
			t.Fatal(err)
		}
		if got := read(answers, "POST"); got.status != 200 {
			t.Errorf("%s: %s", name, got)
		}
	}
	ask("before")
	flood := make([]net.Conn, 64)
	for i := range flood {
		flood[i] = f.dial()
	}
	ask("an authenticated connection")
	f.want("a new connection", rawRequest{}, 200)
	open := 0
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, c := range flood {
		all.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, err := c.Read(make([]byte, 1))
			mu.Lock()
			defer mu.Unlock()
			if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // of a connection
				open++
			}
		})
	}
	all.Wait()
	if open == 0 || open > 16 {
		t.Errorf("%d of %d connections of the flood are open", open, len(flood))
	}
	ask("after")
}

func TestAPoolOfPinnedConnectionsRefusesNewOnes(t *testing.T) {
	f := newTestServer(t, func(c *Config) { c.limits.connections = 4 })
	var kept []net.Conn
	for range 4 {
		c := f.dial()
		if _, err := io.WriteString(c, f.text(rawRequest{})); err != nil {
			t.Fatal(err)
		}
		if got := read(bufio.NewReader(c), "POST"); got.status != 200 {
			t.Fatal(got)
		}
		kept = append(kept, c)
	}
	if got := f.send(rawRequest{}); got.status != 0 {
		t.Errorf("the fifth: %s", got)
	}
	_ = kept[0].Close()
	for range 100 { // until the server has noticed
		if f.send(rawRequest{}).status == http.StatusOK {
			return
		}
	}
	t.Error("a closed connection still occupies its place")
}

// One principal cannot occupy the pool by authenticating every connection.
//
// proves R-T3, R-T5
func TestPinnedConnectionsOfOnePrincipalAreBounded(t *testing.T) {
	f := newTestServer(t, func(c *Config) { c.limits.connections, c.limits.perPrincipal = 6, 3 })
	first := f.dial()
	answers := bufio.NewReader(first)
	ask := func(what string) {
		t.Helper()
		if _, err := io.WriteString(first, f.text(rawRequest{})); err != nil {
			t.Fatal(err)
		}
		if got := read(answers, "POST"); got.status != 200 {
			t.Errorf("%s: %s", what, got)
		}
	}
	ask("the first connection")
	for range 20 {
		c := f.dial()
		if _, err := io.WriteString(c, f.text(rawRequest{})); err != nil {
			t.Fatal(err)
		}
		if got := read(bufio.NewReader(c), "POST"); got.status != 200 {
			t.Fatal(got)
		}
	}
	for range 3 {
		f.want("another principal beside twenty open connections", rawRequest{token: goodToken(2)}, 200)
	}
	ask("the first connection after the others") // it is pinned
}

// A principal can pin new connections once its old ones are closed.
func TestClosingAConnectionUnpinsIt(t *testing.T) {
	f := newPool(10, 2, time.Second, time.Now)
	for range 5 {
		var all []*conn
		for i := range 4 {
			here, there := net.Pipe()
			defer there.Close()
			c := f.add(here, nil)
			f.pin(c, "agent:ann")
			f.pin(c, "agent:ben") // a connection is pinned for one principal only
			if pinned := c.place.Value == nil; pinned != (i < 4) {
				t.Errorf("connection %d is pinned: %v", i, pinned)
			}
			all = append(all, c)
		}
		if f.pinned["agent:ann"] != 2 || f.pinned["agent:ben"] != 2 || f.open != 4 {
			t.Errorf("pinned: %v of %d", f.pinned, f.open)
		}
		for _, c := range all {
			_ = c.Close()
			_ = c.Close()
		}
		if len(f.pinned) != 0 || f.open != 0 || f.anonymous.Len() != 0 {
			t.Errorf("after closing all: %v, %d, %d", f.pinned, f.open, f.anonymous.Len())
		}
	}
}

// proves R-T3
func TestAClientThatDoesNotReadLosesItsConnection(t *testing.T) {
	f := newTestServer(t, short)
	c := f.dial()
	ended := make(chan error, 1)
	go func() {
		text := f.text(rawRequest{})
		for {
			if _, err := io.WriteString(c, text); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := <-ended; err == nil {
		t.Error("the connection stays open")
	}
	f.want("another", rawRequest{}, 200)
}

func TestConcurrentRequestsOfOnePrincipalAreBounded(t *testing.T) {
	r := newThrottle(maxRate, 2, time.Now)
	var got []bool
	for _, p := range []api.Principal{"agent:a", "agent:a", "agent:a", "agent:b"} {
		got = append(got, r.acquire(p))
	}
	if !slices.Equal(got, []bool{true, true, false, true}) {
		t.Errorf("limit of two: %v", got)
	}
	r.release("agent:a")
	if !r.acquire("agent:a") {
		t.Error("refused after a release")
	}
}
