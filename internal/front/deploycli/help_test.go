package deploycli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

var shellWord = regexp.MustCompile(`'[^']*'|[^' ]+`)

// checkExample parses an example as this program would. It runs behind the front
// door, whose name the examples have.
func checkExample(line string) error {
	line, _, _ = strings.Cut(line, " <")
	line, _, _ = strings.Cut(line, " &&")
	cmd, rest, err := (&program{}).root().Find(shellWord.FindAllString(line, -1)[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	return err
}

func TestEveryCommandHasAShortAndExamplesThatParse(t *testing.T) {
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			check(c)
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q", cmd.CommandPath(), cmd.Short)
		}
		lines := strings.Split(cmd.Example, "\n")
		if cmd.Runnable() && len(lines) < 2 {
			t.Errorf("%s: %d examples, want at least 2", cmd.CommandPath(), len(lines))
		}
		for _, line := range lines {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if err := checkExample(strings.TrimPrefix(line, "sudo ")); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			}
		}
	}
	check((&program{}).root())
	for _, line := range []string{"bailiwick frobnicate", "bailiwick catalog diff", "bailiwick key show --frob"} {
		if checkExample(line) == nil {
			t.Errorf("control: example %q is accepted", line)
		}
	}
}

// The text of --agent repeats the agents that there are.
func TestTheTextOfAgentAgreesWithTheCode(t *testing.T) {
	cmd, _, err := (&program{}).root().Find([]string{"init"})
	if err != nil {
		t.Fatal(err)
	}
	want := "agent of the sample: " + api.OneOf(api.Agents())
	if got := strings.ReplaceAll(cmd.Flag("agent").Usage, "`", ""); got != want {
		t.Errorf("init --agent: text %q, want %q", got, want)
	}
}
