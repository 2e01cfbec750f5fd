package receipt

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

const origin = "bailiwick.dev/log/ed25519:00112233445566778899aabbccddeeff"

type logKey ed25519.PrivateKey

func (k logKey) Public() []byte { return ed25519.PrivateKey(k).Public().(ed25519.PublicKey) }

func (k logKey) Sign(_ context.Context, b []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), b), nil
}

func signedAt(t testing.TB, size uint64, what string) []byte {
	t.Helper()
	k := logKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)))
	signed, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: origin, Size: size, Root: logproof.LeafHash([]byte(what))}, k)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// authority is a time-stamp authority in memory. A third-party library makes its
// tokens.
type authority struct {
	key  crypto.Signer
	cert *x509.Certificate
	root *x509.Certificate
}

type wish struct {
	key               crypto.Signer
	usage             []pkix.Extension
	notBefore, expiry time.Time
}

func when(text string) time.Time {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return at
}

var now = when("2026-06-01")

func usage(critical bool, oids ...asn1.ObjectIdentifier) []pkix.Extension {
	b, err := asn1.Marshal(oids)
	if err != nil {
		panic(err)
	}
	return []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: critical, Value: b}}
}

var (
	stamping = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
	serving  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
)

func ecKey(t testing.TB) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func certify(t testing.TB, c, by *x509.Certificate, key crypto.PublicKey, with crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, by, key, with)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newAuthority(t testing.TB, w wish) authority {
	t.Helper()
	if w.key == nil {
		w.key = ecKey(t)
	}
	if w.usage == nil {
		w.usage = usage(true, stamping)
	}
	if w.notBefore.IsZero() {
		w.notBefore = when("2026-01-01")
	}
	if w.expiry.IsZero() {
		w.expiry = when("2027-01-01")
	}
	rootKey := ecKey(t)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: when("2020-01-01"), NotAfter: when("2040-01-01"),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := authority{key: w.key, root: certify(t, root, root, rootKey.Public(), rootKey)}
	a.cert = certify(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "authority"}, NotBefore: w.notBefore, NotAfter: w.expiry,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtraExtensions: w.usage,
	}, a.root, w.key.Public(), rootKey)
	return a
}

