package evidence

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

func signer(t testing.TB) seal.Signer {
	t.Helper()
	s, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func logKey(s seal.Signer, from uint64, upTo ...uint64) LogKey {
	k := LogKey{ID: s.KeyID(), Public: s.Public(), From: from}
	if len(upTo) > 0 {
		k.UpTo = &upTo[0]
	}
	return k
}

func certificate(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tsa"}, NotAfter: time.Unix(4e9, 0)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func sampleTrust(t testing.TB) Trust {
	t.Helper()
	first, second, deploy := signer(t), signer(t), signer(t)
	statements, err := seal.CreateKey(filepath.Join(t.TempDir(), "s"), seal.NewKey{Unencrypted: true, Algorithm: seal.ECDSAP256})
	if err != nil {
		t.Fatal(err)
	}
	operators := seal.RootOf(seal.KeyOf(signer(t), "ops"))
	return Trust{
		V: 1, Log: LogTrust{Origin: seal.LogOrigin(first.KeyID()), Keys: []LogKey{logKey(first, 0, 40), logKey(second, 41)}},
		Deploy:     DeployTrust{Root: seal.RootOf(seal.KeyOf(deploy, "ann")), Older: []OlderRoot{{Root: seal.RootOf(seal.KeyOf(first, "")), UpTo: 3}}},
		Operators:  &operators,
		Statements: []LogKey{logKey(statements, 0)},
		TSA:        []string{certificate(t)},
		Anchors:    []AnchorTrust{{Name: "disk", Kind: receipt.File, Place: "/mnt/a"}},
	}
}

// proves R-A9
func TestParseTrustIsStrict(t *testing.T) {
	good, err := sampleTrust(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseTrust(good); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	var indented strings.Builder
	enc := json.NewEncoder(&indented)
	enc.SetIndent("", "  ")
	if err := enc.Encode(json.RawMessage(good)); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseTrust([]byte(indented.String())); err != nil {
		t.Fatalf("what an auditor wrote by hand: %v", err)
	}
	swap := func(old, fresh string) string {
		out := strings.Replace(string(good), old, fresh, 1)
		if out == string(good) {
			t.Fatalf("%s is not there", old)
		}
		return out
	}
	for name, text := range map[string]string{
		"empty":             "",
		"two values":        string(good) + string(good),
		"unknown member":    swap(`"log":`, `"admin":true,"log":`),
		"member twice":      swap(`"v":1`, `"v":1,"v":1`),
		"other case":        swap(`"v":1`, `"V":1`),
		"format 2":          swap(`"v":1`+"}\n", `"v":2}`),
		"negative":          swap(`"from":41`, `"from":-1`),
		"number as text":    swap(`"from":41`, `"from":"41"`),
		"beyond 2^53":       swap(`"from":41`, `"from":9007199254740993`),
		"kind not known":    swap(`"kind":"file"`, `"kind":"hope"`),
		"misspelt revoked":  swap(`"from":41`, `"from":41,"revoke":3`),
		"origin with space": swap(`"origin":"`, `"origin":"x `),
	} {
		if _, err := ParseTrust([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// proves R-A9
func TestMisleadingTrustIsRefused(t *testing.T) {
	good := sampleTrust(t)
	if err := good.Validate(); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	n := func(n uint64) *uint64 { return &n }
	for name, edit := range map[string]func(*Trust){
		"no log key":                 func(t *Trust) { t.Log.Keys = nil },
		"two keys in force":          func(t *Trust) { t.Log.Keys[0].UpTo = nil },
		"keys overlap":               func(t *Trust) { t.Log.Keys[0].UpTo = n(41) },
		"good never":                 func(t *Trust) { t.Log.Keys[0].From, t.Log.Keys[0].UpTo = 9, n(8) },
		"one key twice":              func(t *Trust) { t.Log.Keys[1].ID, t.Log.Keys[1].Public = t.Log.Keys[0].ID, t.Log.Keys[0].Public },
		"id of another key":          func(t *Trust) { t.Log.Keys[1].ID = t.Log.Keys[0].ID },
		"log signed with ECDSA":      func(t *Trust) { t.Log.Keys = t.Statements },
		"no deploy keys":             func(t *Trust) { t.Deploy.Root.Keys = nil },
		"threshold 0":                func(t *Trust) { t.Deploy.Root.Threshold = 0 },
		"older root for nothing":     func(t *Trust) { t.Deploy.Older[0].UpTo = 0 },
		"older roots out of order":   func(t *Trust) { t.Deploy.Older = append(t.Deploy.Older, t.Deploy.Older[0]) },
		"empty operators":            func(t *Trust) { t.Operators = &seal.TrustRoot{} },
		"tsa that is no certificate": func(t *Trust) { t.TSA[0] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" },
		"tsa of two certificates":    func(t *Trust) { t.TSA[0] += t.TSA[0] },
		"text before a certificate":  func(t *Trust) { t.TSA[0] = "trust me\n" + t.TSA[0] },
		"anchor twice":               func(t *Trust) { t.Anchors = append(t.Anchors, t.Anchors[0]) },
		"anchor nowhere":             func(t *Trust) { t.Anchors[0].Place = "" },
	} {
		bad := sampleTrust(t)
		edit(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// proves R-A9
func TestKeyIsValidForItsPartOfTheLog(t *testing.T) {
	k := logKey(signer(t), 10, 20)
	revokedAt := uint64(15)
	revoked := k
	revoked.Revoked = &revokedAt
	for _, tt := range []struct {
		key         LogKey
		n           uint64
		entry, size bool
	}{
		{k, 9, false, true},
		{k, 10, true, true},
		{k, 20, true, true},
		{k, 21, false, false},
		{revoked, 14, true, true},
		{revoked, 15, false, true},
		{revoked, 16, false, false},
	} {
		if got := tt.key.Entry(tt.n) == nil; got != tt.entry {
			t.Errorf("revoked %v: entry %d: %v", !tt.key.Alone(), tt.n, got)
		}
		if got := tt.key.Size(tt.n) == nil; got != tt.size {
			t.Errorf("revoked %v: checkpoint of %d: %v", !tt.key.Alone(), tt.n, got)
		}
	}
	if !k.Alone() || revoked.Alone() {
		t.Error("a revoked key's checkpoint is worth something alone, or another's nothing")
	}
}

func TestOlderDeployRootIsValidForItsRevisions(t *testing.T) {
	d := sampleTrust(t).Deploy
	if got := d.For(3); len(got) != 2 || got[1].Keys[0].ID != d.Older[0].Root.Keys[0].ID {
		t.Errorf("revision 3: %v", got)
	}
	if got := d.For(4); len(got) != 1 {
		t.Errorf("revision 4: %v", got)
	}
}

func rotate(t testing.TB, log string, old, fresh seal.Signer, entry uint64) []byte {
	t.Helper()
	r := seal.KeyRotation{V: 1, Log: log, Old: old.KeyID(), New: seal.KeyOf(fresh, "service"), Entry: entry, At: time.Unix(0, 0).UTC()}
	b, err := r.Sign(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// proves R-A9
func TestRotationNeedsTheSignatureOfATrustedKey(t *testing.T) {
	a, b, c, eve := signer(t), signer(t), signer(t), signer(t)
	const log = "bailiwick.dev/log/x"
	l := LogTrust{Origin: log, Keys: []LogKey{logKey(a, 0)}}
	got, err := l.Follow([][]byte{rotate(t, log, a, b, 40), rotate(t, log, b, c, 90)})
	if err != nil || len(got.Keys) != 3 || *got.Keys[0].UpTo != 40 || got.Keys[1].From != 41 || *got.Keys[1].UpTo != 90 || got.Keys[2].From != 91 || got.Keys[2].UpTo != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(l.Keys) != 1 || l.Keys[0].UpTo != nil {
		t.Fatal("the auditor's own trust was changed")
	}
	revoked := LogTrust{Origin: log, Keys: []LogKey{logKey(a, 0)}}
	revoked.Keys[0].Revoked = new(uint64)
	fixed := LogTrust{Origin: log, Keys: []LogKey{logKey(a, 0, 50)}}
	forged := seal.KeyRotation{V: 1, Log: log, Old: a.KeyID(), New: seal.KeyOf(eve, ""), Entry: 40}
	for name, try := range map[string]struct {
		trust LogTrust
		chain [][]byte
	}{
		"by an unknown key":                {l, [][]byte{rotate(t, log, eve, b, 40)}},
		"of another log":                   {l, [][]byte{rotate(t, log+"y", a, b, 40)}},
		"a link is missing":                {l, [][]byte{rotate(t, log, b, c, 90)}},
		"out of order":                     {l, [][]byte{rotate(t, log, b, c, 90), rotate(t, log, a, b, 40)}},
		"a second follower of one key":     {l, [][]byte{rotate(t, log, a, b, 40), rotate(t, log, a, eve, 41)}},
		"before the key was in force":      {l, [][]byte{rotate(t, log, a, b, 40), rotate(t, log, b, c, 3)}},
		"by a revoked key":                 {revoked, [][]byte{rotate(t, log, a, b, 40)}},
		"elsewhere than the auditor knows": {fixed, [][]byte{rotate(t, log, a, b, 40)}},
		"not signed by the key that it follows": {l, [][]byte{func() []byte {
			doc, err := json.Marshal(forged)
			if err != nil {
				t.Fatal(err)
			}
			env, err := seal.Sign(t.Context(), seal.Rotation, doc, eve)
			if err != nil {
				t.Fatal(err)
			}
			return env
		}()}},
		"no envelope": {l, [][]byte{[]byte("{}")}},
	} {
		if got, err := try.trust.Follow(try.chain); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	listed := LogTrust{Origin: log, Keys: []LogKey{logKey(a, 0, 40), logKey(b, 41)}}
	if got, err := listed.Follow([][]byte{rotate(t, log, a, b, 99)}); err != nil || *got.Keys[0].UpTo != 40 {
		t.Errorf("what the trust file lists was changed: %+v, %v", got, err)
	}
}

// An accepted trust file is valid, and round-trips.
func FuzzParseTrust(f *testing.F) {
	good, err := sampleTrust(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		trust, err := ParseTrust(b)
		if err != nil {
			return
		}
		first, err := trust.Encode()
		if err != nil {
			t.Fatalf("accepted %q: %v", b, err)
		}
		again, err := ParseTrust(first)
		if err != nil {
			t.Fatalf("%q: %v", first, err)
		}
		if second, err := again.Encode(); err != nil || string(second) != string(first) {
			t.Fatalf("%q, then %q, %v", first, second, err)
		}
	})
}
