package mcphttp

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

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
