package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// liar resolves names as a test says. A name has its last answer for ever.
type liar struct {
	answers map[string][][]netip.Addr
	asked   atomic.Int64
}

func (l *liar) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	l.asked.Add(1)
	all := l.answers[strings.TrimSuffix(host, ".")]
	if len(all) == 0 {
		return nil, fmt.Errorf("no such host %s", host)
	}
	if len(all) > 1 {
		l.answers[strings.TrimSuffix(host, ".")] = all[1:]
	}
	return all[0], nil
}

// metadata lists spellings of addresses that no agent may reach.
func metadata() []string {
	return []string{
		"169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "169.16689662", "169.254.169.254.",
		"[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::169.254.169.254]", "[2002:a9fe:a9fe::]", "[64:ff9b::169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
		"[64:ff9b:1::169.254.169.254]", "[fec0::1]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25lo]", "[::1]", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001",
		"localhost", "metadata.google.internal", "metadata", "0.0.0.0", "0", "[::]", "100.100.100.200", "192.0.0.192", "10.0.0.1", "①②⑦.0.0.1", "169。254。169。254", "127.0.0.1%00.example.com",
	}
}

// proves R-S3: whatever is not listed is refused and recorded, in every form.
func TestOtherHostsAreRefusedByEveryForm(t *testing.T) {
	var dialed atomic.Int64
	w := newWorld(t, Config{
		Egress: []string{"good.example.com:443", "*.wild.example.com:443"},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			dialed.Add(1)
			return nil, fmt.Errorf("reached")
		},
	})
	hosts := []string{
		"evil.example.com:443", "good.example.com:80", "good.example.com:8443", "good.example.com:0443", "good.example.com:+443", "good.example.com:443443", "good.example.com", "good.example.com.:443",
		"wild.example.com:443", "evilwild.example.com:443", ".wild.example.com:443", "a..wild.example.com:443", "a.wild.example.com:80", "a.wild.example.com.evil.example:443", "*.wild.example.com:443",
		"good.example.com@evil.example:443", "good.example.com%2eevil.example:443", "good.example.com%00:443", "xn--gd-xka.example.com:443", "ｇood.example.com:443",
	}
	for _, h := range metadata() {
		hosts = append(hosts, h+":443", h+":80")
	}
	n := 0
	for _, h := range hosts {
		for _, request := range []string{"CONNECT " + h + " HTTP/1.1\r\nHost: " + h, "GET http://" + h + "/latest/meta-data/ HTTP/1.1\r\nHost: " + h, "GET https://" + h + "/ HTTP/1.1\r\nHost: " + h, "CONNECT " + h + " HTTP/1.0"} {
			answer := w.speak(request + "\r\n\r\n")
			if strings.HasPrefix(answer, "HTTP/1.1 400 ") { // net/http does not understand it: no request
				continue
			}
			if n++; !strings.Contains(answer, " 403 ") || !strings.Contains(answer, "Retrying will not help") {
				t.Errorf("%s: %s", request, answer)
			}
		}
	}
	if len(w.lines(n)) < 100 || dialed.Load() != 0 {
		t.Errorf("%d refusals, %d connections", n, dialed.Load())
	}
	w.wantRefused(n, "")
	// The control: the listed ones are dialled.
	for _, h := range []string{"good.example.com:443", "GOOD.example.COM:443", "a.wild.example.com:443", "a.b.Wild.example.com:443"} {
		if _, answer := w.tunnel(h); !strings.Contains(answer, "reached") {
			t.Errorf("%s: %s", h, answer)
		}
	}
}

