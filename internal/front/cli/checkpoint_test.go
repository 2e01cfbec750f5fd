package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

type checkpointKey ed25519.PrivateKey

func (k checkpointKey) Public() []byte { return ed25519.PrivateKey(k).Public().(ed25519.PublicKey) }

func (k checkpointKey) Sign(_ context.Context, b []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), b), nil
}

// An auditor may have a checkpoint or the file of an anchor.
func TestNewestCheckpointReadsAnchorFiles(t *testing.T) {
	k := checkpointKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	sign := func(size uint64) string {
		b, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: "x", Size: size}, k)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	line := func(size uint64) string {
		b, err := json.Marshal(sign(size))
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	for text, want := range map[string]string{
		sign(7):                            sign(7),
		line(7):                            sign(7),
		line(7) + "\n" + line(9) + line(8): sign(9),
		line(7) + "\"of a power c\x00\n" + "\"no": sign(7),
		"":                "",
		"{}\n":            "",
		`"no checkpoint"`: "",
	} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := newestCheckpoint(path)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
