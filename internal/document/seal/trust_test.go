package seal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestATrustRootRoundTripsThroughItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "trust.json")
	want := TrustRoot{V: 1, Threshold: 2, Keys: []Key{KeyOf(newSigner(t), "ann"), KeyOf(newSigner(t), "bob")}}
	if err := CreateTrustRoot(path, want); err != nil {
		t.Fatal(err)
	}
	if err := CreateTrustRoot(path, want); err == nil {
		t.Fatal("a trust root was overwritten")
	}
	got, err := LoadTrustRoot(path)
	if err != nil || got.Threshold != 2 || len(got.Keys) != 2 || got.Keys[1].ID != want.Keys[1].ID {
		t.Fatalf("got %+v, err %v", got, err)
	}
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTrustRoot(path); err == nil {
		t.Fatal("a trust root that others may write was accepted")
	}
}

// proves R-B5
func TestATrustRootIsReadStrictly(t *testing.T) {
	a, b := KeyOf(newSigner(t), "a"), KeyOf(newSigner(t), "b")
	encode := func(r TrustRoot) string {
		out, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	good := encode(TrustRoot{V: 1, Threshold: 1, Keys: []Key{a, b}})
	if _, err := ParseTrustRoot([]byte(good)); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	bad := map[string]string{
		"empty":             "",
		"two line feeds":    good + "\n",
		"indented":          strings.Replace(good, ",", ", ", 1),
		"unknown member":    strings.Replace(good, `{"id"`, `{"admin":true,"id"`, 1),
		"other case":        strings.Replace(good, `"threshold":1`, `"Threshold":1`, 1),
		"threshold missing": strings.Replace(good, `"threshold":1,`, ``, 1),
		"threshold 0":       strings.Replace(good, `"threshold":1`, `"threshold":0`, 1),
		"threshold 3":       strings.Replace(good, `"threshold":1`, `"threshold":3`, 1),
		"format 2":          strings.Replace(good, `"v":1`, `"v":2`, 1),
		"key listed twice":  strings.Replace(good, string(b.ID), string(a.ID), 1),
		"id of another key": strings.Replace(good, string(a.ID), string(b.ID), 1),
		"too large":         good + strings.Repeat(" ", maxTrustRoot),
	}
	for name, text := range bad {
		if _, err := ParseTrustRoot([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	twice := TrustRoot{V: 1, Threshold: 2, Keys: []Key{a, a}}
	if err := twice.Validate(); err == nil {
		t.Error("one key listed twice reaches a threshold of two")
	}
}

// FuzzParseTrustRoot: what is accepted is valid and has one encoding.
func FuzzParseTrustRoot(f *testing.F) {
	s, err := NewEphemeral()
	if err != nil {
		f.Fatal(err)
	}
	good, err := RootOf(KeyOf(s, "ann")).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"keys":[],"threshold":0,"v":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseTrustRoot(b)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil || strings.TrimSuffix(string(b), "\n") != strings.TrimSuffix(string(again), "\n") {
			t.Fatalf("accepted %q, encodes to %q, err %v", b, again, err)
		}
	})
}