// proves R-S3: a listed name is no way to an address that is not public.
func TestListedNamesOfOtherAddressesAreRefused(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	var reached atomic.Int64
	go func() {
		for {
			c, err := local.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(local.Addr().String())
	public, loopback := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1")
	l := &liar{answers: map[string][][]netip.Addr{"both.example.com": {{public, loopback}}, "rebind.example.com": {{loopback}, {public}, {loopback}}}}
	names := []string{"both.example.com", "rebind.example.com"}
	for i, a := range []string{
		"169.254.169.254", "127.0.0.1", "::1", "::ffff:169.254.169.254", "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1",
		"fec0::1", "fe80::1", "fd00:ec2::254", "10.0.0.1", "192.168.0.1", "100.100.100.200", "192.0.0.192", "0.0.0.0", "2001::80ff:fffe", "2001:470::5efe:169.254.169.254",
	} {
		name := fmt.Sprintf("n%d.example.com", i)
		names = append(names, name)
		l.answers[name] = [][]netip.Addr{{netip.MustParseAddr(a)}}
	}
	var list []string
	for _, name := range names {
		list = append(list, name+":"+port)
	}
	w := newWorld(t, Config{Egress: list, Dial: egress.Public(egress.Config{Resolver: l}).DialContext})
	for i, h := range list {
		if c, answer := w.tunnel(h); c != nil || !strings.Contains(answer, "403") && !strings.Contains(answer, "Retrying will not help") {
			t.Errorf("%s: %v %s", h, c, answer)
		}
		w.wantRefused(2*i+1, "refused by the egress filter")
		answer := w.speak("GET http://" + h + "/ HTTP/1.1\r\nHost: " + h + "\r\n\r\n")
		if h != "rebind.example.com:"+port && !strings.Contains(answer, " 403 ") { // its second answer is public
			t.Errorf("%s: %s", h, answer)
		}
		w.lines(2*i + 2)
	}
	// An address is resolved once for each connection, so a second answer is never
	// dialled; see internal/base/egress.
	if got, want := l.asked.Load(), int64(2*len(list)); got > want || reached.Load() != 0 {
		t.Errorf("%d lookups, want at most %d; %d connections to loopback", got, want, reached.Load())
	}
	// The control: a dialer for that address reaches it.
	d, err := egress.Only(netip.MustParseAddrPort(local.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.DialContext(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestATunnelCarriesOnlyTLSToItsHost(t *testing.T) {
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"blind.example.com:443", "api.example.com:443", "93.184.215.14:443"}, Secrets: []Secret{secret}})
	got := make(chan string, 100)
	keep := func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	}
	w.raw("blind.example.com:443", keep)
	w.raw("api.example.com:443", keep)
	w.raw("93.184.215.14:443", keep)
	shake := func(name string) func(net.Conn) {
		return func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
		}
	}
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text); _, _ = io.ReadAll(c) }
	}
	n := 0
	for _, c := range []struct {
		name, host, why string
		do              func(net.Conn)
	}{
		{"another name", "blind.example.com:443", `names another server, "evil.example.com"`, shake("evil.example.com")},
		{"a name below", "blind.example.com:443", "names another server", shake("a.blind.example.com")},
		{"no name", "blind.example.com:443", "names no server", shake("")},
		{"another name where TLS is ended", "api.example.com:443", "names another server", shake("blind.example.com")},
		{"a name for an address", "93.184.215.14:443", "the tunnel is to an address", shake("evil.example.com")},
		{"an encrypted name", "blind.example.com:443", "encrypted name (ECH)", say(echHello("blind.example.com"))},
		{"no ClientHello", "blind.example.com:443", "no TLS ClientHello", say("\x16\x03\x01\x00\x05\x02\x00\x00\x01x")},
		{"a record without end", "blind.example.com:443", "no TLS ClientHello", say("\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000))},
		{"http where TLS is ended", "api.example.com:443", "reached by TLS only", say("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")},
		{"another Host", "blind.example.com:443", `names another host than its tunnel, "evil.example.com"`, say("GET / HTTP/1.1\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n")},
		{"absolute form", "blind.example.com:443", "names another host than its tunnel", say("GET http://evil.example.com/ HTTP/1.1\r\nHost: blind.example.com:443\r\nConnection: close\r\n\r\n")},
		{"a tunnel in a tunnel", "blind.example.com:443", "names another host than its tunnel", say("CONNECT evil.example.com:443 HTTP/1.1\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n")},
	} {
		conn, refused := w.tunnel(c.host)
		if conn == nil {
			t.Fatal(refused)
		}
		c.do(conn)
		n++
		w.wantRefused(n, c.why)
		_ = conn.Close()
		if strings.HasPrefix(c.host, "api.") {
			continue // not dialled
		}
		if sent := <-got; sent != "" {
			t.Errorf("%s: the server got %q", c.name, sent)
		}
	}
	// What is neither TLS nor HTTP gets an error of HTTP.
	conn, _ := w.tunnel("blind.example.com:443")
	fmt.Fprint(conn, "SSH-2.0-OpenSSH_9.9\r\n\r\n")
	if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || <-got != "" {
		t.Errorf("ssh: %s", answer)
	}
	// The control: the right name arrives.
	conn, _ = w.tunnel("blind.example.com:443")
	go shake("blind.example.com")(conn)
	defer func() {
		_ = conn.Close()
		if sent := <-got; !strings.Contains(sent, "blind.example.com") {
			t.Errorf("control: the server got %q", sent)
		}
	}()
	for w.bytes("blind.example.com", 443) == 0 {
	}
}

// bytes returns what the broker has counted for a host.
func (w *world) bytes(host string, port uint16) int64 {
	w.b.quota.mu.Lock()
	defer w.b.quota.mu.Unlock()
	return w.b.quota.hosts[target{host, port}].bytes
}

// helloOf returns a ClientHello.
func helloOf(name string) string {
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(theirs, &tls.Config{ServerName: name}).Handshake() }()
	defer ours.Close()
	b := make([]byte, 16<<10)
	n, _ := ours.Read(b)
	return string(b[:n])
}

