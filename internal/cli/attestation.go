package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) attestationCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "attestation ID", Short: "Print the signed statement of what a dispatch came to, for other tools to verify", Args: cobra.ExactArgs(1),
		Long: `Print the signed statement of what a dispatch came to: a DSSE envelope with an
in-toto Statement v1 and SLSA provenance v1, byte for byte as it was signed.

Every dispatch that has ended has one, also one that failed or was cancelled:
whoever wants work that was done must look for the outcome in it. It is about
the patch and the outputs; where there are none, about the result document.`,
		Example: `  bailiwick dispatch attestation ID --out statement.json
  bailiwickd key show --pem statements > statements.pem
  bailiwick dispatch patch ID --to work.patch
  cosign verify-blob-attestation --key statements.pem --signature statement.json \
    --type slsaprovenance1 --insecure-ignore-tlog work.patch`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				if file == "" {
					return r.Statement(cmd.Context(), id, t.Stdout)
				}
				return writeFile(file, func(w io.Writer) error { return r.Statement(cmd.Context(), id, w) })
			})
		},
	}
	cmd.Flags().StringVar(&file, "out", "", "write it to this new file")
	return cmd
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
