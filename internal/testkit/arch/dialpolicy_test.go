package arch

// The policy of R-T7: only internal/base/egress dials, resolves and creates HTTP clients.
// Packages for tests are exempt.

func dialExempt() []string { return []string{"e2e", "internal/testkit/faultdisk"} }

// dials lists, by package, the objects that open an outbound socket, resolve a name,
// or create an HTTP client. A method or field is TYPE.NAME. *http.Client is allowed:
// a pointer is created elsewhere.
func dials() map[string][]string {
	sockets := []string{"Socket", "Connect", "Sendto", "SYS_SOCKET", "SYS_CONNECT", "SYS_SENDTO", "SYS_SENDMSG"}
	return map[string][]string{
		"net": {
			"Dial", "DialTimeout", "DialIP", "DialTCP", "DialUDP", "DialUnix", "Dialer", "Resolver", "DefaultResolver",
			"LookupAddr", "LookupCNAME", "LookupHost", "LookupIP", "LookupMX", "LookupNS", "LookupSRV", "LookupTXT", "ResolveIPAddr", "ResolveTCPAddr", "ResolveUDPAddr",
			"ListenPacket", "ListenUDP", "ListenMulticastUDP", "ListenIP", "ListenUnixgram", "ListenConfig.ListenPacket", "FileConn", "FilePacketConn",
		},
		"net/http": {
			"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport", "Transport", "ProxyFromEnvironment", "ProxyURL",
			"Client", "Client.Transport", "Client.CheckRedirect",
		},
		"net/textproto":         {"Dial"},
		"crypto/tls":            {"Dial", "DialWithDialer", "Dialer"},
		"syscall":               sockets,
		"golang.org/x/sys/unix": sockets,
		"github.com/modelcontextprotocol/go-sdk/mcp": {"StreamableClientTransport", "SSEClientTransport", "CommandTransport"},
	}
}

// dialImports lists packages of the standard library that dial.
func dialImports() []string {
	return []string{"log/syslog", "net/http/httptest", "net/http/httputil", "net/rpc", "net/rpc/jsonrpc", "net/smtp", "runtime/cgo", "C"}
}

// dialAllowed lists the exceptions from dials by package, with reasons. An unused
// exception is an error, here and in networked.
func dialAllowed() map[string]map[string]string {
	const numbered = "a number in the table of the seccomp filter"
	return map[string]map[string]string{
		"internal/base/egress": {
			"net.Dialer":                    "the one dialer, with the hook",
			"net.DefaultResolver":           "whose answers are judged",
			"net/http.Client":               "with that dialer",
			"net/http.Client.Transport":     "with that dialer",
			"net/http.Client.CheckRedirect": "with that dialer",
			"net/http.Transport":            "with that dialer",
		},
		"cmd/bailiwick-tool": {
			"net/http.Transport": "runs in jails, which have no network but their broker",
		},
		"internal/worker/jail": {
			"golang.org/x/sys/unix.Socket":      "raises the loopback interface of a jail; it is never connected",
			"golang.org/x/sys/unix.SYS_SOCKET":  numbered,
			"golang.org/x/sys/unix.SYS_CONNECT": numbered,
			"golang.org/x/sys/unix.SYS_SENDTO":  numbered,
			"golang.org/x/sys/unix.SYS_SENDMSG": numbered,
		},
		"internal/base/httpguard": {
			"golang.org/x/sys/unix.Socket": "asks the kernel by netlink which account holds a connection",
			"golang.org/x/sys/unix.Sendto": "likewise",
		},
	}
}

// networked lists the third-party packages that reach the network, by the package
// that may import them, with reasons. Any other is refused.
func networked() map[string]map[string]string {
	const oidcClient = "uses the HTTP client that it gets in the context of each call"
	const flags = "parses addresses given as flags"
	return map[string]map[string]string{
		"internal/state/anchor": {
			"github.com/minio/minio-go/v7":                 "uses the HTTP client that it gets, as a test checks",
			"github.com/minio/minio-go/v7/pkg/credentials": "holds static credentials; its providers are not used",
		},
		"cmd/bailiwickd": {
			"github.com/coreos/go-systemd/v22/activation": "makes files of the sockets that systemd passes",
			"github.com/coreos/go-systemd/v22/daemon":     "sends datagrams to the socket of systemd that NOTIFY_SOCKET names",
		},
		"internal/front/cli":       {"github.com/spf13/cobra": flags},
		"internal/front/console":   {"github.com/spf13/cobra": flags, "github.com/spf13/pflag": flags},
		"internal/front/daemoncli": {"github.com/spf13/cobra": flags},
		"internal/front/deploycli": {"github.com/spf13/cobra": flags},
		"internal/front/mcphttp":   {"github.com/modelcontextprotocol/go-sdk/mcp": "serves; its dialing types are in dials"},
		"internal/front/runverbs":  {"github.com/spf13/cobra": flags},
		"internal/front/mcpserve":  {"github.com/modelcontextprotocol/go-sdk/mcp": "serves; its dialing types are in dials"},
		"internal/front/webpage": {
			"github.com/coreos/go-oidc/v3/oidc": "uses the HTTP client that it gets in the context of each call",
			"golang.org/x/oauth2":               "likewise",
		},
		"internal/front/signin":  {"github.com/coreos/go-oidc/v3/oidc": oidcClient, "golang.org/x/oauth2": oidcClient, "github.com/zalando/go-keyring": "asks the keyring of the desktop over its session bus"},
		"internal/state/login":   {"github.com/coreos/go-oidc/v3/oidc": oidcClient},
		"internal/state/oauth":   {"github.com/golang-jwt/jwt/v5": "verifies; uses only network types of certificates"},
		"internal/document/seal": {"github.com/secure-systems-lab/go-securesystemslib/dsse": "signs; uses only network types of certificates"},
		"internal/state/store": {
			"modernc.org/sqlite":     "its C library has sockets; SQLite uses none",
			"modernc.org/sqlite/lib": "its C library has sockets; SQLite uses none",
		},
		"internal/front/telemetry": {
			"github.com/prometheus/client_golang/prometheus":                  "serves",
			"github.com/prometheus/client_golang/prometheus/collectors":       "reads this process",
			"github.com/prometheus/client_golang/prometheus/promhttp":         "serves",
			"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": "exports through the client that it gets: see given",
			"go.opentelemetry.io/otel/sdk/resource":                           "describes this process; detectors that ask a cloud are packages of their own",
			"go.opentelemetry.io/otel/sdk/trace":                              "hands spans to the exporter",
			"golang.org/x/net/netutil":                                        "bounds a listener",
		},
	}
}

// given lists third-party functions that dial unless they get an HTTP client, with
// the option that every call must have.
func given() map[string]string {
	const otlp = "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp."
	return map[string]string{otlp + "New": otlp + "WithHTTPClient", otlp + "NewClient": otlp + "WithHTTPClient"}
}
