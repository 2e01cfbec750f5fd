package deploycli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// maxEnrolment is the largest enrolment, in bytes.
const maxEnrolment = 64 << 10

func (p *program) operatorPasskeyCommand() *cobra.Command {
	var synced bool
	var name string
	cmd := &cobra.Command{
		Use: "passkey", Short: "Make an operator key of a passkey that a browser enrolled", Args: cobra.NoArgs,
		Long: `Read an enrolment from standard input, as the signing page shows it, check that the
authenticator verified its user and does not copy the passkey to other devices, and write
the public half of an operator key to standard output. The passkey signs nothing until an
operator adds it: bailiwick operators add FILE.

The key names the page that may ask for signatures, which is the one that enrolled it.`,
		Example: console.Examples("bailiwick operator passkey < enrolment.json > ann.pub", "bailiwick operator passkey --name ann < enrolment.json > ann.pub"),
		RunE: func(*cobra.Command, []string) error {
			b, err := io.ReadAll(io.LimitReader(p.Stdin, maxEnrolment+1))
			if err != nil {
				return err
			}
			e, err := seal.ParseEnrolment(b)
			if err == nil && name != "" {
				e.Name = name
			}
			var k seal.Key
			if err == nil {
				k, err = e.Key(synced)
			}
			if err != nil {
				return api.Errorf(api.CodeInvalid, "no key was written: %w", err).WithHint("enrol a passkey at the signing page, and pass what it shows")
			}
			public, err := canon.Marshal(k)
			if err != nil {
				return err
			}
			if _, err := p.Stdout.Write(append(public, '\n')); err != nil {
				return err
			}
			fmt.Fprintf(p.Stderr, "passkey %s %s: signs decisions at %s\n", k.ID, visible(k.Name), strings.Join(k.Passkey.Origins, ", "))
			return nil
		},
	}
	cmd.Flags().BoolVar(&synced, "synced", false, "allow a passkey that its authenticator copies to other devices")
	cmd.Flags().StringVar(&name, "name", "", "name of the key's holder, for people (default that of the enrolment)")
	return cmd
}
