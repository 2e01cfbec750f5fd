package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *dispatchVerbs) attestationCommand() *cobra.Command {
	var file string
	var bundle bool
	cmd := t.verb(&cobra.Command{
		Use: "attestation ID", Short: "Print the attestation of a dispatch's outcome, for other tools to verify", Args: cobra.ExactArgs(1),
		Long: `Print the attestation of a dispatch's outcome: a DSSE envelope with an in-toto Statement v1
and SLSA provenance v1, byte for byte as it was signed.

Every ended dispatch has one, even if it failed or was cancelled: check the outcome in it
before you use the work. Its subjects are the patch and the outputs or, without them, the
result document.`,
		Example: console.Examples("bailiwick dispatch attestation ID --bundle --out work.sigstore.json", "bailiwick dispatch patch ID --to work.patch", "bailiwickd key show --pem statements > statements.pem",
			"cosign verify-blob-attestation --key statements.pem --bundle work.sigstore.json --type slsaprovenance1 --insecure-ignore-tlog work.patch"),
	}, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
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
	cmd.Flags().BoolVar(&bundle, "bundle", false, "wrap it as a Sigstore bundle, for cosign --bundle")
	cmd.Flags().StringVar(&file, "out", "", "write it to this new file")
	return cmd
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
