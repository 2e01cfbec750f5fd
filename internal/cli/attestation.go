package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

func (t *tree) attestationCommand() *cobra.Command {
	var file string
	var bundle bool
	cmd := &cobra.Command{
		Use: "attestation ID", Short: "Print the signed statement of what a dispatch came to, for other tools to verify", Args: cobra.ExactArgs(1),
		Long: `Print the signed statement of what a dispatch came to: a DSSE envelope with an
in-toto Statement v1 and SLSA provenance v1, byte for byte as it was signed.

Every dispatch that has ended has one, also one that failed or was cancelled:
whoever wants work that was done must look for the outcome in it. It is about
the patch and the outputs; where there are none, about the result document.`,
		Example: `  bailiwick dispatch attestation ID --bundle --out work.sigstore.json
  bailiwick dispatch patch ID --to work.patch
  bailiwickd key show --pem statements > statements.pem
  cosign verify-blob-attestation --key statements.pem --bundle work.sigstore.json \
    --type slsaprovenance1 --insecure-ignore-tlog work.patch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				give := func(w io.Writer) error { return r.Statement(cmd.Context(), id, w) }
				if bundle {
					give = func(w io.Writer) error {
						return asBundle(w, func(w io.Writer) error { return r.Statement(cmd.Context(), id, w) })
					}
				}
				if file == "" {
					return give(t.Stdout)
				}
				return writeFile(file, give)
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

// sigstoreBundle is version 0.3 of that format, for a key that the verifier
// has.
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

// asBundle writes the envelope that give writes as a Sigstore bundle. The id of
// the key is not signed, and becomes the hint: there a verifier does not take
// it for an id by its own rules.
func asBundle(w io.Writer, give func(io.Writer) error) error {
	var b bytes.Buffer
	if err := give(&b); err != nil {
		return err
	}
	out := sigstoreBundle{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json"}
	if err := canon.Decode(b.Bytes(), &out.Envelope); err != nil {
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

func (t *tree) auditTrustCommand() *cobra.Command {
	return &cobra.Command{
		Use: "trust", Short: "Print the trust file that an auditor of this installation should be given", Args: cobra.NoArgs,
		Long: `Print the trust file that an auditor of this installation should be given.

It says whose signatures count. Evidence is only worth something to an auditor
who got this file, or what is in it, otherwise than with the evidence, and from
somebody whom the auditor believes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.conn()
			defer c.Close()
			if err := c.Operator().Trust(cmd.Context(), t.Stdout); err != nil {
				return err
			}
			fmt.Fprintln(t.Stderr, "hand this to auditors over another channel than the evidence, from somebody whom they believe; a copy that came with the evidence proves nothing")
			return nil
		},
	}
}
