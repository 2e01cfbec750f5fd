package broker

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// ProxyVariables lead the programs of a jail to the broker at a port of 127.0.0.1.
func ProxyVariables(port int) map[string]string {
	all := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	proxy := "http://127.0.0.1:" + strconv.Itoa(port)
	for name, value := range map[string]string{"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": "localhost,127.0.0.1,::1"} {
		all[name], all[strings.ToLower(name)] = value, value
	}
	return all
}

// BundleVariables name a file of certificates for the programs that jails have.
func BundleVariables() []string {
	return []string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO",
		"AWS_CA_BUNDLE", "DENO_CERT", "NIX_SSL_CERT_FILE",
	}
}

// Bundle returns the CA bundle that a program needs if it differs from the jail's: the
// broker's CA own plus the file given, or the system's bundle. It is nil without either.
func Bundle(given string, own []byte) []byte {
	if own == nil && given == "" {
		return nil
	}
	for _, path := range []string{
		given, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	} {
		const most = 8 << 20
		if b, err := blob.ReadBounded(path, most); err == nil && path != "" {
			return slices.Concat(bytes.TrimRight(b, "\n"), []byte("\n"), own)
		}
	}
	return own
}
