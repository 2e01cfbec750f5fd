package arch

import (
	"slices"
	"strings"
	"testing"
)

// The positive control: each of these is found when planted into a package, also in
// a file that build tags or another system exclude.
//
// proves R-T7
func TestAPlantedDialIsFound(t *testing.T) {
	w := loadWorld(t)
	for name, c := range map[string]struct{ in, imports, body, want string }{
		"net.Dial":                           {"client", `"net"`, `func planted() { _, _ = net.Dial("tcp", "x:1") }`, "client uses net.Dial"},
		"under another name":                 {"client", `n "net"`, `func planted() { _, _ = n.Dial("tcp", "x:1") }`, "client uses net.Dial"},
		"without a name":                     {"client", `. "net"`, `func planted() { _, _ = Dial("tcp", "x:1") }`, "client uses net.Dial"},
		"as a value":                         {"client", `"net"`, `func planted() any { return net.DialTimeout }`, "client uses net.DialTimeout"},
		"a dialer":                           {"internal/worker/supervisor", `"net"`, `type planted struct{ net.Dialer }`, "internal/worker/supervisor uses net.Dialer"},
		"a resolver":                         {"internal/front/server", `"net"`, `func planted() { _, _ = net.LookupHost("x") }`, "internal/front/server uses net.LookupHost"},
		"another resolver":                   {"internal/front/server", `"net"`, `func planted() any { return &net.Resolver{} }`, "internal/front/server uses net.Resolver"},
		"a socket that sends":                {"internal/front/server", `"net"`, `func planted() { _, _ = net.ListenPacket("udp", "x:1") }`, "internal/front/server uses net.ListenPacket"},
		"the same by a method":               {"internal/front/server", `("net"; "context")`, `func planted() { _, _ = new(net.ListenConfig).ListenPacket(context.Background(), "udp", "x:1") }`, "uses net.ListenConfig.ListenPacket"},
		"http.Get":                           {"internal/front/cli", `"net/http"`, `func planted() { _, _ = http.Get("http://x") }`, "internal/front/cli uses net/http.Get"},
		"the client of all":                  {"internal/front/cli", `"net/http"`, `func planted() any { return http.DefaultClient }`, "uses net/http.DefaultClient"},
		"the transport of all":               {"internal/front/cli", `"net/http"`, `func planted() any { return http.DefaultTransport }`, "uses net/http.DefaultTransport"},
		"a client of its own":                {"internal/front/cli", `"net/http"`, `func planted() any { return &http.Client{} }`, "uses net/http.Client"},
		"one that new makes":                 {"internal/front/cli", `"net/http"`, `func planted() any { return new(http.Client) }`, "uses net/http.Client"},
		"one that is a variable":             {"internal/front/cli", `"net/http"`, `func planted() { var c http.Client; _, _ = c.Get("http://x") }`, "uses net/http.Client"},
		"one in a struct":                    {"internal/front/cli", `"net/http"`, `type planted struct{ c http.Client }`, "uses net/http.Client"},
		"one whose type is not written":      {"internal/front/cli", `"net/http"`, `func planted() any { return []*http.Client{{}} }`, "uses net/http.Client"},
		"one under another name":             {"internal/front/cli", `"net/http"`, `type planted = http.Client`, "uses net/http.Client"},
		"one that is changed":                {"internal/front/cli", `"net/http"`, `func planted(c *http.Client) { c.Transport = nil }`, "uses net/http.Client.Transport"},
		"the redirects of one":               {"internal/front/cli", `"net/http"`, `func planted(c *http.Client) { c.CheckRedirect = nil }`, "uses net/http.Client.CheckRedirect"},
		"a transport":                        {"internal/front/telemetry", `"net/http"`, `func planted() any { return &http.Transport{} }`, "internal/front/telemetry uses net/http.Transport"},
		"a proxy of the environment":         {"internal/front/telemetry", `"net/http"`, `func planted() any { return http.ProxyFromEnvironment }`, "uses net/http.ProxyFromEnvironment"},
		"tls.Dial":                           {"internal/front/server", `"crypto/tls"`, `func planted() { _, _ = tls.Dial("tcp", "x:1", nil) }`, "uses crypto/tls.Dial"},
		"a dialer of tls":                    {"internal/front/server", `"crypto/tls"`, `func planted() any { return &tls.Dialer{} }`, "uses crypto/tls.Dialer"},
		"a package that dials":               {"internal/front/server", `_ "net/smtp"`, ``, "uses package net/smtp"},
		"a reverse proxy":                    {"internal/front/server", `_ "net/http/httputil"`, ``, "uses package net/http/httputil"},
		"a socket of the system's":           {"internal/worker/supervisor", `"golang.org/x/sys/unix"`, `func planted() { _, _ = unix.Socket(1, 1, 0) }`, "internal/worker/supervisor uses golang.org/x/sys/unix.Socket"},
		"the same by another package":        {"internal/worker/supervisor", `"syscall"`, `func planted() { _ = syscall.Connect(1, nil) }`, "uses syscall.Connect"},
		"more than the jail may":             {"internal/worker/jail", `"golang.org/x/sys/unix"`, `func planted() { _ = unix.Connect(1, nil) }`, "internal/worker/jail uses golang.org/x/sys/unix.Connect"},
		"the number of the call":             {"internal/worker/supervisor", `"golang.org/x/sys/unix"`, `func planted() any { return unix.SYS_CONNECT }`, "uses golang.org/x/sys/unix.SYS_CONNECT"},
		"a socket of Windows":                {"internal/front/cli", `"golang.org/x/sys/windows"`, `func planted() { _, _ = windows.Socket(1, 1, 0) }`, "uses golang.org/x/sys/windows.Socket"},
		"what another package does not show": {"internal/front/cli", `_ "unsafe"`, "//go:linkname planted net.dial\nfunc planted()", "uses go:linkname"},
		"C":                                  {"internal/front/cli", `"C"`, ``, "uses package C"},
		"a package of others":                {"internal/front/cli", `_ "github.com/gorilla/websocket"`, ``, "internal/front/cli imports github.com/gorilla/websocket"},
		"one that others may import":         {"internal/front/cli", `_ "github.com/prometheus/client_golang/prometheus/promhttp"`, ``, "internal/front/cli imports github.com/prometheus/client_golang/prometheus/promhttp"},
		"an exporter that dials": {
			"internal/front/telemetry", `("context"; p "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp")`,
			`func planted() { _, _ = p.New(context.Background(), p.WithInsecure()) }`, "otlptracehttp.New without",
		},
		"the filter's own package": {"internal/base/egress", `"net"`, `func planted() { _, _ = net.Dial("tcp", "x:1") }`, "internal/base/egress uses net.Dial"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tag := range []string{"", "//go:build never\n\n", "//go:build windows\n\n"} {
				p := w.pkgs[module+c.in]
				src := tag + "package " + p.ImportPath[strings.LastIndex(p.ImportPath, "/")+1:] + "\n\nimport " + c.imports + "\n\n" + c.body + "\n"
				denied, bad := w.denied()
				found, _ := w.inspect(p, denied, src)
				for _, f := range found {
					if _, ok := dialAllowed()[c.in][f.what]; !ok {
						bad = append(bad, f.String())
					}
				}
				bad = append(bad, others(w, p, c.in, src, map[string]bool{})...)
				if !slices.ContainsFunc(bad, func(v string) bool { return strings.Contains(v, c.want) }) {
					t.Errorf("found %q, want one with %q", bad, c.want)
				}
			}
		})
	}
}

// Uses that do not dial are not reported.
func TestWhatOnlySoundsLikeADialIsNone(t *testing.T) {
	w := loadWorld(t)
	denied, bad := w.denied()
	found, trouble := w.inspect(w.pkgs[module+"client"], denied, `package client

import (
	"net/http"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

type planted struct {
	c   *http.Client
	all map[string]*http.Client
}

func Dial(c *http.Client) (*http.Client, error) {
	net := struct{ Dial func() }{}
	net.Dial()
	c.Timeout = 1
	_, _ = c.Get("http://service")
	return egress.Local(nil), nil
}
`)
	if len(found)+len(trouble)+len(bad) > 0 {
		t.Error(found, trouble, bad)
	}
}
