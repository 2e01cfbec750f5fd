package oauth

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-dev/bailiwick/api"
)

const goodHeader = `{"alg":"ES256","kid":"ec","typ":"at+jwt"}`

func (i *issuer) json(claims jwt.MapClaims) string {
	b, err := json.Marshal(claims)
	if err != nil {
		i.t.Fatal(err)
	}
	return string(b)
}

// The positive controls of the refusals below.
//
// proves R-T4
func TestAValidTokenIsAccepted(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	now := i.time()
	for name, token := range map[string]string{
		"ES256":                        i.mint("ec", i.claims(), nil),
		"RS256":                        i.mint("rsa", i.claims(), nil),
		"EdDSA":                        i.mint("ed", i.claims(), nil),
		"by hand":                      i.raw(goodHeader, i.json(i.claims())),
		"typ in full":                  i.mint("ec", i.claims(), map[string]any{"typ": "application/at+jwt"}),
		"typ of any JWT":               i.mint("ec", i.claims(), map[string]any{"typ": "JWT"}),
		"no typ":                       i.mint("ec", i.claims(), map[string]any{"typ": nil}),
		"the audience in a list":       i.mint("ec", i.with(jwt.MapClaims{"aud": []string{resource}}), nil),
		"that scope alone":             i.mint("ec", i.with(jwt.MapClaims{"scope": "bailiwick"}), nil),
		"no nbf and iat":               i.mint("ec", i.with(jwt.MapClaims{"nbf": nil, "iat": nil}), nil),
		"a clock that is ahead":        i.mint("ec", i.with(jwt.MapClaims{"nbf": now.Add(20 * time.Second).Unix(), "iat": now.Add(20 * time.Second).Unix()}), nil),
		"ended just now":               i.mint("ec", i.with(jwt.MapClaims{"exp": now.Add(-20 * time.Second).Unix()}), nil),
		"a fraction of a second":       i.mint("ec", i.with(jwt.MapClaims{"exp": float64(now.Unix()) + 60.5}), nil),
		"the longest time":             i.mint("ec", i.with(jwt.MapClaims{"exp": now.Add(maxTime).Unix()}), nil),
		"other claims, also like ours": i.mint("ec", i.with(jwt.MapClaims{"SUB": "root", "Iss": "https://evil.example", "roles": []string{"admin"}, "act": map[string]any{"sub": "x"}}), nil),
	} {
		got, err := v.Verify(t.Context(), token)
		if err != nil || got.Subject != subject || got.Issuer != issuerURL {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// proves R-T4
func TestAllOtherTokensAreRefused(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	now := i.time()
	der, err := x509.MarshalPKIXPublicKey(i.keys["rsa"].Public())
	if err != nil {
		t.Fatal(err)
	}
	set, err := i.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stranger := newEC(t)
	good := i.mint("ec", i.claims(), nil)
	parts := strings.Split(good, ".")
	claim := func(name string, value any) string { return i.mint("ec", i.with(jwt.MapClaims{name: value}), nil) }
	head := func(name string, value any) string { return i.mint("ec", i.claims(), map[string]any{name: value}) }
	other := i.json(i.with(jwt.MapClaims{"sub": "root"}))
	cut := i.json(i.claims())

	for name, token := range map[string]string{
		// unsigned, or signed by another key
		"none":                            i.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "ec", i.claims(), nil),
		"none in other letters":           enc([]byte(`{"alg":"nOnE","kid":"ec"}`)) + "." + parts[1] + ".",
		"no algorithm":                    i.raw(`{"kid":"ec"}`, cut),
		"HS256 by the public key":         i.sign(jwt.SigningMethodHS256, der, "rsa", i.claims(), nil),
		"HS256 by the key set":            i.sign(jwt.SigningMethodHS256, set, "ec", i.claims(), nil),
		"HS512 by nothing":                i.sign(jwt.SigningMethodHS512, []byte{}, "ec", i.claims(), nil),
		"PS256 by the RSA key":            i.sign(jwt.SigningMethodPS256, i.keys["rsa"], "rsa", i.claims(), nil),
		"RS512 by the RSA key":            i.sign(jwt.SigningMethodRS512, i.keys["rsa"], "rsa", i.claims(), nil),
		"a stranger's key":                i.sign(jwt.SigningMethodES256, stranger, "ec", i.claims(), nil),
		"a stranger's key, brought along": i.sign(jwt.SigningMethodES256, stranger, "ec", i.claims(), map[string]any{"jwk": public(t, "ec", stranger)}),
		"a stranger's keys, elsewhere":    i.sign(jwt.SigningMethodES256, stranger, "mine", i.claims(), map[string]any{"jku": "https://evil.example/jwks", "x5u": "https://evil.example"}),
		"another of its keys":             i.sign(jwt.SigningMethodES256, i.keys["ec"], "rsa", i.claims(), nil),
		"another of its keys, renamed":    i.sign(jwt.SigningMethodRS256, i.keys["rsa"], "ec", i.claims(), nil),
		"no signature":                    parts[0] + "." + parts[1] + ".",
		"half a signature":                parts[0] + "." + parts[1] + "." + parts[2][:43],
		"another's claims":                parts[0] + "." + enc([]byte(other)) + "." + parts[2],
		"another header":                  enc([]byte(`{"alg":"ES256","kid":"ec"}`)) + "." + parts[1] + "." + parts[2],

		// unknown keys
		"an unknown kid": head("kid", "nobody"), "no kid": head("kid", nil), "an empty kid": head("kid", ""), "a kid that is a number": head("kid", 1),
		"a kid that is a path": head("kid", "../../dev/null"), "a huge kid": head("kid", strings.Repeat("a", 300)),

		// for another service, from another issuer, or at another time
		"no aud": claim("aud", nil), "another aud": claim("aud", "https://other.example/mcp"), "an aud with more behind it": claim("aud", resource+"/"), "an aud with less": claim("aud", "https://mcp.example"),
		"an aud in other letters": claim("aud", "https://MCP.example/mcp"), "two audiences": claim("aud", []string{resource, "https://other.example"}), "no audience": claim("aud", []string{}), "an aud of numbers": claim("aud", []any{resource, 1}), "an aud twice": claim("aud", []string{resource, resource}),
		"no iss": claim("iss", nil), "another iss": claim("iss", "https://evil.example/realm"), "an iss with more behind it": claim("iss", issuerURL+"/"), "a list of iss": claim("iss", []string{issuerURL}),
		"no exp": claim("exp", nil), "expired": claim("exp", now.Add(-31*time.Second).Unix()), "expired long ago": claim("exp", 1), "an exp of text": claim("exp", "4102444800"), "an exp beyond all": claim("exp", 1e300), "an exp far away": claim("exp", now.Add(maxTime+time.Minute).Unix()), "an exp before all": claim("exp", -1),
		"not yet": claim("nbf", now.Add(time.Minute).Unix()), "not ever": claim("nbf", 1e300), "an nbf of text": claim("nbf", "x"),
		"of the future": claim("iat", now.Add(time.Minute).Unix()), "of no time": claim("iat", 1e300),
		"no sub": claim("sub", nil), "an empty sub": claim("sub", ""), "a sub that is a number": claim("sub", 7), "a huge sub": claim("sub", strings.Repeat("a", 256)),
		"bound to a key": claim("cnf", map[string]any{"jkt": "x"}),

		// another type of token
		"a crit": head("crit", []string{"exp"}), "an empty crit": head("crit", []string{}), "a logout token": head("typ", "logout+jwt"), "a proof": head("typ", "dpop+jwt"), "a typ that is a number": head("typ", 1), "an empty typ": head("typ", ""),

		// ambiguous encodings
		"sub twice":              i.raw(goodHeader, strings.Replace(cut, `"sub"`, `"sub":"root","sub"`, 1)),
		"aud twice":              i.raw(goodHeader, strings.Replace(cut, `"aud"`, `"aud":"https://other.example","aud"`, 1)),
		"sub twice, once hidden": i.raw(goodHeader, strings.Replace(cut, `"sub"`, `"s\u0075b":"root","sub"`, 1)),
		"alg twice":              i.raw(`{"alg":"none","alg":"ES256","kid":"ec"}`, cut),
		"kid twice":              i.raw(`{"alg":"ES256","kid":"x","kid":"ec"}`, cut),
		"two values":             i.raw(goodHeader, cut+"{}"),
		"no UTF-8":               i.raw(goodHeader, strings.Replace(cut, subject, "a\xff", 1)),
		"a lone surrogate":       i.raw(goodHeader, strings.Replace(cut, subject, `\ud800`, 1)),
		"a list":                 i.raw(goodHeader, `[`+cut+`]`),
		"nothing":                i.raw(goodHeader, `null`),
		"text":                   i.raw(goodHeader, `"`+good+`"`),
		"deep claims":            i.raw(goodHeader, strings.Replace(cut, `{`, `{"x":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`,`, 1)),
		"space around":           i.raw(goodHeader, " "+cut),

		// not tokens
		"empty": "", "a dot": ".", "dots": "..", "two parts": parts[0] + "." + parts[1], "four parts": good + ".", "five parts": good + "..",
		"padded": parts[0] + "." + parts[1] + "==." + parts[2], "a line break": good + "\n", "a line break within": parts[0] + "." + parts[1][:9] + "\r\n" + parts[1][9:] + "." + parts[2], "a space": " " + good, "one of ours": api.TokenText([32]byte{}),
		"huge": i.mint("ec", i.with(jwt.MapClaims{"x": strings.Repeat("a", maxToken)}), nil), "a mebibyte of dots": strings.Repeat(".", 1<<20), "huge and nothing": strings.Repeat("a", 1<<20),
	} {
		got, err := v.Verify(t.Context(), token)
		if api.CodeOf(err) != api.CodeUnauthenticated || err == nil || got.Subject != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if sig := token[strings.LastIndex(token, ".")+1:]; len(sig) > 20 && strings.Contains(err.Error(), sig) || len(err.Error()) > 2000 {
			t.Errorf("%s: the error holds the token: %.200s", name, err)
		}
		i.pass(0)
	}
	if _, err := v.Verify(t.Context(), good); err != nil {
		t.Errorf("control: %v", err)
	}
}

// proves R-T4
func TestATokenForAnotherScopeIsDenied(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	for name, scope := range map[string]any{
		"none": nil, "empty": "", "others": "openid profile", "a part of it": "bailiwic", "more than it": "bailiwick:admin bailiwicks", "in other letters": "Bailiwick", "a list": []string{"bailiwick"}, "with another space": "openid\tbailiwick",
	} {
		got, err := v.Verify(t.Context(), i.mint("ec", i.with(jwt.MapClaims{"scope": scope}), nil))
		if api.CodeOf(err) != api.CodeDenied || err == nil || !strings.Contains(err.Error(), "insufficient_scope") || got.Subject != subject {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// An unauthenticated caller learns nothing about scopes.
	if _, err := v.Verify(t.Context(), i.mint("ec", i.with(jwt.MapClaims{"scope": nil, "aud": "x"}), nil)); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Error(err)
	}
}

func TestIssuerAndAudienceMustBeUnambiguousURLs(t *testing.T) {
	for _, s := range []string{"", "idp.example", "http://idp.example", "https://", "https://u:p@idp.example", "https://idp.example?x", "https://idp.example/?", "https://idp.example#x", "HTTPS://idp.example", "ftp://idp.example", "https://idp.example/ a", "https://" + strings.Repeat("a", 500)} {
		if (Config{Issuer: s, Audience: resource}).Check() == nil || (Config{Issuer: issuerURL, Audience: s}).Check() == nil {
			t.Errorf("%q is taken", s)
		}
		if _, err := New(Config{Issuer: s, Audience: resource}); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	for _, s := range []string{"https://idp.example", "https://idp.example/", "https://idp.example:8443/a/b", "http://127.0.0.1:8080/mcp", "http://localhost/mcp", "http://[::1]:1/mcp"} {
		if err := (Config{Issuer: issuerURL, Audience: s}).Check(); err != nil {
			t.Error(err)
		}
		if err := (Config{Issuer: s, Audience: resource}).Check(); (err == nil) != strings.HasPrefix(s, "https://") {
			t.Errorf("issuer %s: %v", s, err)
		}
	}
}

// FuzzVerify: every accepted token was signed by one of the keys.
func FuzzVerify(f *testing.F) {
	i := newIssuer(f)
	v := i.verifier()
	good := i.mint("ec", i.claims(), nil)
	for _, s := range []string{good, i.mint("rsa", i.claims(), nil), i.mint("ed", i.claims(), nil), "", "..", "e30.e30.", i.raw("{}", "{}"), i.raw(`{"alg":"none"}`, "{}")} {
		f.Add(s)
	}
	genuine := func(s string) bool {
		token, err := jwt.Parse(s, func(t *jwt.Token) (any, error) {
			k, ok := i.keys[t.Header["kid"].(string)]
			if !ok {
				return nil, errors.New("no such key")
			}
			return k.Public(), nil
		}, jwt.WithValidMethods([]string{"ES256", "RS256", "EdDSA"}), jwt.WithTimeFunc(i.time))
		return err == nil && token.Valid
	}
	if !genuine(good) {
		f.Fatal("control: a good token is refused")
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := v.Verify(t.Context(), s)
		if err == nil && !genuine(s) {
			t.Fatalf("%q is taken as one of %s", s, got.Subject)
		}
		if err != nil && api.CodeOf(err) != api.CodeUnauthenticated && api.CodeOf(err) != api.CodeDenied {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
