package logproof

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	formats "github.com/transparency-dev/formats/log"
	sumnote "golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"
)

const origin = "bailiwick.dev/log/ed25519:00112233445566778899aabbccddeeff"

type key ed25519.PrivateKey

func newKey(t testing.TB) key {
	t.Helper()
	_, k, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key(k)
}

func (k key) Public() []byte { return ed25519.PrivateKey(k).Public().(ed25519.PublicKey) }

func (k key) Sign(_ context.Context, message []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), message), nil
}

func sign(t testing.TB, c Checkpoint, k Signer) []byte {
	t.Helper()
	signed, err := Sign(t.Context(), c, k)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func checkpoint(size uint64) Checkpoint {
	return Checkpoint{Origin: origin, Size: size, Root: LeafHash([]byte("a root"))}
}

// proves R-A5: the public library takes what we sign for a checkpoint of ours.
func TestACheckpointIsReadByThePublicLibrary(t *testing.T) {
	k, c := newKey(t), checkpoint(48211)
	signed := sign(t, c, k)
	vkey, err := VerifierKey(origin, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	v, err := sumnote.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	got, rest, n, err := formats.ParseCheckpoint(signed, origin, v)
	if err != nil || len(rest) > 0 || len(n.Sigs) != 1 {
		t.Fatalf("%v, rest %q, note %+v", err, rest, n)
	}
	if got.Size != c.Size || !bytes.Equal(got.Hash, c.Root[:]) {
		t.Errorf("read as %+v", got)
	}
}

// And the other way round: what the public library signs is read by us.
func TestACheckpointOfThePublicLibraryIsRead(t *testing.T) {
	skey, vkey, err := sumnote.GenerateKey(nil, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := sumnote.NewSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint(7)
	signed, err := sumnote.Sign(&sumnote.Note{Text: string(c.Text())}, signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(vkey[strings.LastIndexByte(vkey[:len(origin)+10], '+')+1:])
	if err != nil {
		t.Fatal(err)
	}
	if got, by, err := Open(signed, origin, raw[1:]); err != nil || got != c || len(by) != 1 {
		t.Errorf("%+v, %v, %v", got, by, err)
	}
}

// proves R-A5, R-A9
func TestOpenReturnsSignersAndRefusesUnknownKeys(t *testing.T) {
	old, now, eve := newKey(t), newKey(t), newKey(t)
	c := checkpoint(9)
	signed := sign(t, c, now)
	both := append(sign(t, c, old), signed[len(c.Text())+1:]...)
	otherLog := c
	otherLog.Origin = "example.org/log"
	for name, tt := range map[string]struct {
		signed []byte
		keys   []ed25519.PublicKey
		by     int
		want   error
	}{
		"the key":                    {signed, []ed25519.PublicKey{now.Public()}, 1, nil},
		"one of two keys":            {signed, []ed25519.PublicKey{old.Public(), now.Public()}, 1, nil},
		"two keys":                   {both, []ed25519.PublicKey{old.Public(), now.Public()}, 2, nil},
		"a stranger beside the key":  {both, []ed25519.PublicKey{now.Public()}, 1, nil},
		"a stranger":                 {signed, []ed25519.PublicKey{eve.Public()}, 0, ErrUnsigned},
		"nobody":                     {signed, nil, 0, ErrUnsigned},
		"another log of the key":     {sign(t, otherLog, now), []ed25519.PublicKey{now.Public()}, 0, ErrOrigin},
		"another size":               {bytes.Replace(signed, []byte("\n9\n"), []byte("\n8\n"), 1), []ed25519.PublicKey{now.Public()}, 0, ErrSignature},
		"a bad signature beside one": {append(bytes.Clone(signed), bad(t, signed, old)...), []ed25519.PublicKey{now.Public(), old.Public()}, 0, ErrSignature},
	} {
		t.Run(name, func(t *testing.T) {
			got, by, err := Open(tt.signed, origin, tt.keys...)
			if !errors.Is(err, tt.want) || len(by) != tt.by || err == nil && got != c {
				t.Errorf("%+v by %d: %v, want %d and %v", got, len(by), err, tt.by, tt.want)
			}
		})
	}
}

// bad is a signature line in the name of k with the signature of another.
func bad(t *testing.T, signed []byte, k key) []byte {
	t.Helper()
	c, err := Peek(signed)
	if err != nil {
		t.Fatal(err)
	}
	c.Size++
	other := sign(t, c, k)
	return other[bytes.LastIndex(other, []byte("\u2014")):]
}

func TestParseAcceptsOneEncoding(t *testing.T) {
	c := checkpoint(12)
	text := string(c.Text())
	for name, bad := range map[string]string{
		"a leading zero":        strings.Replace(text, "\n12\n", "\n012\n", 1),
		"a sign":                strings.Replace(text, "\n12\n", "\n+12\n", 1),
		"a size beyond a log":   strings.Replace(text, "\n12\n", "\n18446744073709551615\n", 1),
		"an extension":          text + "extension\n",
		"a short root":          origin + "\n12\nAAAA\n",
		"a root with a newline": strings.Replace(text, "=\n", "\r=\n", 1),
		"stray bits":            text[:len(text)-3] + string(text[len(text)-3]+1) + "=\n",
		"no origin":             "\n12\n" + strings.SplitN(text, "\n", 3)[2],
		"nothing":               "",
		"no end":                strings.TrimSuffix(text, "\n"),
		"a long origin":         strings.Repeat("x", 256) + text[len(origin):],
	} {
		if got, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, err := Parse([]byte(text)); err != nil || got != c {
		t.Errorf("control: %+v, %v", got, err)
	}
}

type liar struct{ key }

func (l liar) Sign(ctx context.Context, message []byte) ([]byte, error) {
	return l.key.Sign(ctx, append(message, '\n'))
}

type short struct{ key }

func (s short) Public() []byte { return make([]byte, 65) }

func TestSignRefusesWhatOpenWouldRefuse(t *testing.T) {
	k := newKey(t)
	if _, err := Sign(t.Context(), checkpoint(1), short{k}); err == nil {
		t.Error("signed with a key of another kind")
	}
	for _, name := range []string{"", "two words", "a+b", "a\nb", strings.Repeat("x", 256)} {
		if _, err := Sign(t.Context(), Checkpoint{Origin: name, Size: 1}, k); err == nil {
			t.Errorf("signed for origin %q", name)
		}
	}
	if _, err := Sign(t.Context(), checkpoint(1), liar{k}); err == nil {
		t.Error("took a signature that does not verify")
	}
}

// Whatever byte of a signed checkpoint is changed, it is refused.
func TestNoChangedCheckpointIsAccepted(t *testing.T) {
	k := newKey(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := Checkpoint{Origin: origin, Size: rapid.Uint64Max(1<<40).Draw(rt, "size"), Root: LeafHash([]byte(rapid.String().Draw(rt, "root")))}
		signed := sign(t, c, k)
		if got, _, err := Open(signed, origin, k.Public()); err != nil || got != c {
			rt.Fatalf("control: %+v, %v", got, err)
		}
		at, by := rapid.IntRange(0, len(signed)-1).Draw(rt, "at"), rapid.ByteRange(1, 255).Draw(rt, "by")
		signed[at] ^= by
		if got, _, err := Open(signed, origin, k.Public()); err == nil {
			rt.Fatalf("accepted %+v of %q", got, signed)
		}
	})
}

func FuzzOpen(f *testing.F) {
	k := newKey(f)
	f.Add(sign(f, checkpoint(3), k))
	f.Add(checkpoint(3).Text())
	f.Add([]byte("\n\n\u2014 a AAAA\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := Parse(b); err == nil && !bytes.Equal(c.Text(), b) {
			t.Errorf("%q is read as %+v", b, c)
		}
		c, err := Peek(b)
		if err == nil && !bytes.HasPrefix(b, c.Text()) {
			t.Errorf("%q is read as %+v", b, c)
		}
		if c, _, err := Open(b, origin, k.Public()); err == nil && c != checkpoint(3) {
			t.Errorf("accepted %+v", c)
		}
	})
}

// A signature has one spelling. Control: the library accepts the others.
func TestSignaturesHaveOneSpelling(t *testing.T) {
	k := newKey(t)
	signed := sign(t, checkpoint(7), k)
	at := len(signed) - len("X=\n") // its last two bits are unused
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	other := bytes.Clone(signed)
	other[at] = alphabet[strings.IndexByte(alphabet, signed[at])|1]
	v, err := verifier(origin, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sumnote.Open(other, sumnote.VerifierList(v)); err != nil || bytes.Equal(other, signed) {
		t.Fatalf("control: %v", err)
	}
	if _, _, err := Open(other, origin, k.Public()); err == nil {
		t.Error("another spelling of a signature is accepted")
	}
	if _, _, err := Open(signed, origin, k.Public()); err != nil {
		t.Error(err)
	}
}

// One parse serves all keys, however many there are.
func TestOpenParsesACheckpointOnceForAllKeys(t *testing.T) {
	k, c := newKey(t), checkpoint(9)
	signed := sign(t, c, k)
	var many []ed25519.PublicKey
	for range 200 {
		many = append(many, newKey(t).Public())
	}
	keys, err := NewKeys(origin, append(many, k.Public(), k.Public())...)
	if err != nil {
		t.Fatal(err)
	}
	if _, by, err := keys.Open(signed); err != nil || len(by) != 1 {
		t.Fatalf("%v, signed by %d keys", err, len(by))
	}
	one, err := NewKeys(origin, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	allocated := func(keys Keys) float64 { return testing.AllocsPerRun(10, func() { _, _, _ = keys.Open(signed) }) }
	if a, b := allocated(one), allocated(keys); b > a+10 { // one more for each key would be 200
		t.Errorf("%v allocations with one key, %v with %d", a, b, len(many)+1)
	}
}