// echHello returns a ClientHello with an empty extension encrypted_client_hello.
func echHello(name string) string {
	b := []byte(helloOf(name))
	// Lengthen record, handshake and extensions by four bytes, and append it.
	grow := func(at, size int) {
		v := 0
		for i := range size {
			v = v<<8 | int(b[at+i])
		}
		v += 4
		for i := size - 1; i >= 0; i-- {
			b[at+i] = byte(v)
			v >>= 8
		}
	}
	grow(3, 2)
	grow(6, 3)
	at := 9 + 2 + 32
	at += 1 + int(b[at])                   // session
	at += 2 + int(b[at])<<8 + int(b[at+1]) // ciphers
	at += 1 + int(b[at])                   // compression
	grow(at, 2)
	return string(b) + "\xfe\x0d\x00\x00"
}

func TestARedirectIsRelayedAndItsTargetChecked(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"a.example.com:80"}})
	w.host("a.example.com:80", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://169.254.169.254/latest/", http.StatusFound)
	})
	w.host("169.254.169.254:80", echo)
	if status, _ := w.get("http://a.example.com/"); status != http.StatusFound {
		t.Errorf("status %d", status)
	}
	c := w.client()
	c.CheckRedirect = nil
	resp, err := c.Get("http://a.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 403 || resp.Request.URL.Host != "169.254.169.254" {
		t.Errorf("%d of %s", resp.StatusCode, resp.Request.URL)
	}
	w.wantRefused(3, "not in the egress list")
	if len(w.dialed) == 0 || strings.Contains(strings.Join(w.dialed, " "), "169.254") {
		t.Errorf("dialled %v", w.dialed)
	}
}

