package deploycli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// maxEnrolment is the largest enrolment, in bytes.
const maxEnrolment = 64 << 10

func (p *operatorVerbs) passkeyCommand(v *console.Verb) {
	var synced bool
	var name string
	v.Do(func(_ context.Context, _ []string) error {
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
	})
	v.Flag(&synced, "synced")
	v.Flag(&name, "name")
}
