package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// webNoun has the verbs of the page, which bailiwick-web carries out.
func (t *tree) webNoun() *cobra.Command {
	return console.Noun("web", "Serve the page to a browser on this machine", console.Group{Title: "Verbs:", Commands: []*cobra.Command{t.webServeCommand(), t.webOpenCommand()}})
}

func (t *tree) webServeCommand() *cobra.Command {
	var address, sign string
	var steer bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the page until interrupted, and print a code to sign in with", Args: cobra.NoArgs,
		Long: `Serve the page on this machine until interrupted, and print its address and a code to sign in
with. The page shows what this account may see, and only this account can connect to it. It
reads, unless --steer is given; it never decides. It needs a running service: bailiwick up.`,
		Example: console.Examples("bailiwick web serve", "bailiwick web serve --steer --addr 127.0.0.1:8080", "bailiwick web serve --sign-addr 127.0.0.1:7719"),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			return t.web(cmd.Context(), "serve", args...)
		},
	}
	cmd.Flags().StringVar(&sign, "sign-addr", "", "`HOST:PORT` of this machine for the signing page, such as 127.0.0.1:7719 (default: it is not served)")
	cmd.Flags().StringVar(&address, "addr", "", "`HOST:PORT` of this machine; port 0 is a free one (default 127.0.0.1:7718)")
	cmd.Flags().BoolVar(&steer, "steer", false, "serve the forms that answer, cancel, pause, resume and retry, too")
	return cmd
}

func (t *tree) webOpenCommand() *cobra.Command {
	return &cobra.Command{
		Use: "open", Short: "Print the address of the page and a code to sign in with", Args: cobra.NoArgs,
		Long: `Print the address of the page that is being served, and a code to sign in with. The code is
valid once, for a minute, and an earlier one ends.`,
		Example: console.Examples("bailiwick web open", "bailiwick web open -o json"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.web(cmd.Context(), "open") },
	}
}

// web executes a verb of bailiwick-web.
func (t *tree) web(ctx context.Context, verb string, args ...string) error {
	args = append([]string{verb, "-o", t.Format}, args...)
	if t.socket != "" {
		args = append(args, "--socket", t.socket)
	}
	return t.execute(ctx, webProgram, args, t.Stdin, t.File())
}
