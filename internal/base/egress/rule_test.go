package egress

import (
	"strings"
	"testing"
)

// proves R-S3
func TestRulesHaveOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"proxy.golang.org":              `add :443 for https, as in proxy.golang.org:443`,
		"*.example.com":                 `add :443 for https, as in *.example.com:443`,
		"https://proxy.golang.org":      `without a scheme or a path`,
		"proxy.golang.org:443/x":        `without a scheme or a path`,
		"Proxy.golang.org:443":          `in lower case`,
		"proxy.golang.org:0":            `port "0"`,
		"proxy.golang.org:0443":         `port "0443"`,
		"proxy.golang.org:https":        `port "https"`,
		"proxy.golang.org.:443":         `trailing dot`,
		"*:443":                         `wildcard`,
		"*.*.com:443":                   `wildcard`,
		"a.*.com:443":                   `wildcard`,
		"a*.example.com:443":            `wildcard`,
		"*.com:443":                     `not fully qualified`,
		"localhost:443":                 `not fully qualified`,
		"127.0.0.1:443":                 `127.0.0.1`,
		"169.254.169.254:80":            `169.254.169.254`,
		"2852039166:80":                 `not fully qualified`,
		"0x7f.1:80":                     `non-canonical`,
		"[::ffff:127.0.0.1]:443":        `127.0.0.1`,
		"[fd00::1]:443":                 `fd00::1`,
		"*.8.8.8.8:443":                 `no names below`,
		"":                              `want HOST:PORT`,
		"user@example.com:443":          `characters other than`,
		"example.com:443,other.com:443": `want HOST:PORT`,
		"2001:4860:4860::8888":          `as in [2001:4860:4860::8888]:443`,
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v, want %s", text, err, want)
		}
	}
}

// proves R-S3
func TestARuleAllowsItsHostAndPortOnly(t *testing.T) {
	tests := []struct {
		rule, host string
		port       uint16
		want       bool
	}{
		{"example.com:443", "example.com", 443, true},
		{"example.com:443", "EXAMPLE.com", 443, true},
		{"example.com:443", "example.com", 80, false},
		{"example.com:443", "a.example.com", 443, false},
		{"example.com:443", "notexample.com", 443, false},
		{"*.example.com:443", "a.example.com", 443, true},
		{"*.example.com:443", "b.a.example.com", 443, true},
		{"*.example.com:443", "example.com", 443, false},
		{"*.example.com:443", "notexample.com", 443, false},
		{"*.example.com:443", "a.example.com", 8443, false},
		{"*.example.com:443", "a.example.com.evil.net", 443, false},
		{"8.8.8.8:53", "8.8.8.8", 53, true},
		{"[2001:4860:4860::8888]:443", "2001:4860:4860::8888", 443, true},
	}
	for _, tt := range tests {
		r, err := ParseRule(tt.rule)
		if err != nil || r.Matches(tt.host, tt.port) != tt.want {
			t.Errorf("%s, %s port %d: %v, err = %v", tt.rule, tt.host, tt.port, !tt.want, err)
		}
	}
}

func TestAnEndpointIsPublicOrAnAddressOfLoopback(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.anthropic.com":      "",
		"https://api.openai.com/v1":      "",
		"https://gateway.corp.net:8443/": "",
		"http://127.0.0.1:11434":         "",
		"http://127.0.0.1:11434/v1":      "",
		"http://[::1]:8080":              "",
		"api.anthropic.com":              "want a URL",
		"":                               "want a URL",
		"https://":                       "want a URL",
		"ftp://example.com":              `scheme "ftp"`,
		"http://localhost:11434":         "by address and port",
		"http://127.0.0.1":               "by address and port",
		"http://10.0.0.1:80":             "others need https",
		"http://example.com:80":          "others need https",
		"http://0.0.0.0:80":              "others need https",
		"https://10.0.0.1":               "10.0.0.1",
		"https://127.0.0.1:8443":         "127.0.0.1",
		"https://localhost":              "not fully qualified",
		"https://*.example.com":          "one host",
		"https://a:b@example.com":        "user name",
		"https://example.com?key=x":      "query",
		"https://example.com?":           "query",
		"https://example.com#x":          "fragment",
		"https://example.com#":           "fragment",
		"https://example.com/../x":       "not clean",
		"https://example.com/%2e%2e/x":   "not clean",
		"https://example.com//x":         "not clean",
		"https://example.com:0":          "port",
		"https://example.com:":           "port",
	} {
		_, local, err := ParseEndpoint(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: err = %v, want %q", text, err, want)
		}
		if err == nil && local.IsValid() != strings.HasPrefix(text, "http:") {
			t.Errorf("%q: local %v", text, local)
		}
	}
}
