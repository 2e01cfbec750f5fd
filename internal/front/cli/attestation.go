package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *dispatchVerbs) attestationCommand(v *console.Verb) {
	var file string
	var bundle bool
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		return t.writeTo(file, func(w io.Writer) error {
			if !bundle {
				return r.Statement(ctx, id, w)
			}
			var b bytes.Buffer
			if err := r.Statement(ctx, id, &b); err != nil {
				return err
			}
			return writeBundle(w, b.Bytes())
		})
	})
	v.Flag(&bundle, "bundle")
	v.Flag(&file, "out")
}

// writeBundle writes a signed statement as a Sigstore bundle, version 0.3, for a
// verifier that has the key. The key id is not signed and becomes the hint,
// because verifiers compute ids by their own rules.
func writeBundle(w io.Writer, statement []byte) error {
	var envelope struct {
		PayloadType string              `json:"payloadType"`
		Payload     string              `json:"payload"`
		Signatures  []map[string]string `json:"signatures"`
	}
	if err := canon.Decode(statement, &envelope); err != nil {
		return fmt.Errorf("statement: %w", err)
	}
	if len(envelope.Signatures) != 1 {
		return fmt.Errorf("statement: %d signatures, want one", len(envelope.Signatures))
	}
	signature := envelope.Signatures[0]
	hint := signature["keyid"]
	delete(signature, "keyid")
	text, err := canon.Marshal(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": hint}},
		"dsseEnvelope":         envelope,
	})
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return err
}
