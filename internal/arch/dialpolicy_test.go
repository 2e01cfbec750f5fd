package arch

// The policy of R-T7: nobody dials, resolves or makes an HTTP client but
// through internal/egress. Packages that are only for tests are not held to it.

func dialExempt() []string { return []string{"e2e", "internal/faultdisk"} }

// dials lists what opens an outbound socket, resolves a name, or makes an HTTP
// client or something that holds one, by package. A method or field is written
// TYPE.NAME. http.Client may be named where a pointer to one is meant: it is
// made elsewhere.
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

// dialImports lists packages of the standard library that are for dialling.
func dialImports() []string {
	return []string{"log/syslog", "net/http/httptest", "net/http/httputil", "net/rpc", "net/rpc/jsonrpc", "net/smtp", "runtime/cgo", "C"}
}

// dialAllowed lists who may use what of dials, and why. What nobody uses any
// more is an error, as it is with networked.
func dialAllowed() map[string]map[string]string {
	return map[string]map[string]string{
		"internal/egress": {
			"net.Dialer":                    "the one dialer, with the hook",
			"net.DefaultResolver":           "whose answers are judged",
			"net/http.Client":               "with that dialer",
			"net/http.Client.Transport":     "with that dialer",
			"net/http.Client.CheckRedirect": "with that dialer",
			"net/http.Transport":            "with that dialer",
		},
		"internal/jail": {
			"golang.org/x/sys/unix.Socket":     "raises the loopback interface of a jail; it is never connected",
			"golang.org/x/sys/unix.SYS_SOCKET": "the number that seccomp filters",
		},
	}
}

// networked lists the packages of others that reach the network, by who may
// import them. Any other is refused: it could dial where nobody sees it.
func networked() map[string]map[string]string {
	const flags = "parses addresses given as flags"
	return map[string]map[string]string{
		"internal/anchor": {
			"github.com/minio/minio-go/v7":                 "speaks S3 through the client that it is given; a test sees that it does",
			"github.com/minio/minio-go/v7/pkg/credentials": "holds two words; of what asks for some, nothing is called",
		},
		"internal/cli":       {"github.com/spf13/cobra": flags},
		"internal/console":   {"github.com/spf13/cobra": flags},
		"internal/daemoncli": {"github.com/spf13/cobra": flags},
		"internal/deploycli": {"github.com/spf13/cobra": flags},
		"internal/mcphttp":   {"github.com/modelcontextprotocol/go-sdk/mcp": "serves; what dials of it is among dials"},
		"internal/runcli":    {"github.com/spf13/cobra": flags},
		"internal/mcpserve":  {"github.com/modelcontextprotocol/go-sdk/mcp": "serves; what dials of it is among dials"},
		"internal/oauth":     {"github.com/golang-jwt/jwt/v5": "verifies; of the network only the certificates' addresses"},
		"internal/seal":      {"github.com/secure-systems-lab/go-securesystemslib/dsse": "signs; of the network only the certificates' addresses"},
		"internal/store": {
			"modernc.org/sqlite":     "its C library knows sockets; SQLite uses none",
			"modernc.org/sqlite/lib": "its C library knows sockets; SQLite uses none",
		},
		"internal/telemetry": {
			"github.com/prometheus/client_golang/prometheus":                  "serves",
			"github.com/prometheus/client_golang/prometheus/collectors":       "reads this process",
			"github.com/prometheus/client_golang/prometheus/promhttp":         "serves",
			"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": "exports through the client that it is given: see given",
			"go.opentelemetry.io/otel/sdk/resource":                           "describes this process; detectors that ask a cloud are packages of their own",
			"go.opentelemetry.io/otel/sdk/trace":                              "hands spans to the exporter",
			"golang.org/x/net/netutil":                                        "bounds a listener",
		},
	}
}

// given lists functions of others that dial by themselves unless they are given
// a client, and the option that gives it: every call has to have it.
func given() map[string]string {
	const otlp = "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp."
	return map[string]string{otlp + "New": otlp + "WithHTTPClient", otlp + "NewClient": otlp + "WithHTTPClient"}
}
