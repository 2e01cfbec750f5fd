package seal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rotation is the rotation from old to fresh.
func rotation(t testing.TB, h History, old, fresh Signer, entry uint64) []byte {
	t.Helper()
	r := KeyRotation{V: 1, Log: h.Log, Old: old.KeyID(), New: KeyOf(fresh, "service"), Entry: entry, At: time.Unix(1e9, 0).UTC()}
	b, err := r.Sign(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rotated(t testing.TB, h History, envelope []byte) History {
	t.Helper()
	next, err := h.Rotate(envelope)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// proves R-A9
func TestSignaturesOfEarlierKeysStillVerify(t *testing.T) {
	a, b, c, eve := newSigner(t), newSigner(t), newSigner(t), newSigner(t)
	h := NewHistory(KeyOf(a, "service"))
	h = rotated(t, h, rotation(t, h, a, b, 40))
	h = rotated(t, h, rotation(t, h, b, c, 90))
	dir := t.TempDir()
	if err := h.Save(dir); err != nil {
		t.Fatal(err)
	}
	h, err := LoadHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if h.First().ID != a.KeyID() || h.Current().ID != c.KeyID() || h.Keys[1].From != 41 || *h.Keys[1].UpTo != 90 || h.Log != LogOrigin(a.KeyID()) {
		t.Fatalf("%+v", h)
	}
	for name, s := range map[string]Signer{"first": a, "second": b, "in force": c} {
		if _, k, err := h.Verify(sign(t, Manifest, "{}", s), Manifest); err != nil || k.ID != s.KeyID() {
			t.Errorf("%s: %v, %v", name, k.ID, err)
		}
	}
	if _, _, err := h.Verify(sign(t, Manifest, "{}", eve), Manifest); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("another's: %v", err)
	}
	if _, _, err := h.Verify(sign(t, Manifest, "{}", a, eve), Manifest); err == nil {
		t.Error("two signatures, one of them another's")
	}
	if _, _, err := h.Verify(sign(t, Result, "{}", a), Manifest); err == nil {
		t.Error("another document")
	}
}

// proves R-A9
func TestOnlyThePreviousKeyCanAddAKey(t *testing.T) {
	a, b, eve := newSigner(t), newSigner(t), newSigner(t)
	start := NewHistory(KeyOf(a, "service"))
	good := rotated(t, start, rotation(t, start, a, b, 40))
	other := NewHistory(KeyOf(eve, "service"))
	for name, envelope := range map[string][]byte{
		"signed by another":      rotation(t, start, eve, b, 40),
		"of another log":         rotation(t, other, a, b, 40),
		"a second time":          rotation(t, start, a, eve, 41),
		"before it was in force": rotation(t, start, b, eve, 3),
	} {
		h := start
		if name == "a second time" || name == "before it was in force" {
			h = good
		}
		if _, err := h.Rotate(envelope); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, change := range map[string]func(*History){
		"another first key":        func(h *History) { h.Keys[0].Key = KeyOf(eve, "") },
		"another second key":       func(h *History) { h.Keys[1].Key = KeyOf(eve, "") },
		"another end":              func(h *History) { n := uint64(41); h.Keys[0].UpTo, h.Keys[1].From = &n, 42 },
		"a gap":                    func(h *History) { h.Keys[1].From = 50 },
		"a rotation is missing":    func(h *History) { h.Rotations = h.Rotations[:0] },
		"a key is missing":         func(h *History) { h.Keys = h.Keys[:1] },
		"another log":              func(h *History) { h.Log += "x" },
		"none in force":            func(h *History) { h.Keys[1].UpTo = h.Keys[0].UpTo },
		"format 2":                 func(h *History) { h.V = 2 },
		"another's rotation":       func(h *History) { h.Rotations[0] = json.RawMessage(rotation(t, start, eve, b, 40)) },
		"statements with an end":   func(h *History) { h.Statements = []Period{{Key: KeyOf(a, ""), UpTo: new(uint64)}} },
		"statements of an off key": func(h *History) { h.Statements = []Period{{Key: Key{ID: a.KeyID(), Public: b.Public()}}} },
	} {
		bad := rotated(t, start, rotation(t, start, a, b, 40))
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := bad.Save(t.TempDir()); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
	if err := good.Validate(); err != nil {
		t.Errorf("positive control: %v", err)
	}
}

func TestKeysOfStatementsFollowEachOther(t *testing.T) {
	a, b := newSigner(t), newECDSA(t)
	h, err := NewHistory(KeyOf(a, "service")).SignStatementsWith(KeyOf(a, ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.SignStatementsWith(KeyOf(b, ""), 0); err == nil {
		t.Error("two for one entry")
	}
	next, err := h.SignStatementsWith(KeyOf(b, ""), 7)
	if err != nil || *next.Statements[0].UpTo != 6 || next.Statements[1].From != 7 || h.Statements[0].UpTo != nil {
		t.Fatalf("%+v, %v", next, err)
	}
	if back, err := next.SignStatementsWith(KeyOf(a, ""), 9); err != nil || len(back.Statements) != 3 {
		t.Errorf("the first key again: %v", err)
	}
}

// proves R-A9
func TestActivateNextKeyReplacesTheServiceKey(t *testing.T) {
	dir := t.TempDir()
	old, err := CreateServiceKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := LoadHistory(dir); err != nil || h.Current().ID != old.KeyID() {
		t.Fatalf("a service that never rotated: %v", err)
	}
	next, err := CreateNextKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateNextKey(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("two next keys: %v", err)
	}
	if err := ActivateNextKey(dir); err != nil {
		t.Fatal(err)
	}
	if err := RemoveNextKey(dir); err != nil {
		t.Fatal(err)
	}
	now, err := OpenServiceKey(dir)
	if err != nil || now.KeyID() != next.KeyID() {
		t.Fatalf("%v, %v", now, err)
	}
	if k, err := LoadPublic(filepath.Join(dir, serviceKeyFile)); err != nil || k.ID != next.KeyID() {
		t.Errorf("the public half: %v, %v", k.ID, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
	if st, err := os.Stat(filepath.Join(dir, serviceKeyFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func FuzzParseHistory(f *testing.F) {
	a, err := NewEphemeral()
	if err != nil {
		f.Fatal(err)
	}
	b, err := NewEphemeral()
	if err != nil {
		f.Fatal(err)
	}
	h := NewHistory(KeyOf(a, "service"))
	h = rotated(f, h, rotation(f, h, a, b, 4))
	dir := f.TempDir()
	if err := h.Save(dir); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, historyFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseHistory(in)
		if err == nil && h.First().ID == a.KeyID() && len(h.Keys) > 1 && strings.TrimSuffix(string(in), "\n") != strings.TrimSuffix(string(good), "\n") && h.Keys[1].Key.ID != b.KeyID() {
			t.Fatalf("accepted a key without a rotation: %s", in)
		}
	})
}

func FuzzOpenRotation(f *testing.F) {
	a, err := NewEphemeral()
	if err != nil {
		f.Fatal(err)
	}
	b, err := NewEphemeral()
	if err != nil {
		f.Fatal(err)
	}
	good := rotation(f, NewHistory(KeyOf(a, "")), a, b, 4)
	f.Add(good)
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := OpenRotation(in, KeyOf(a, "")); (err == nil) != (string(in) == string(good)) {
			t.Fatalf("%v for %q", err, in)
		}
	})
}
