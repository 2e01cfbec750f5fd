package cli

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *tree) webServeCommand(v *console.Verb) {
	var address, sign string
	var steer bool
	v.Do(func(ctx context.Context, _ []string) error {
		var args []string
		if address != "" {
			args = append(args, "--addr", address)
		}
		if steer {
			args = append(args, "--steer")
		}
		if sign != "" {
			args = append(args, "--sign-addr", sign)
		}
		return t.web(ctx, "serve", args...)
	})
	v.Flag(&sign, "sign-addr")
	v.Flag(&address, "addr")
	v.Flag(&steer, "steer")
}

func (t *tree) webOpenCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error { return t.web(ctx, "open") })
}

// web executes a verb of bailiwick-web.
func (t *tree) web(ctx context.Context, verb string, args ...string) error {
	args = append([]string{verb, "-o", t.Format}, args...)
	if t.socket != "" {
		args = append(args, "--socket", t.socket)
	}
	return t.execute(ctx, webProgram, args, t.Stdin, t.File())
}