func TestAmbiguousRequestsAreRefused(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"a.example.com:80", "b.example.com:80", "a.example.com:443"}})
	seen := make(chan string, 100)
	for _, h := range []string{"a.example.com:80", "b.example.com:80"} {
		w.host(h, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seen <- h + r.RequestURI + string(body)
		})
	}
	for i, c := range [][2]string{
		{"GET http://a.example.com/ HTTP/1.1\r\nHost: b.example.com\r\n\r\n", "the field Host names another host"},
		{"GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com:8080\r\n\r\n", "the field Host names another host"},
		{"GET http://a.example.com/ HTTP/1.1\r\nX: y\r\n Z: b.example.com\r\nHost: a.example.com\r\n\r\n", "folded"},
		{"GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nX: y\nZ: b.example.com\r\n\r\n", "does not end as HTTP wants"},
		{"POST http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both Content-Length and Transfer-Encoding"},
		{"CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 4\r\n\r\nabcd", "has no body"},
		{"CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "has no body"},
		{"GET http://user:pass@a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", "has a user"},
		{"TRACE http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", "is not relayed"},
		{"GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "an upgrade to"},
		{"GET https://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", "wants a tunnel"},
	} {
		if answer := w.speak(c[0]); !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
			t.Errorf("%q: %s", c[0], answer)
		}
		w.wantRefused(i+1, c[1])
	}
	if len(seen) > 0 {
		t.Errorf("a server got %s", <-seen)
	}
	n := len(w.lines(11))
	// A second request on the connection is not read: its header cannot be seen.
	answer := w.speak("GET http://a.example.com/1 HTTP/1.1\r\nHost: a.example.com\r\n\r\nGET http://b.example.com/2 HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
	if strings.Count(answer, "HTTP/1.1 ") != 1 || <-seen != "a.example.com:80/1" || len(seen) != 0 {
		t.Errorf("pipelined: %s", answer)
	}
	answer = w.speak("GET /other HTTP/1.1\r\nHost: x\r\n\r\nGET http://b.example.com/2 HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
	if !strings.Contains(answer, "must be the first on its connection") || len(seen) != 0 {
		t.Errorf("second: %s", answer)
	}
	w.lines(n + 2)
	// A body that looks like a request stays a body; hop-by-hop fields stay here.
	body := "GET http://b.example.com/ HTTP/1.1\r\nHost: b.example.com\r\n\r\n"
	_ = w.speak(fmt.Sprintf("POST http://a.example.com/post HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	if got := <-seen; got != "a.example.com:80/post"+body || len(seen) != 0 {
		t.Errorf("the server got %q", got)
	}
}

// authority sends one HTTP/2 request with the given fields in a tunnel whose TLS is
// ended, and returns the status.
func (w *world) authority(host string, fields ...hpack.HeaderField) string {
	w.t.Helper()
	c, refused := w.tunnel(host + ":443")
	if c == nil {
		w.t.Fatal(refused)
	}
	s := tls.Client(c, &tls.Config{ServerName: host, RootCAs: w.trust(), NextProtos: []string{"h2"}})
	if _, err := io.WriteString(s, http2.ClientPreface); err != nil {
		w.t.Fatal(err)
	}
	f := http2.NewFramer(s, s)
	_ = f.WriteSettings()
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	for _, h := range fields {
		_ = e.WriteField(h)
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	d := hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String()
		case *http2.HeadersFrame:
			all, _ := d.DecodeFull(frame.HeaderBlockFragment())
			return all[0].Value
		}
	}
}

func TestHTTP2NamesNoOtherHost(t *testing.T) {
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443", "other.example.com:443"}, Secrets: []Secret{secret}})
	seen := make(chan string, 100)
	for _, h := range []string{"api.example.com:443", "other.example.com:443"} {
		w.host(h, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Host })
	}
	field := func(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }
	base := []hpack.HeaderField{field(":method", "GET"), field(":scheme", "https"), field(":path", "/")}
	with := func(more ...hpack.HeaderField) []hpack.HeaderField {
		return append(append([]hpack.HeaderField{}, base...), more...)
	}
	for name, fields := range map[string][]hpack.HeaderField{
		"another authority":           with(field(":authority", "other.example.com")),
		"another port":                with(field(":authority", "api.example.com:8443")),
		"another host":                with(field("host", "other.example.com")),
		"authority and another host":  with(field(":authority", "api.example.com"), field("host", "other.example.com")),
		"no authority":                base,
		"a user in the authority":     with(field(":authority", "api.example.com@other.example.com")),
		"two authorities":             with(field(":authority", "api.example.com"), field(":authority", "other.example.com")),
		"a path that is a URL":        {field(":method", "GET"), field(":scheme", "https"), field(":path", "https://other.example.com/"), field(":authority", "other.example.com")},
		"a tunnel":                    {field(":method", "CONNECT"), field(":authority", "other.example.com:443")},
		"an extended tunnel":          {field(":method", "CONNECT"), field(":protocol", "websocket"), field(":scheme", "https"), field(":path", "/"), field(":authority", "api.example.com")},
		"a tunnel to the host itself": {field(":method", "CONNECT"), field(":authority", "api.example.com:443")},
	} {
		if status := w.authority("api.example.com", fields...); status != "403" && status != "400" && status != "PROTOCOL_ERROR" {
			t.Errorf("%s: %s", name, status)
		}
	}
	if len(seen) > 0 {
		t.Errorf("a server was asked as %s", <-seen)
	}
	// The control.
	if status := w.authority("api.example.com", with(field(":authority", "API.example.com"))...); status != "200" || <-seen != "api.example.com" {
		t.Errorf("control: %s", status)
	}
}

func TestProxiesInTheEnvironmentAreIgnored(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var used atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			used.Add(1)
			_ = c.Close()
		}
	}()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+l.Addr().String())
	}
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"a.example.com:80", "a.example.com:443", "api.example.com:443"}, Secrets: []Secret{secret}})
	w.host("a.example.com:80", echo)
	w.host("a.example.com:443", echo)
	w.host("api.example.com:443", echo)
	for _, url := range []string{"http://a.example.com/", "https://a.example.com/", "https://api.example.com/"} {
		if status, body := w.get(url); status != 200 {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	if used.Load() != 0 {
		t.Error("the proxy of the environment was used")
	}
	// The control: net/http's own transport uses it.
	r, _ := http.NewRequest(http.MethodGet, "http://a.example.com/", nil)
	if u, err := http.ProxyFromEnvironment(r); err != nil || u == nil {
		t.Errorf("control: %v %v", u, err)
	}
}

func TestTheCertificateOfTheHostIsVerified(t *testing.T) {
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443"}, Secrets: []Secret{secret}})
	got := make(chan string, 1)
	wrong := w.certificate("evil.example.com")
	w.raw("api.example.com:443", func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{wrong}})
		b, _ := bufio.NewReader(s).ReadString('\n')
		got <- b
	})
	if status, body := w.get("https://api.example.com/"); status != 502 || !strings.Contains(body, "certificate") {
		t.Errorf("%d %s", status, body)
	}
	if b := <-got; b != "" {
		t.Errorf("the server got %q", b)
	}
}

func FuzzPeekHello(f *testing.F) {
	f.Add([]byte(helloOf("a.example.com")))
	f.Add([]byte(echHello("a.example.com")))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, name, err := peekHello(context.Background(), strings.NewReader(string(data))) //nolint:usetesting // no goroutine for its end
		if !strings.HasPrefix(string(data), string(read)) || len(read) > maxHello {
			t.Fatalf("read %q of %q", read, data)
		}
		if err != nil && name != "" {
			t.Fatalf("%q and %v", name, err)
		}
	})
}
