package seal_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

func encode(t *testing.T, a seal.Assertion) []byte {
	t.Helper()
	raw, err := canon.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Each way to lie is refused for its own reason, and each honest assertion is accepted:
// the oracle agrees, in e2e.
// proves R-B9
func TestAnAssertionIsVerified(t *testing.T) {
	message := []byte("message")
	for _, ed := range []bool{false, true} {
		for _, c := range softkey.Cases() {
			if c.ES256 && ed {
				continue
			}
			m, err := c.Make(ed, message)
			if err != nil {
				t.Fatal(err)
			}
			err = m.Key.Verify(message, encode(t, m.Assertion))
			switch {
			case c.Want == "" && err != nil:
				t.Errorf("%s: %v", c.Name, err)
			case c.Want != "" && (err == nil || !strings.Contains(err.Error(), c.Want)):
				t.Errorf("%s: %v, want %q", c.Name, err, c.Want)
			}
		}
	}
}

// proves R-B9
func TestEveryFlippedBitOfAnAssertionIsRefused(t *testing.T) {
	for _, ed := range []bool{false, true} {
		message := []byte("message")
		m, err := softkey.Cases()[0].Make(ed, message)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Key.Verify(message, encode(t, m.Assertion)); err != nil {
			t.Fatalf("the control: %v", err)
		}
		flips := 0
		for name, part := range map[string]func(*seal.Assertion) *[]byte{
			"authenticator data": func(a *seal.Assertion) *[]byte { return &a.AuthenticatorData },
			"client data":        func(a *seal.Assertion) *[]byte { return &a.ClientDataJSON },
			"credential":         func(a *seal.Assertion) *[]byte { return &a.Credential },
			"signature":          func(a *seal.Assertion) *[]byte { return &a.Signature },
		} {
			for i := range 8 * len(*part(&m.Assertion)) {
				a := m.Assertion
				bits := bytes.Clone(*part(&a))
				bits[i/8] ^= 1 << (i % 8)
				*part(&a) = bits
				if m.Key.Verify(message, encode(t, a)) == nil {
					t.Errorf("ed25519 %v: bit %d of the %s", ed, i, name)
				}
				flips++
			}
		}
		for i := range 8 * len(message) {
			other := bytes.Clone(message)
			other[i/8] ^= 1 << (i % 8)
			if m.Key.Verify(other, encode(t, m.Assertion)) == nil {
				t.Errorf("bit %d of the message", i)
			}
		}
		for i := range 8 * len(m.Key.Public) {
			k := m.Key
			k.Public = bytes.Clone(k.Public)
			k.Public[i/8] ^= 1 << (i % 8)
			if k.Verify(message, encode(t, m.Assertion)) == nil {
				t.Errorf("bit %d of the public key", i)
			}
		}
		if flips < 1500 {
			t.Errorf("only %d flips", flips)
		}
	}
}

// The encoding of an assertion is the signature in an envelope: it has one spelling.
func TestAnAssertionHasOneEncoding(t *testing.T) {
	m, err := softkey.Cases()[0].Make(false, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	raw := encode(t, m.Assertion)
	for name, other := range map[string][]byte{
		"white space": append([]byte(" "), raw...), "a further member": bytes.Replace(raw, []byte(`{`), []byte(`{"a":1,`), 1), "no text": nil,
		"a missing member": bytes.Replace(raw, []byte(`"signature"`), []byte(`"sig"`), 1), "too much": append(raw, make([]byte, 9<<10)...),
	} {
		if m.Key.Verify([]byte("m"), other) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// Authenticators return either S. What is stored has the low one.
func TestTheHighSIsReplacedAtIntake(t *testing.T) {
	for _, c := range softkey.Cases() {
		if !c.ES256 {
			continue
		}
		m, err := c.Make(false, []byte("m"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := m.Assertion.Normal(m.Key)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Key.Verify([]byte("m"), raw); err != nil {
			t.Error(err)
		}
		if m.Key.Verify([]byte("m"), encode(t, m.Assertion)) == nil {
			t.Error("the control: the high S is accepted")
		}
	}
}

// k of n signatures may be mixed. proves R-B5
func TestPasskeysAndFileKeysCountTogether(t *testing.T) {
	payload := []byte(`{"v":1}`)
	file, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	root := seal.TrustRoot{V: 1, Keys: []seal.Key{seal.KeyOf(file, "file")}, Threshold: 3}
	signatures := map[seal.KeyID][]byte{}
	for _, ed := range []bool{false, true} {
		a, err := softkey.New(ed)
		if err != nil {
			t.Fatal(err)
		}
		k, err := a.Key("touch")
		if err != nil {
			t.Fatal(err)
		}
		assertion, err := a.Assert(seal.Challenge(seal.Operator, payload))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := assertion.Normal(k)
		if err != nil {
			t.Fatal(err)
		}
		root.Keys, signatures[k.ID] = append(root.Keys, k), raw
	}
	two, err := seal.Assemble(seal.Operator, payload, signatures)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := seal.Verify(two, seal.Operator, root); !errors.Is(err, seal.ErrThreshold) {
		t.Errorf("two of three: %v", err)
	}
	signed, err := seal.Sign(context.Background(), seal.Operator, payload, file)
	if err != nil {
		t.Fatal(err)
	}
	var env struct{ Signatures []struct{ Sig []byte } }
	if err := json.Unmarshal(signed, &env); err != nil {
		t.Fatal(err)
	}
	signatures[file.KeyID()] = env.Signatures[0].Sig
	all, err := seal.Assemble(seal.Operator, payload, signatures)
	if err != nil {
		t.Fatal(err)
	}
	_, ids, err := seal.Verify(all, seal.Operator, root)
	if err != nil || len(ids) != 3 {
		t.Errorf("%v, %v", ids, err)
	}
	e, err := seal.Open(all, seal.Operator)
	if err != nil || len(e.SignCounts(ids)) != 2 {
		t.Errorf("%v, %v", e.SignCounts(ids), err)
	}
	// Another payload type: what a revision needs, no passkey signs.
	other, err := seal.Assemble(seal.Revision, payload, signatures)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := seal.Verify(other, seal.Revision, root); err == nil || !strings.Contains(err.Error(), "operator records only") {
		t.Errorf("a passkey signs a revision: %v", err)
	}
}

// proves R-B9
func TestACounterThatDoesNotRiseIsAnAlarm(t *testing.T) {
	id := seal.KeyID("passkey:" + strings.Repeat("0", 32))
	for _, c := range []struct {
		last, next uint32
		ok         bool
	}{{0, 0, true}, {0, 1, true}, {1, 2, true}, {2, 2, false}, {2, 1, false}, {2, 0, false}} {
		counter := seal.SignCounter{}
		counter.Add(map[seal.KeyID]uint32{id: c.last})
		if err := counter.Check(map[seal.KeyID]uint32{id: c.next}); (err == nil) != c.ok || err != nil && !errors.Is(err, seal.ErrCloned) {
			t.Errorf("%d after %d: %v", c.next, c.last, err)
		}
	}
}

// A passkey whose key would accept the assertions of other pages is refused.
func TestAPasskeyIsForOnePage(t *testing.T) {
	a, err := softkey.New(false)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := a.SPKI()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*seal.Credential)
		want   string
	}{
		"honest": {func(*seal.Credential) {}, ""},
		"a public page": {func(c *seal.Credential) {
			c.RPID, c.Origins = "sign.example", []string{"https://sign.example", "https://a.sign.example:444"}
		}, ""},
		"localhost":           {func(c *seal.Credential) { c.RPID, c.Origins = "localhost", []string{"http://localhost:1"} }, "at least two labels"},
		"an address":          {func(c *seal.Credential) { c.RPID, c.Origins = "127.0.0.1", []string{"http://127.0.0.1:1"} }, "not an address"},
		"a name in capitals":  {func(c *seal.Credential) { c.RPID = "Sign.bailiwick.localhost" }, "at least two labels"},
		"no encryption":       {func(c *seal.Credential) { c.RPID, c.Origins = "sign.example", []string{"http://sign.example"} }, "want https"},
		"another page":        {func(c *seal.Credential) { c.Origins = []string{"https://evil.example"} }, "not within"},
		"a page that ends so": {func(c *seal.Credential) { c.Origins = []string{"http://xsign.bailiwick.localhost"} }, "not within"},
		"a path":              {func(c *seal.Credential) { c.Origins = []string{softkey.Origin + "/"} }, "want SCHEME"},
		"the implied port":    {func(c *seal.Credential) { c.Origins = []string{"http://sign.bailiwick.localhost:80"} }, "leaves out the port"},
		"no page":             {func(c *seal.Credential) { c.Origins = nil }, "0 origins"},
		"a page twice":        {func(c *seal.Credential) { c.Origins = []string{softkey.Origin, softkey.Origin} }, "distinct"},
		"a short id":          {func(c *seal.Credential) { c.ID = c.ID[:15] }, "credential id of 15 bytes"},
	} {
		credential := a.Credential()
		c.change(&credential)
		_, err := seal.NewPasskey("ann", spki, credential)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := x509.MarshalPKIXPublicKey(other.Public())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seal.NewPasskey("ann", wrong, a.Credential()); err == nil || !strings.Contains(err.Error(), "ES256") {
		t.Errorf("P-384: %v", err)
	}
}

// The id of a passkey covers all that decides which assertions it accepts, and one
// credential counts once.
func TestAPasskeyIsNamedByAllOfIt(t *testing.T) {
	a, err := softkey.New(false)
	if err != nil {
		t.Fatal(err)
	}
	k, err := a.Key("ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Validate(); err != nil {
		t.Fatalf("the control: %v", err)
	}
	for name, change := range map[string]func(*seal.Credential){
		"origins": func(c *seal.Credential) { c.Origins = []string{"http://sign.bailiwick.localhost:1"} },
		"rpId":    func(c *seal.Credential) { c.RPID = "bailiwick.localhost" },
		"uv":      func(c *seal.Credential) { c.UV = false },
		"synced":  func(c *seal.Credential) { c.Synced = true },
		"id":      func(c *seal.Credential) { c.ID = bytes.Repeat([]byte{1}, 32) },
	} {
		c, changed := *k.Passkey, k
		change(&c)
		changed.Passkey = &c
		if err := changed.Validate(); err == nil {
			t.Errorf("another %s under the same id", name)
		}
	}
	plain := k
	if plain.Passkey = nil; plain.Validate() == nil {
		t.Error("without its credential")
	}
	spki, err := a.SPKI()
	if err != nil {
		t.Fatal(err)
	}
	twin := a.Credential()
	twin.Origins = []string{"http://sign.bailiwick.localhost:1"}
	second, err := seal.NewPasskey("bob", spki, twin)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal.RootOf(k, second).Validate(); err == nil || !strings.Contains(err.Error(), "same public key") {
		t.Errorf("one credential twice: %v", err)
	}
}

func TestAPasskeyRoundTripsThroughOperatorsJSON(t *testing.T) {
	a, err := softkey.New(true)
	if err != nil {
		t.Fatal(err)
	}
	k, err := a.Key("ann")
	if err != nil {
		t.Fatal(err)
	}
	b, err := seal.RootOf(k).Encode()
	if err != nil {
		t.Fatal(err)
	}
	root, err := seal.ParseTrustRoot(b)
	if err != nil {
		t.Fatal(err)
	}
	payload := []byte("{}")
	envelope, err := a.Sign(seal.Operator, payload)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := seal.Verify(envelope, seal.Operator, root); err != nil {
		t.Error(err)
	}
	if _, err := k.PEM(); err == nil {
		t.Error("a passkey is written as PEM, for tools that do not verify assertions")
	}
}

func FuzzParseAssertion(f *testing.F) {
	m, err := softkey.Cases()[0].Make(false, []byte("m"))
	if err != nil {
		f.Fatal(err)
	}
	raw, err := canon.Marshal(m.Assertion)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, sha256.New().Sum(nil))
	f.Fuzz(func(t *testing.T, raw, message []byte) {
		if m.Key.Verify(message, raw) == nil && !bytes.Equal(message, []byte("m")) {
			t.Errorf("%q verifies about %q", raw, message)
		}
	})
}

// An enrolment becomes the key of the page that enrolled it, if its authenticator verified
// its user and does not copy it.
func TestAnEnrolmentIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		lie    func(*softkey.Authenticator)
		edit   func(*seal.Enrolment)
		synced bool
		want   string
	}{
		"honest":                {},
		"synced, allowed":       {lie: func(a *softkey.Authenticator) { a.Flags = 0x0d }, synced: true},
		"synced":                {lie: func(a *softkey.Authenticator) { a.Flags = 0x1d }, want: "--synced"},
		"not synced, but said":  {synced: true, want: "leave out --synced"},
		"without verification":  {lie: func(a *softkey.Authenticator) { a.Flags = 0x01 }, want: "not verified"},
		"another relying party": {lie: func(a *softkey.Authenticator) { a.RPID = "localhost" }, want: "another relying party"},
		"another page":          {lie: func(a *softkey.Authenticator) { a.Origin = "https://evil.example" }, want: "not within"},
		"another credential":    {edit: func(e *seal.Enrolment) { e.Credential = append([]byte{e.Credential[0] ^ 1}, e.Credential[1:]...) }, want: "another credential"},
		"another public key":    {edit: func(e *seal.Enrolment) { e.SPKI = otherSPKI(t) }, want: "not the one in"},
		"no credential":         {edit: func(e *seal.Enrolment) { e.AuthenticatorData[32] &^= 0x40 }, want: "no credential"},
		"cut":                   {edit: func(e *seal.Enrolment) { e.AuthenticatorData = e.AuthenticatorData[:40] }, want: "authenticator data of"},
		"the type of a signature": {edit: func(e *seal.Enrolment) {
			e.ClientDataJSON = bytes.Replace(e.ClientDataJSON, []byte("webauthn.create"), []byte("webauthn.get"), 1)
		}, want: "want webauthn.create"},
	} {
		for _, ed := range []bool{false, true} {
			a, err := softkey.New(ed)
			if err != nil {
				t.Fatal(err)
			}
			if c.lie != nil {
				c.lie(a)
			}
			e, err := a.Enrol()
			if err != nil {
				t.Fatal(err)
			}
			if c.edit != nil {
				c.edit(&e)
			}
			k, err := e.Key(c.synced)
			switch {
			case c.want == "" && (err != nil || k.Validate() != nil || k.Passkey.Synced != c.synced):
				t.Errorf("%s: %+v, %v", name, k, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	}
	b, err := json.Marshal(map[string]any{"name": "ann", "x": 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seal.ParseEnrolment(b); err == nil {
		t.Error("an unknown member is taken")
	}
}

func otherSPKI(t *testing.T) []byte {
	t.Helper()
	a, err := softkey.New(false)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := a.SPKI()
	if err != nil {
		t.Fatal(err)
	}
	return spki
}
