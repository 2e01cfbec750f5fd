package console

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bailiwick-dev/bailiwick/api"
)

// invalidUsage is the error of a command line that cmd does not take.
func invalidUsage(cmd *cobra.Command, format string, args ...any) error {
	return api.Errorf(api.CodeInvalid, format, args...).WithHint("want: %s; see: %s --help", cmd.UseLine(), cmd.CommandPath())
}

// explainArgs has a command and those below it say in our words what is wrong
// with their arguments.
func explainArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explainArgs(c)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	if cmd.HasSubCommands() && !cmd.Runnable() { // cobra would show the help and succeed
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if cmd.HasSubCommands() && len(args) > 0 {
			return unknownVerb(cmd, args[0])
		}
		if wrong := wrongCount(cmd, args); wrong != nil {
			return wrong
		}
		return invalidUsage(cmd, "%w", err)
	}
}

// wrongCount is the error of more or fewer arguments than the usage line of cmd names.
func wrongCount(cmd *cobra.Command, args []string) error {
	want, most := operands(cmd.Use)
	switch {
	case len(args) < len(want):
		return invalidUsage(cmd, "argument %s is missing", want[len(args)])
	case most >= 0 && len(args) > most:
		return invalidUsage(cmd, "unexpected argument %q", args[most])
	}
	return nil
}

// explainHelp has the help command fail for a verb that does not exist.
func explainHelp(root *cobra.Command) {
	help, _, err := root.Find([]string{"help"})
	if err != nil || help == root {
		return
	}
	help.RunE = func(_ *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		switch {
		case err != nil:
			return cobraError(root, err)
		case len(rest) > 0 && about.HasSubCommands():
			return unknownVerb(about, rest[0])
		}
		about.InitDefaultHelpFlag()
		return about.Help()
	}
}

// unknownVerb is the error of a word that no command below cmd has.
func unknownVerb(cmd *cobra.Command, word string) error {
	e := api.Errorf(api.CodeInvalid, "unknown verb %q", word)
	// Of two letters, too many other words differ in two.
	cmd.SuggestionsMinimumDistance = min(2, max(1, len(word)-2))
	var similar []string
	for _, name := range cmd.SuggestionsFor(word) {
		similar = append(similar, cmd.CommandPath()+" "+name)
	}
	meant, named := namesakes(cmd.Root(), word)
	all := slices.Concat(similar, meant, named)
	if !cmd.HasParent() { // no noun was given: what people mean by the word comes first
		all = slices.Concat(meant, similar, named)
	}
	var like []string
	for _, path := range all {
		if !slices.Contains(like, path) {
			like = append(like, path)
		}
	}
	if len(like) > 0 {
		return e.WithHint("did you mean: %s; see: %s --help", strings.Join(like[:min(len(like), maxSuggestions)], ", "), cmd.CommandPath())
	}
	return e.WithHint("see: %s --help", cmd.CommandPath())
}

// maxSuggestions bounds what is offered for an unknown verb.
const maxSuggestions = 4

// namesakes returns the commands below cmd that say they stand for word, and those
// that have it as their name.
func namesakes(cmd *cobra.Command, word string) (meant, named []string) {
	for _, c := range cmd.Commands() {
		switch {
		case slices.Contains(c.SuggestFor, word):
			meant = append(meant, c.CommandPath())
		case c.Name() == word:
			named = append(named, c.CommandPath())
		}
		m, n := namesakes(c, word)
		meant, named = append(meant, m...), append(named, n...)
	}
	return meant, named
}

// operands returns the arguments that the first line of a help text requires, and
// how many there may be at most; -1 is any number.
func operands(use string) (want []string, most int) {
	words := strings.Fields(use)[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case strings.HasPrefix(word, "-"): // a flag that the verb requires, and its value
			i++
			continue
		case word == "[flags]" || strings.HasPrefix(word, "[-"):
			continue
		case !strings.HasPrefix(word, "["):
			want = append(want, strings.TrimSuffix(word, "..."))
		}
		if strings.HasSuffix(strings.TrimSuffix(word, "]"), "...") {
			return want, -1
		}
		most++
	}
	return want, most
}

// flagError says in our words what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return invalidUsage(cmd, "unknown flag %s", name)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return invalidUsage(cmd, "--%s: want a value", missing.GetFlag().Name)
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return invalidUsage(cmd, "--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), wantedValue(invalid))
	}
	if syntax, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return invalidUsage(cmd, "%s is not a flag", syntax.GetSpecifiedFlag())
	}
	return invalidUsage(cmd, "%w", err)
}

// wantedValue is what a flag wants instead of its value.
func wantedValue(e *pflag.InvalidValueError) string {
	switch kind := e.GetFlag().Value.Type(); {
	case kind == "bool":
		return "want true or false"
	case kind == "duration":
		return "want a duration such as 90s, 5m or 2h"
	case strings.HasPrefix(kind, "uint"):
		return "want a whole number of at least 0"
	case strings.HasPrefix(kind, "int"), kind == "count":
		return "want a whole number"
	case strings.HasPrefix(kind, "float"):
		return "want a number"
	}
	return errors.Unwrap(e).Error()
}

// Errors of cobra that have no type.
var (
	requiredFlags  = regexp.MustCompile(`^required flag\(s\) "(.*)" not set$`)
	exclusiveFlags = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	togetherFlags  = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`)
	noCommand      = regexp.MustCompile(`^unknown command ("(?:[^"\\]|\\.)*") for `)
	oneOfFlags     = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
)

// cobraError says in our words what cobra itself found wrong with a command line.
func cobraError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if m := noCommand.FindStringSubmatch(text); m != nil {
		if word, bad := strconv.Unquote(m[1]); bad == nil {
			return unknownVerb(cmd, word)
		}
	}
	if m := requiredFlags.FindStringSubmatch(text); m != nil {
		return invalidUsage(cmd, "%s required", isOrAre(strings.Split(m[1], `", "`), " and "))
	}
	if m := exclusiveFlags.FindStringSubmatch(text); m != nil {
		return invalidUsage(cmd, "%s exclude each other", flagNames(strings.Fields(m[1]), " and "))
	}
	if m := togetherFlags.FindStringSubmatch(text); m != nil {
		return invalidUsage(cmd, "%s missing: %s belong together", isOrAre(strings.Fields(m[2]), " and "), flagNames(strings.Fields(m[1]), " and "))
	}
	if m := oneOfFlags.FindStringSubmatch(text); m != nil {
		return invalidUsage(cmd, "want %s", flagNames(strings.Fields(m[1]), " or "))
	}
	return err
}

func flagNames(names []string, between string) string {
	names = slices.Clone(names)
	for i := range names {
		names[i] = "--" + names[i]
	}
	return strings.Join(names, between)
}

func isOrAre(names []string, between string) string {
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s", flagNames(names, between), verb)
}
