package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

func (t *dispatchVerbs) attestationCommand() *cobra.Command {
	var file string
	var bundle bool
	cmd := &cobra.Command{
		Use: "attestation ID", Short: "Print the attestation of a dispatch's outcome, for other tools to verify", Args: cobra.ExactArgs(1),
		Long: `Print the attestation of a dispatch's outcome: a DSSE envelope with an in-toto Statement v1
and SLSA provenance v1, byte for byte as it was signed.

Every ended dispatch has one, even if it failed or was cancelled: check the outcome in it
before you use the work. Its subjects are the patch and the outputs, or the result document
if there are none.`,
		Example: console.Examples("bailiwick dispatch attestation ID --bundle --out work.sigstore.json", "bailiwick dispatch patch ID --to work.patch", "bailiwickd key show --pem statements > statements.pem",
			"cosign verify-blob-attestation --key statements.pem --bundle work.sigstore.json --type slsaprovenance1 --insecure-ignore-tlog work.patch"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				return t.writeTo(file, func(w io.Writer) error {
					if !bundle {
						return r.Statement(cmd.Context(), id, w)
					}
					var b bytes.Buffer
					if err := r.Statement(cmd.Context(), id, &b); err != nil {
						return err
					}
					return writeBundle(w, b.Bytes())
				})
			})
		},
	}
	cmd.Flags().BoolVar(&bundle, "bundle", false, "wrap it as a Sigstore bundle, for cosign --bundle")
	cmd.Flags().StringVar(&file, "out", "", "write it to this new file")
	return cmd
}

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid,omitempty"`
	Sig   string `json:"sig"`
}

// sigstoreBundle is a Sigstore bundle, version 0.3, for a verifier that has the
// key.
type sigstoreBundle struct {
	MediaType string   `json:"mediaType"`
	Material  material `json:"verificationMaterial"`
	Envelope  envelope `json:"dsseEnvelope"`
}

type material struct {
	PublicKey struct {
		Hint string `json:"hint"`
	} `json:"publicKey"`
}

// writeBundle writes a signed statement as a Sigstore bundle. The key id is not
// signed and becomes the hint, because verifiers compute ids by their own rules.
func writeBundle(w io.Writer, statement []byte) error {
	out := sigstoreBundle{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json"}
	if err := canon.Decode(statement, &out.Envelope); err != nil {
		return fmt.Errorf("statement: %w", err)
	}
	if len(out.Envelope.Signatures) != 1 {
		return fmt.Errorf("statement: %d signatures, want one", len(out.Envelope.Signatures))
	}
	s := &out.Envelope.Signatures[0]
	out.Material.PublicKey.Hint, s.KeyID = s.KeyID, ""
	text, err := canon.Marshal(out)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return err
}
