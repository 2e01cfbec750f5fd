package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Man makes the verb that writes the man pages of a program. then runs after it, with
// the folder; it may be nil.
func Man(then func(ctx context.Context, dir string) error) func(*Verb) {
	return func(v *Verb) {
		// In place of the root's: the pages need neither a home nor a service.
		v.PersistentPreRunE = func(*cobra.Command, []string) error { return nil }
		v.Do(func(ctx context.Context, args []string) error {
			if err := WriteMan(v.Root(), args[0]); err != nil || then == nil {
				return err
			}
			return then(ctx, args[0])
		})
	}
}

// WriteMan writes the man page of a command and of all commands below it. The
// same program always writes the same pages.
func WriteMan(cmd *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: pages are for everyone
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(ManPage(cmd)), 0o644); err != nil { //nolint:gosec // G306: as above
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := WriteMan(c, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// ManPage is the man page of a command, in roff with the man macros.
func ManPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"Bailiwick\"\n", quoteRoff(strings.ToUpper(pageName(cmd))), quoteRoff("bailiwick "+cmd.Root().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", roff(text))
	manCommands(&b, cmd)
	for _, part := range []struct{ title, text string }{
		{"OPTIONS", cmd.LocalFlags().FlagUsages()}, {"GLOBAL OPTIONS", cmd.InheritedFlags().FlagUsages()}, {"EXAMPLES", cmd.Example},
	} {
		if text := strings.TrimRight(part.text, "\n"); text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", part.title, roff(text))
		}
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, s := range exitStatuses() {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", s.code, roff(s.means))
	}
	fmt.Fprintf(&b, ".PP\n%s\n", roff(failures))
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(pageName(cmd.Parent())))
	}
	return b.String()
}

// exitStatus is an exit status of a command.
type exitStatus struct {
	code  int
	means string
}

// exitStatuses are those of docs/cli.md, on each page.
func exitStatuses() []exitStatus {
	return []exitStatus{
		{0, "done"},
		{1, "failed, or bad usage; for run patch --merge: conflicts"},
		{2, "only catalog plan --exit-code: there are changes"},
		{3, "denied; do not retry"},
		{4, "credentials: no passphrase, or caller or service could not be authenticated"},
		{5, "only run submit and run retry: the run exists already, and nothing was started"},
		{8, "not finished within the given time"},
		{9, "a person is needed: a dispatch ended with a question, or people approve each call"},
		{130, "interrupted"},
	}
}

// failures is what each page says about messages.
const failures = `A failure is a line on standard error; with -o json it is {"error": {"code", "message", "hint", "problems"}} there.`

// WriteHelpPage writes the man page of a program whose help is a text: a line with
// its usage, then a description.
func WriteHelpPage(dir, program, version, short, help string) error {
	usage, text, _ := strings.Cut(strings.TrimPrefix(help, "Usage: "), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"Bailiwick\"\n", quoteRoff(strings.ToUpper(program)), quoteRoff("bailiwick "+version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", roff(program), roff(short), roff(usage))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n.nf\n%s\n.fi\n.SH SEE ALSO\n.BR bailiwick (1)\n", roff(strings.Trim(text, "\n")))
	return os.WriteFile(filepath.Join(dir, program+".1"), []byte(b.String()), 0o644) //nolint:gosec // G306: pages are for everyone
}

// manCommands lists the commands below cmd under the headings of its help.
func manCommands(b *strings.Builder, cmd *cobra.Command) {
	list := func(title, group string) {
		first := true
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() {
				continue
			}
			if first {
				fmt.Fprintf(b, ".SS %s\n", quoteRoff(strings.TrimSuffix(title, ":")))
			}
			first = false
			fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(c)), roff(c.Short))
		}
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, g := range cmd.Groups() {
			list(g.Title, g.ID)
		}
		list("Commands", "")
	}
}

// roff escapes text, so that no part of it is a request or an escape sequence.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`).Replace(Plain(s))
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// quoteRoff makes text one argument of a request.
func quoteRoff(s string) string {
	return `"` + strings.ReplaceAll(roff(strings.ReplaceAll(s, "\n", " ")), `"`, `\(dq`) + `"`
}
