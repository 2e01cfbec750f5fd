package cli

import (
	"bytes"
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// completer returns candidates for a word of a command line; args are the
// arguments before it.
type completer func(ctx context.Context, c *client.Conn, args []string) ([]candidate, error)

// candidate is a word and what it means.
type candidate struct{ word, about string }

// completeTimeout bounds how long a shell waits. Without an answer it completes
// nothing.
const completeTimeout = 2 * time.Second

// completeList is how many ids are offered, newest first.
const completeList = 100

// safeWord is what may be put on a command line: no word that a shell would read
// as more than itself: agents choose some of them.
var safeWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@+/~=-]{0,255}$`)

// completion completes words of a command line, and suggests others for wrong ones.
type completion struct{ *tree }

// add has every verb below cmd complete its arguments, by their names in
// its usage line, and the values of its flags, by their names.
func (t *completion) add(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		t.add(c)
	}
	noun := ""
	if cmd.HasParent() {
		noun = cmd.Parent().Name()
	}
	t.addSuggestions(cmd, noun)
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = t.completeArgs(noun, operandNames(cmd))
	}
	own := cmd.NonInheritedFlags()
	for name, c := range t.flagCompleters(noun, cmd.Name()) {
		if _, has := cmd.GetFlagCompletionFunc(name); own.Lookup(name) != nil && !has {
			_ = cmd.RegisterFlagCompletionFunc(name, t.ask(c)) // it fails only if there is one already
		}
	}
}

// operandNames returns the names of the arguments in a usage line; of the last one
// there may be any number.
func operandNames(cmd *cobra.Command) (names []string) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "--") {
			break
		}
		names = append(names, word)
	}
	return names
}

// completeArgs completes the arguments of a verb.
func (t *completion) completeArgs(noun string, names []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, name := t.argCompleter(cmd, noun, names, len(args))
		if strings.HasPrefix(name, "FILE") || name == "DIR" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.ask(c)(cmd, args, word)
	}
}

// argCompleter returns the completer of the argument at a place, or nil, and the name of
// the argument in the usage of its verb.
func (t *completion) argCompleter(cmd *cobra.Command, noun string, names []string, at int) (completer, string) {
	if n := len(names); n > 0 && at >= n && strings.HasSuffix(names[n-1], "...") {
		at = n - 1
	}
	if cmd.Name() == "can" {
		return t.canWords, ""
	}
	if at >= len(names) {
		return nil, ""
	}
	name := strings.TrimSuffix(strings.Trim(names[at], "[]"), "...")
	return t.argCompleters(noun)[name], name
}

// ask asks a running service. It starts none, and is silent if it has no
// answer.
func (t *completion) ask(complete completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		c := t.connect(false)
		defer c.Close()
		list, err := complete(ctx, c, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, c := range list {
			if safeWord.MatchString(c.word) && strings.HasPrefix(c.word, word) && !slices.Contains(args, c.word) {
				words = append(words, cobra.CompletionWithDesc(c.word, console.Line(c.about)))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// argCompleters returns the completers of arguments by their names in the usage of
// a verb of a noun.
func (t *completion) argCompleters(noun string) map[string]completer {
	id := t.dispatchIDs
	switch noun {
	case "stop":
		id = stopIDs
	case "token":
		id = tokenIDs
	case "approval":
		id = approvalIDs
	case "operators":
		id = operatorKeyIDs
	}
	name := artifactNames(api.Kind(noun))
	if noun == "queue" {
		name = queueNames
	}
	number := fixed() // of an entry
	if noun == "dispatch" {
		number = callNumbers
	}
	return map[string]completer{
		"NUMBER": number, "ID": id, "NAME": name, "RUN": runIDs, "TASK": taskIDs, "SUBAGENT": artifactNames(api.KindSubagent), "QUEUE": queueNames,
		"PRINCIPAL": principals, "TIER": fixed(tierNames()...), "PATH": outputPaths,
	}
}

// flagCompleters returns the completers of a verb's flags by name. Other flags complete
// files.
func (t *completion) flagCompleters(noun, verb string) map[string]completer {
	states := fixed(append(strs(api.Events()), "open", "ended")...)
	switch {
	case noun == "run" && verb == "list":
		states = fixed(append(strs(api.RunStates()), "open", "settled")...)
	case noun == "run":
		states = fixed(strs(api.TaskStates())...)
	}
	to := map[string]completer{
		"output": fixed("text", "json", "jsonl", "name"), "state": states, "run": runIDs, "dispatch": t.dispatchIDs, "task": taskIDs,
		"principal": principals, "target": artifactNames(api.KindTarget), "source": artifactNames(api.KindSource), "env": artifactNames(api.KindEnv),
		"capability": artifactNames(api.KindCapability), "subagent": artifactNames(api.KindSubagent), "role": artifactNames(api.KindRole), "queue": queueNames,
		"client": fixed(clientNames()...), "decision": fixed("allow", "deny"), "after": t.dispatchIDs, "tool": t.toolIDs,
	}
	if noun == "run" {
		to["after"], to["from"] = runIDs, taskIDs
	}
	if noun == "audit" {
		delete(to, "after") // an entry's number
	}
	for _, plain := range []string{"set", "reason", "since", "until", "timeout", "wait", "id", "last", "attempt", "offset", "option", "idle"} {
		to[plain] = fixed()
	}
	return to
}

// completeDelegated has the program that carries out a verb complete its words.
func (t *completion) completeDelegated(program, verb string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		path := t.sibling(program)
		child := exec.CommandContext(ctx, path, slices.Concat([]string{cobra.ShellCompRequestCmd, verb}, args, []string{word})...) //nolint:gosec // G204: a program in the folder of this one
		child.Env = t.Env
		out, err := child.Output()
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return parseCompletions(out)
	}
}

// parseCompletions reads what a program of the installation answered: a word with
// an optional description per line, and the directive.
func parseCompletions(out []byte) (words []cobra.Completion, directive cobra.ShellCompDirective) {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	last, ok := strings.CutPrefix(lines[len(lines)-1], ":")
	if !ok {
		return nil, cobra.ShellCompDirectiveDefault
	}
	for _, d := range last {
		if d < '0' || d > '9' {
			return nil, cobra.ShellCompDirectiveDefault
		}
		directive = directive*10 + cobra.ShellCompDirective(d-'0')
	}
	for _, line := range lines[:len(lines)-1] {
		word, about, _ := strings.Cut(line, "\t")
		if safeWord.MatchString(strings.TrimLeft(word, "-")) {
			words = append(words, cobra.CompletionWithDesc(word, console.Line(about)))
		}
	}
	return words, directive
}
