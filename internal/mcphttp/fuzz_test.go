package mcphttp

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// Only the spellings of the configured hosts are accepted.
//
// proves R-T3
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"127.0.0.1:7717", "mcp.example", "MCP.example:1", "[2001:db8::1]:9", "mcp.example:", "2001:db8::1", "mcp.example@evil", "mcp.example:1:2", "[mcp.example]", "[mcp.example]:1", "[mcp.example", "evil.example"} {
		f.Add(s)
	}
	a, err := parseAddress("127.0.0.1:7717")
	if err != nil {
		f.Fatal(err)
	}
	n, err := newHostList([]string{"mcp.example", "[2001:db8::1]"})
	if err != nil {
		f.Fatal(err)
	}
	n.add(a, false)
	ours := regexp.MustCompile(`(?i)^((127\.0\.0\.1|localhost|\[::1\]):7717|(mcp\.example|\[2001:db8::1\])(:[0-9]+)?)$`)
	f.Fuzz(func(t *testing.T, host string) {
		if n.allows(host) && !ours.MatchString(host) {
			t.Errorf("%q is accepted", host)
		}
	})
}

// A token is all of the text after the scheme, in the form of RFC 6750.
func FuzzBearer(f *testing.F) {
	for _, s := range []string{"Bearer " + goodToken(1), "bearer a.b-c_d~+/=", "Bearer  x", "Bearer x y", "Basic x", "Bearer", "", "Bearer \u2028"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^[A-Za-z0-9._~+/=-]*$`)
	f.Fuzz(func(t *testing.T, header string) {
		token := bearer(&http.Request{Header: http.Header{"Authorization": {header}}})
		if !form.MatchString(token) || len(token) > maxToken || token != "" && (len(header) != len("bearer ")+len(token) || !strings.EqualFold(header[:7], "bearer ") || !strings.HasSuffix(header, token)) {
			t.Errorf("%q gives %q", header, token)
		}
	})
}
