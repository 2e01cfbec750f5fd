package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func newRoot() *cobra.Command {
	return (&tree{Config: Config{Output: console.Output{Now: time.Now}}}).root()
}

// commandsOf lists a command and all commands below it.
func commandsOf(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		list = append(list, commandsOf(c)...)
	}
	return list
}

// shellWords splits a command line up to the first operator of the shell.
func shellWords(line string) (words []string) {
	word, quote, started := "", rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == ' ':
			if started {
				words = append(words, word)
			}
			word, started = "", false
		case strings.ContainsRune("|<>&", r):
			return words
		default:
			word, started = word+string(r), true
		}
	}
	if started {
		words = append(words, word)
	}
	return words
}

// checkExample parses an example as the program would.
func checkExample(root *cobra.Command, line string) error {
	words := shellWords(line)
	if words[0] != "bailiwick" {
		return nil // another program
	}
	cmd, rest, err := root.Find(words[1:])
	if err != nil || cmd.DisableFlagParsing {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

func TestEveryCommandHasAShortAndExamplesThatParse(t *testing.T) {
	for _, cmd := range commandsOf(newRoot()) {
		path := cmd.CommandPath()
		if s := cmd.Short; s == "" || s[:1] != strings.ToUpper(s[:1]) || strings.HasSuffix(s, ".") || len(s) > 100 {
			t.Errorf("%s: short help %q", path, s)
		}
		lines := strings.Split(strings.TrimSpace(cmd.Example), "\n")
		if cmd.Runnable() && len(lines) < 2 {
			t.Errorf("%s: %d examples, want at least 2", path, len(lines))
		}
		for _, line := range lines {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if err := checkExample(newRoot(), line); err != nil {
				t.Errorf("%s: example %q: %v", path, line, err)
			}
		}
		if len(cmd.Commands()) > 3 && len(cmd.Groups()) == 0 && path != "bailiwick token" {
			t.Errorf("%s: %d commands without headings", path, len(cmd.Commands()))
		}
	}
	// Controls: what a reader could copy and the program would refuse.
	for _, line := range []string{"bailiwick frobnicate", "bailiwick dispatch show", "bailiwick dispatch show ID --frob", "bailiwick audit list --first 1 --last 1"} {
		if checkExample(newRoot(), line) == nil {
			t.Errorf("control: example %q is accepted", line)
		}
	}
}

func TestManWritesAPagePerCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	beside := t.TempDir()
	for _, program := range []string{deployProgram, daemonProgram, verifyProgram} {
		if err := os.WriteFile(filepath.Join(beside, program), []byte("#!/bin/sh\necho $0 $* >> "+beside+"/log\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	status := Run(t.Context(), Config{Output: console.Output{Stdout: &out, Stderr: &errs, Now: time.Now}, Beside: beside, Version: "v1.2.3", Args: []string{"man", dir}})
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, &errs)
	}
	for _, cmd := range commandsOf(newRoot()) {
		b, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil || !bytes.Contains(b, []byte(".SH EXAMPLES")) && cmd.HasParent() {
			t.Errorf("%s: %v, %.100s", cmd.CommandPath(), err, b)
		}
	}
	log, err := os.ReadFile(filepath.Join(beside, "log"))
	want := filepath.Join(beside, deployProgram) + " man " + dir + "\n" + filepath.Join(beside, daemonProgram) + " man " + dir + "\n" + filepath.Join(beside, verifyProgram) + " --help\n"
	if err != nil || string(log) != want {
		t.Errorf("the other programs were started as %q, %v; want %q", log, err, want)
	}
}

// The texts of flags repeat what the code has.
func TestTextsOfFlagsAgreeWithTheCode(t *testing.T) {
	var clients []string
	for _, c := range mcpClients() {
		clients = append(clients, c.name)
	}
	for _, c := range []struct{ verb, flag, want string }{
		{"audit list", "last", fmt.Sprintf("only the number newest entries, at most %d", api.MaxLogPage)},
		{"audit watch", "last", fmt.Sprintf("only the number newest entries, at most %d", api.MaxLogPage)},
		{"mcp config", "client", "the client: " + strings.Join(clients, ", ")},
	} {
		cmd, _, err := newRoot().Find(strings.Fields(c.verb))
		if err != nil {
			t.Fatal(err)
		}
		f := cmd.Flag(c.flag)
		if f == nil {
			t.Fatalf("%s has no flag --%s", c.verb, c.flag)
		}
		if got := strings.ReplaceAll(f.Usage, "`", ""); got != c.want {
			t.Errorf("%s --%s: text %q, want %q", c.verb, c.flag, got, c.want)
		}
	}
}
