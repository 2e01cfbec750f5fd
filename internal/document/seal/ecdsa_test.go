package seal

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

func newECDSA(t testing.TB) Signer {
	t.Helper()
	key, err := generate(ECDSAP256)
	if err != nil {
		t.Fatal(err)
	}
	s, err := signerOf(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// proves R-A9
func TestATrustRootTakesKeysOfBothAlgorithms(t *testing.T) {
	ann, bob := newSigner(t), newECDSA(t)
	root := TrustRoot{V: 1, Threshold: 2, Keys: []Key{KeyOf(ann, "ann"), KeyOf(bob, "bob")}}
	b, err := root.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if root, err = ParseTrustRoot(b); err != nil {
		t.Fatal(err)
	}
	if _, ids, err := Verify(sign(t, Statement, "{}", ann, bob), Statement, root); err != nil || len(ids) != 2 || ids[0].Algorithm() != ECDSAP256 || ids[1].Algorithm() != Ed25519 {
		t.Fatalf("%v, %v", ids, err)
	}
	if _, _, err := Verify(sign(t, Statement, "{}", bob), Statement, root); !errors.Is(err, ErrThreshold) {
		t.Errorf("one of two: %v", err)
	}
	other := edit(t, sign(t, Statement, "{}", ann, newECDSA(t)), func(e *dsse.Envelope) { e.Signatures[1].KeyID = string(bob.KeyID()) })
	if _, _, err := Verify(other, Statement, root); !errors.Is(err, ErrSignature) {
		t.Errorf("another's signature under a known id: %v", err)
	}
	if _, _, err := Verify(sign(t, Result, "{}", bob), Statement, RootOf(KeyOf(bob, ""))); err == nil {
		t.Error("another payload type was taken")
	}
}

// respell gives an envelope with one ECDSA signature another encoding of it.
func respell(t *testing.T, envelope []byte, how func(r, s *big.Int) []byte) []byte {
	t.Helper()
	return edit(t, envelope, func(e *dsse.Envelope) {
		raw, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
		if err != nil {
			t.Fatal(err)
		}
		r, s, err := parseP256(raw)
		if err != nil {
			t.Fatal(err)
		}
		e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(how(r, s))
	})
}

// A signature has one encoding, or a signed document could be changed without
// breaking its signature. The control is the library, which accepts the high S.
//
// proves R-A9
func TestAnECDSASignatureHasOneEncoding(t *testing.T) {
	s := newECDSA(t)
	key, root := KeyOf(s, ""), RootOf(KeyOf(s, ""))
	order := elliptic.P256().Params().N
	der := func(v any) []byte {
		b, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for range 40 { // S is the larger one half of the time, before it is made small
		env := sign(t, Statement, "{}", s)
		if _, _, err := Verify(env, Statement, root); err != nil {
			t.Fatalf("the control: %v", err)
		}
		for name, how := range map[string]func(r, s *big.Int) []byte{
			"the larger S":       func(r, s *big.Int) []byte { return der(ecdsaSignature{r, new(big.Int).Sub(order, s)}) },
			"S beyond the order": func(r, s *big.Int) []byte { return der(ecdsaSignature{r, new(big.Int).Add(order, s)}) },
			"R beyond the order": func(r, s *big.Int) []byte { return der(ecdsaSignature{new(big.Int).Add(order, r), s}) },
			"S of nothing":       func(r, _ *big.Int) []byte { return der(ecdsaSignature{r, new(big.Int)}) },
			"R of nothing":       func(_, s *big.Int) []byte { return der(ecdsaSignature{new(big.Int), s}) },
			"negative S":         func(r, s *big.Int) []byte { return der(ecdsaSignature{r, new(big.Int).Neg(s)}) },
			"bytes after it":     func(r, s *big.Int) []byte { return append(der(ecdsaSignature{r, s}), 0) },
			"a member more":      func(r, s *big.Int) []byte { return der(struct{ R, S, T *big.Int }{r, s, s}) },
			"raw, 64 bytes": func(r, s *big.Int) []byte {
				return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
			},
			"a long length": func(r, s *big.Int) []byte {
				b := der(ecdsaSignature{r, s})
				return append([]byte{0x30, 0x81, b[1]}, b[2:]...)
			},
			"nothing": func(_, _ *big.Int) []byte { return nil },
		} {
			if _, _, err := Verify(respell(t, env, how), Statement, root); err == nil {
				t.Fatalf("%s: accepted", name)
			}
		}
	}
	raw, err := s.Sign(t.Context(), []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	r, low, err := parseP256(raw)
	if err != nil || low.Cmp(halfP256()) > 0 {
		t.Fatalf("%v", err)
	}
	point, err := pointP256(key.Public)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("m"))
	high := der(ecdsaSignature{r, new(big.Int).Sub(order, low)})
	if !ecdsa.VerifyASN1(point, sum[:], high) || key.Verify([]byte("m"), high) == nil {
		t.Error("the control: the larger S is good to the library, and must not be to us")
	}
}

// proves R-A9
func TestAPublicKeyIsAPointOfItsCurve(t *testing.T) {
	good := KeyOf(newECDSA(t), "")
	if err := good.Validate(); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	with := func(change func(b []byte) []byte) Key {
		b := change(append([]byte(nil), good.Public...))
		return Key{ID: IDOf(b), Public: b}
	}
	for name, k := range map[string]Key{
		"off the curve":    with(func(b []byte) []byte { b[64] ^= 1; return b }),
		"infinity":         with(func(b []byte) []byte { clear(b[1:]); return b }),
		"compressed form":  with(func(b []byte) []byte { b[0] = 2; return b }),
		"a compressed key": with(func(b []byte) []byte { b[0] = 2 + b[64]&1; return b[:33] }),
		"coordinate too large": with(func(b []byte) []byte {
			for i := 1; i < 33; i++ {
				b[i] = 0xff
			}
			return b
		}),
		"64 bytes":            with(func(b []byte) []byte { return b[1:] }),
		"id of another":       {ID: KeyOf(newECDSA(t), "").ID, Public: good.Public},
		"id of another kind":  {ID: KeyID(strings.Replace(string(good.ID), "ecdsa-p256", "ed25519", 1)), Public: good.Public},
		"another kind's name": {ID: KeyID("unknown" + strings.TrimPrefix(string(good.ID), "ecdsa-p256")), Public: good.Public},
	} {
		if err := k.Validate(); err == nil {
			t.Errorf("%s: accepted as %s", name, k.ID)
		}
	}
	for _, text := range []string{"ecdsa-p384:" + strings.Repeat("0", 32), "ecdsa-p256:" + strings.Repeat("0", 31), "ECDSA-P256:" + strings.Repeat("0", 32), "unknown:" + strings.Repeat("0", 32)} {
		var id KeyID
		if err := id.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s: accepted", text)
		}
	}
}

// proves R-A9
func TestAKeyFileMayHoldEitherAlgorithmAndNoOther(t *testing.T) {
	dir := t.TempDir()
	for _, a := range []Algorithm{"", Ed25519, ECDSAP256} {
		path := filepath.Join(dir, "key-"+string(a))
		made, err := CreateKey(path, NewKey{Name: "x", Algorithm: a, Passphrase: "correct horse", workFactor: 10})
		if err != nil {
			t.Fatal(err)
		}
		opened, err := OpenSigner(t.Context(), path, answer("correct horse"))
		if err != nil || opened.KeyID() != made.KeyID() {
			t.Fatalf("%s: %v", a, err)
		}
		public, err := LoadPublic(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Verify(sign(t, Statement, "{}", opened), Statement, RootOf(public)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		text, err := public.PEM()
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if _, err := CreateKey(filepath.Join(dir, "z"), NewKey{Unencrypted: true, Algorithm: "rsa"}); err == nil {
		t.Error("made a key of another algorithm")
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]any{"p384": p384, "rsa": big} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSigner(t.Context(), path, nil); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestTheServiceKeyIsEd25519(t *testing.T) {
	dir := t.TempDir()
	if _, err := CreateKey(filepath.Join(dir, serviceKeyFile), NewKey{Unencrypted: true, Algorithm: ECDSAP256}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenServiceKey(dir); err == nil || !strings.Contains(err.Error(), "keys.statements") {
		t.Fatalf("%v", err)
	}
}

func TestAnECDSASignerDoesNotPrintItsKey(t *testing.T) {
	s := newECDSA(t).(ecdsaSigner)
	secret, err := s.key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		text := strings.ReplaceAll(fmt.Sprintf(format, s)+fmt.Sprintf(format, &FileKey{Signer: s}), "0x", "")
		for _, form := range []string{fmt.Sprintf("%x", secret[:8]), new(big.Int).SetBytes(secret).String()} {
			if strings.Contains(text, form) {
				t.Errorf("%s prints the key", format)
			}
		}
	}
}