// answer is the authority's answer to a request.
func (a authority) answer(t testing.TB, request []byte, edit func(*timestamp.Timestamp)) []byte {
	t.Helper()
	req, err := timestamp.ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	ts := &timestamp.Timestamp{
		HashAlgorithm: req.HashAlgorithm, HashedMessage: req.HashedMessage, Time: now, Accuracy: time.Second, Nonce: req.Nonce,
		Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: req.Certificates,
	}
	if edit != nil {
		edit(ts)
	}
	b, err := ts.CreateResponseWithOpts(a.cert, a.key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (a authority) roots() []*x509.Certificate { return []*x509.Certificate{a.root} }

// stamp requests a stamp over message.
func (a authority) stamp(t testing.TB, message []byte, edit func(*timestamp.Timestamp)) ([]byte, Stamp, error) {
	t.Helper()
	request, asked, err := Ask(message)
	if err != nil {
		t.Fatal(err)
	}
	return asked.Answer(a.answer(t, request, edit), a.roots())
}

// proves R-A6
func TestTokenProvesTheTimeOfItsCheckpoint(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"ecdsa": ecKey(t), "rsa": rsaKey} {
		a, signed := newAuthority(t, wish{key: key}), signedAt(t, 9, "here")
		token, s, err := a.stamp(t, signed, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !s.Time.Equal(now) || s.Accuracy != time.Second || s.By != "CN=authority" {
			t.Errorf("%s: %+v", name, s)
		}
		r := Receipt{V: 1, Name: "time", Kind: TSA, Place: "https://x", At: now, Signed: signed, TSA: &Token{token}}
		if got, err := r.Stamp(a.roots()); err != nil || !got.Time.Equal(now) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Each is refused; without the one fault it is accepted.
//
// proves R-A6
func TestInvalidTokensAreRefused(t *testing.T) {
	good, signed := newAuthority(t, wish{}), signedAt(t, 9, "here")
	token, _, err := good.stamp(t, signed, nil)
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	type try struct {
		a    authority
		edit func(*timestamp.Timestamp)
	}
	for name, c := range map[string]try{
		"another nonce":               {good, func(ts *timestamp.Timestamp) { ts.Nonce = big.NewInt(5) }},
		"no nonce":                    {good, func(ts *timestamp.Timestamp) { ts.Nonce = nil }},
		"another imprint":             {good, func(ts *timestamp.Timestamp) { ts.HashedMessage = bytes.Repeat([]byte{1}, 32) }},
		"no certificate":              {good, func(ts *timestamp.Timestamp) { ts.AddTSACertificate = false }},
		"after the certificate":       {good, func(ts *timestamp.Timestamp) { ts.Time = when("2027-02-01") }},
		"before the certificate":      {good, func(ts *timestamp.Timestamp) { ts.Time = when("2025-02-01") }},
		"critical extension":          {good, func(ts *timestamp.Timestamp) { ts.ExtraExtensions = []pkix.Extension{{Id: stamping, Critical: true}} }},
		"an expired certificate":      {newAuthority(t, wish{expiry: when("2026-05-01")}), nil},
		"usage not critical":          {newAuthority(t, wish{usage: usage(false, stamping)}), nil},
		"usage of another kind":       {newAuthority(t, wish{usage: usage(true, serving)}), nil},
		"usage of two kinds":          {newAuthority(t, wish{usage: usage(true, stamping, serving)}), nil},
		"usage of any kind":           {newAuthority(t, wish{usage: []pkix.Extension{}}), nil},
		"vouched for by somebody":     {authority{good.key, good.cert, newAuthority(t, wish{}).root}, nil},
		"signed by another":           {authority{ecKey(t), good.cert, good.root}, nil},
		"trust in nobody's authority": {authority{good.key, good.cert, newAuthority(t, wish{}).cert}, nil},
	} {
		_, s, err := c.a.stamp(t, signed, c.edit)
		if err == nil {
			t.Errorf("%s: %+v", name, s)
		}
		// An untrusted authority is another error than an invalid token.
		if foreign := name == "vouched for by somebody" || name == "trust in nobody's authority"; errors.Is(err, ErrForeign) != foreign {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		token, message []byte
		roots          []*x509.Certificate
	}{
		"over another checkpoint":           {token, signedAt(t, 10, "here"), good.roots()},
		"over another of the same size":     {token, signedAt(t, 9, "there"), good.roots()},
		"no trusted root":                   {token, signed, nil},
		"a foreign authority":               {token, signed, newAuthority(t, wish{}).roots()},
		"something follows":                 {append(bytes.Clone(token), 0), signed, good.roots()},
		"half of it":                        {token[:len(token)/2], signed, good.roots()},
		"nothing":                           {nil, signed, good.roots()},
		"too long":                          {append(bytes.Clone(token), make([]byte, maxToken)...), signed, good.roots()},
		"the request in place of the token": {func() []byte { b, _, _ := Ask(signed); return b }(), signed, good.roots()},
	} {
		if s, err := VerifyToken(c.token, c.message, c.roots); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A certificate must be valid at the time of the stamp, not now.
func TestTokenOutlivesItsCertificate(t *testing.T) {
	a, signed := newAuthority(t, wish{expiry: when("2026-06-02")}), signedAt(t, 9, "here")
	if _, _, err := a.stamp(t, signed, nil); err != nil {
		t.Error(err)
	}
}

func TestRefusalOfAnAuthorityIsNoToken(t *testing.T) {
	_, asked, err := Ask([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := timestamp.CreateErrorResponse(timestamp.Rejection, timestamp.SystemFailure)
	if err != nil {
		t.Fatal(err)
	}
	if _, s, err := asked.Answer(b, nil); err == nil || !strings.Contains(err.Error(), "status 2") {
		t.Errorf("%+v, %v", s, err)
	}
}

// Some bytes of a token are not signed and mean nothing. Changing any byte never
// proves anything else.
func TestChangedTokenNeverProvesSomethingElse(t *testing.T) {
	a, signed := newAuthority(t, wish{}), signedAt(t, 9, "here")
	token, want, err := a.stamp(t, signed, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		changed := bytes.Clone(token)
		changed[rapid.IntRange(0, len(token)-1).Draw(rt, "at")] ^= rapid.ByteRange(1, 255).Draw(rt, "by")
		s, err := VerifyToken(changed, signed, a.roots())
		if err != nil {
			refused++
		} else if !s.Time.Equal(want.Time) || s.By != want.By || s.Serial.Cmp(want.Serial) != 0 {
			rt.Fatalf("%+v, want %+v", s, want)
		}
	})
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func sample(t testing.TB, kind Kind) Receipt {
	t.Helper()
	r := Receipt{V: 1, Name: "a-1", Kind: kind, Place: "/mnt/x", At: now, Signed: signedAt(t, 9, "here")}
	switch kind {
	case Git:
		r.Git = &Commit{strings.Repeat("0a", 20)}
	case S3:
		r.S3 = &Object{Key: "k", Version: "v", ETag: "e", Until: now}
	case TSA:
		r.TSA = &Token{[]byte{1}}
	case File:
	}
	return r
}

func TestReceiptRoundTrips(t *testing.T) {
	for _, kind := range Kinds() {
		r := sample(t, kind)
		b, err := r.Encode()
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if got, err := Parse(b); err != nil || fmt.Sprint(got.Checkpoint()) != fmt.Sprint(r.Checkpoint()) || got.Checkpoint().Size != 9 {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
		for name, edit := range map[string]func(*Receipt){
			"format":        func(r *Receipt) { r.V = 2 },
			"name":          func(r *Receipt) { r.Name = "../x" },
			"kind":          func(r *Receipt) { r.Kind = "hope" },
			"another kind":  func(r *Receipt) { r.Kind = map[Kind]Kind{File: Git, Git: File, S3: File, TSA: S3}[r.Kind] },
			"place":         func(r *Receipt) { r.Place = "" },
			"local time":    func(r *Receipt) { r.At = r.At.In(time.FixedZone("x", 3600)) },
			"no checkpoint": func(r *Receipt) { r.Signed = []byte("x") },
		} {
			bad := sample(t, kind)
			edit(&bad)
			if _, err := bad.Encode(); err == nil {
				t.Errorf("%s, %s: accepted", kind, name)
			}
		}
		for _, bad := range [][]byte{nil, append(b, '\n'), bytes.Replace(b, []byte(`"v":1`), []byte(`"v":1,"x":2`), 1), bytes.Replace(b, []byte("2026"), []byte("2026"), 1)[1:]} {
			if _, err := Parse(bad); err == nil {
				t.Errorf("%s: accepted %q", kind, bad)
			}
		}
	}
}

// Every documented form of a copy has its checkpoints, byte by byte; anything else in a
// copy is an error.
//
// proves R-A6
func TestCheckpointsReadsEveryFormOfACopy(t *testing.T) {
	line := func(size uint64, what string) []byte {
		b, err := Line(signedAt(t, size, what))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	lf, torn, nine := []byte("\n"), line(11, "here")[:60], signedAt(t, 9, "here")
	for name, c := range map[string]struct {
		copied []byte
		n      int
	}{
		"the file":                         {join(line(5, "a"), line(9, "here"), line(12, "b")), 3},
		"the newest line":                  {line(9, "here"), 1},
		"without its line feed":            {bytes.TrimSuffix(line(9, "here"), lf), 1},
		"a line that a cut left":           {join(line(9, "here"), torn, lf, line(12, "b")), 2},
		"a line that a cut left, last":     {join(line(9, "here"), torn), 1},
		"a hole and empty lines":           {join(lf, make([]byte, 99), lf, lf, line(9, "here")), 1},
		"the note itself":                  {nine, 1},
		"the note without its line feed":   {bytes.TrimSuffix(nine, lf), 1},
		"the note with another line feed":  {join(nine, lf), 1},
		"the note with many line feeds":    {join(lf, nine, lf, lf, lf), 1},
		"two notes":                        {join(nine, signedAt(t, 12, "b")), 2},
		"two notes, an empty line between": {join(nine, lf, signedAt(t, 12, "b"), lf), 2},
		"a note and a line":                {join(nine, line(12, "b"), nine), 3},
		"with the line ends of Windows":    {bytes.ReplaceAll(join(nine, nine), lf, []byte("\r\n")), 2},
	} {
		list, err := Checkpoints(c.copied)
		if err != nil || len(list) != c.n || !slices.ContainsFunc(list, func(b []byte) bool { return bytes.Equal(b, nine) }) {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
	for name, c := range map[string][]byte{
		"nothing":                     nil,
		"empty lines":                 []byte("\n\n\n"),
		"a hole":                      make([]byte, 99),
		"a line that a cut left":      torn,
		"words":                       []byte("9 entries, all well\n"),
		"a note and words":            join(nine, []byte("\nall well\n")),
		"a line and words":            join(line(9, "here"), []byte("all well\n")),
		"a note without signature":    []byte("a\n9\nAAAA\n\n"),
		"half a note":                 nine[:len(nine)/2],
		"a line in another spelling":  bytes.Replace(line(9, "here"), []byte("b"), []byte(`\u0062`), 1),
		"a line with something after": bytes.Replace(line(9, "here"), lf, []byte("x\"\n"), 1),
		"larger than a copy may be":   make([]byte, MaxCopy+1),
	} {
		if list, err := Checkpoints(c); err == nil {
			t.Errorf("%s: accepted as %q", name, list)
		}
	}
}

// A copy of empty lines, which proves nothing, costs nothing for each of them.
// Control: lines that are judged allocate memory.
func TestEmptyLinesOfACopyAreNotJudged(t *testing.T) {
	cost := func(line string) float64 {
		copied := []byte(strings.Repeat(line, 10_000))
		return testing.AllocsPerRun(1, func() { _, _ = Checkpoints(copied) })
	}
	if empty, judged := cost("\n"), cost("\"\n"); empty > 20 || judged < 10_000 {
		t.Errorf("10,000 empty lines take %.0f allocations, want few; judged lines %.0f", empty, judged)
	}
}

func FuzzParse(f *testing.F) {
	for _, kind := range Kinds() {
		b, err := sample(f, kind).Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			return
		}
		if again, err := r.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q is written as %q, %v", b, again, err)
		}
	})
}

func FuzzVerifyToken(f *testing.F) {
	a, signed := newAuthority(f, wish{}), signedAt(f, 9, "here")
	token, want, err := a.stamp(f, signed, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token, signed)
	f.Fuzz(func(t *testing.T, b, message []byte) {
		s, err := VerifyToken(b, message, a.roots())
		if err == nil && (!bytes.Equal(message, signed) || !s.Time.Equal(want.Time)) {
			t.Errorf("%+v of %q", s, message)
		}
		_, asked, err := Ask(message)
		if err != nil {
			t.Fatal(err)
		}
		if _, s, err := asked.Answer(b, a.roots()); err == nil {
			t.Errorf("answered by %+v", s)
		}
	})
}

func FuzzCopy(f *testing.F) {
	signed := signedAt(f, 9, "here")
	line, err := Line(signed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add(signed)
	f.Add(append(append([]byte("\n"), signed...), line...))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Checkpoints(b)
		for _, signed := range list {
			if _, err := logproof.Peek(signed); err != nil {
				t.Errorf("%q: %v", signed, err)
			}
		}
		if err == nil && len(list) == 0 {
			t.Errorf("nothing in %q", b)
		}
		if signed, cp, err := ParseLine(b); err == nil {
			again, err := Line(signed)
			if err != nil || !bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), bytes.TrimSuffix(b, []byte("\n"))) {
				t.Errorf("%+v: %v", cp, errors.Join(err, errors.New("not canonical")))
			}
		}
	})
}

// The stamp covers the digest of the whole signed note, with its signature.
func TestStampCoversTheWholeSignedNote(t *testing.T) {
	signed := signedAt(t, 9, "here")
	request, _, err := Ask(signed)
	if err != nil {
		t.Fatal(err)
	}
	req, err := timestamp.ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(signed); !bytes.Equal(req.HashedMessage, want[:]) || !req.Certificates || req.Nonce.BitLen() < 100 {
		t.Errorf("%+v", req)
	}
}

func TestOldHashesAreRefused(t *testing.T) {
	for oid, ok := range map[string]bool{"1.3.14.3.2.26": false, "1.2.840.113549.2.5": false, "2.16.840.1.101.3.4.2.4": false, "2.16.840.1.101.3.4.2.1": true} {
		var id asn1.ObjectIdentifier
		for part := range strings.SplitSeq(oid, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				t.Fatal(err)
			}
			id = append(id, n)
		}
		if _, err := hashOf(id); (err == nil) != ok {
			t.Errorf("%s: %v", oid, err)
		}
	}
}

// A token cannot bring certificates that take long to verify.
//
// proves R-A6
func TestExpensiveCertificatesAreRefused(t *testing.T) {
	key := ecKey(t)
	of := func(subject string, public crypto.PublicKey) *x509.Certificate {
		return certify(t, &x509.Certificate{
			SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: subject}, NotBefore: when("2020-01-01"), NotAfter: when("2040-01-01"),
		}, &x509.Certificate{Subject: pkix.Name{CommonName: "issuer"}}, public, key)
	}
	rsaOf := func(bits uint) *rsa.PublicKey {
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 1<<16 + 1}
	}
	several := func(n int, subject func(i int) string) (list []*x509.Certificate) {
		for i := range n {
			list = append(list, of(subject(i), key.Public()))
		}
		return list
	}
	for name, c := range map[string]struct {
		all []*x509.Certificate
		ok  bool
	}{
		"a key of 4096 bits":   {[]*x509.Certificate{of("x", rsaOf(4096))}, true},
		"a key of 16384 bits":  {[]*x509.Certificate{of("x", rsaOf(16384))}, false},
		"two of one subject":   {several(2, func(int) string { return "x" }), true},
		"three of one subject": {several(3, func(int) string { return "x" }), false},
		"eight":                {several(8, strconv.Itoa), true},
		"nine":                 {several(9, strconv.Itoa), false},
	} {
		if err := affordable(c.all); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
