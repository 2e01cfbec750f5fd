package console

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Manual is what people read about the commands of a program. It is a Markdown text:
//
//   - A heading is the usage line of a command or, with a colon at its end, the title of
//     a group of commands. Deeper headings are about the commands below.
//   - The first paragraph is the short help, and further ones, as they are, the long help.
//   - An item "- `-q, --quiet`: do not show the log" describes a flag of the command, or
//     one of commands below it that do not describe theirs.
//   - A block of code has the examples. Without one, a command has the first of those below.
type Manual struct {
	use, short, long string
	group            string // the title that the command is under
	examples         []string
	flags            map[string]flagText
	above            *Manual
	groups           []string
	below            []*Manual
}

type flagText struct{ short, usage string }

var flagItem = regexp.MustCompile("^- `(?:-(\\w), )?--([\\w-]+)`: (.*)$")

// ParseManual reads the manual of a program. A later text continues headings of earlier
// ones. The texts are part of the program: it panics if one is malformed.
func ParseManual(texts ...string) *Manual {
	root := &Manual{flags: map[string]flagText{}}
	for _, text := range texts {
		root.read(text)
	}
	return root
}

func (m *Manual) read(text string) {
	type place struct {
		*Manual
		group string
	}
	at := [7]place{{Manual: m}} // where the headings of each level are
	of, example := m, false
	for line := range strings.SplitSeq(text, "\n") {
		title := strings.TrimLeft(line, "#")
		level := len(line) - len(title)
		title = strings.TrimSpace(title)
		item := flagItem.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "```"):
			example = !example
		case example:
			of.examples = append(of.examples, line)
		case level == 1:
			m.use, of, at[1] = title, m, at[0]
		case level > 1 && strings.HasSuffix(title, ":"):
			at[level] = place{at[level-1].Manual, title}
			if above := at[level].Manual; !slices.Contains(above.groups, title) {
				above.groups = append(above.groups, title)
			}
		case level > 1:
			of = at[level-1].child(title, at[level-1].group)
			at[level] = place{Manual: of}
		case item != nil:
			of.flags[item[2]] = flagText{item[1], item[3]}
		case of.short == "":
			of.short = line
		default:
			of.long = strings.TrimLeft(of.long+line+"\n", "\n")
		}
	}
}

// child returns the part about a command below m.
func (m *Manual) child(use, group string) *Manual {
	for _, c := range m.below {
		if c.use == use {
			return c
		}
	}
	c := &Manual{use: use, group: group, flags: map[string]flagText{}, above: m}
	m.below = append(m.below, c)
	return c
}

// flag returns the text about a flag.
func (m *Manual) flag(name string) flagText {
	for at := m; at != nil; at = at.above {
		if text, ok := at.flags[name]; ok {
			return text
		}
	}
	panic(fmt.Sprintf("manual of %q: no text about --%s", m.use, name))
}

// Verbs have what the commands of a program do, by their names without that of the
// program, such as "run show". A noun needs no entry, unless it does something by itself.
type Verbs map[string]func(*Verb)

// Command makes the commands of a program.
func (m *Manual) Command(verbs Verbs) *cobra.Command {
	left := len(verbs)
	cmd := m.command(verbs, nil, &left)
	if left != 0 {
		panic(fmt.Sprintf("manual of %q: no text about %d of its verbs", m.use, left))
	}
	return cmd
}

func (m *Manual) command(verbs Verbs, path []string, left *int) *cobra.Command {
	cmd := &cobra.Command{Use: m.use, Short: m.short, Long: strings.TrimRight(m.long, "\n"), GroupID: m.group}
	if m.above != nil {
		cmd.Args = wrongCount
	}
	for _, title := range m.groups {
		cmd.AddGroup(&cobra.Group{ID: title, Title: title})
	}
	for _, c := range m.below {
		name, _, _ := strings.Cut(c.use, " ")
		cmd.AddCommand(c.command(verbs, append(slices.Clip(path), name), left))
	}
	if examples := m.exampleLines(); len(examples) > 0 {
		cmd.Example = Examples(examples...)
	}
	name := strings.Join(path, " ")
	verb, ok := verbs[name]
	switch {
	case ok:
		*left--
		verb(&Verb{cmd, m})
	case len(m.below) == 0:
		panic(fmt.Sprintf("manual of %q: the text about %q describes no verb", m.root().use, name))
	}
	if len(m.below) > 0 && m.above != nil && cmd.RunE == nil { // without it, cobra would take an unknown verb for no error
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for flag := range m.flags {
		if len(m.below) == 0 && cmd.Flags().Lookup(flag) == nil {
			panic(fmt.Sprintf("manual of %q: it has no flag --%s", name, flag))
		}
	}
	return cmd
}

func (m *Manual) root() *Manual {
	for m.above != nil {
		m = m.above
	}
	return m
}

// maxNounExamples is how many examples a noun takes from its verbs.
const maxNounExamples = 3

func (m *Manual) exampleLines() []string {
	switch {
	case len(m.examples) > 0 || m.above == nil:
		return m.examples
	case len(m.below) == 1:
		return m.below[0].examples
	}
	var lines []string
	for _, c := range m.below {
		lines = append(lines, c.examples[:min(len(c.examples), 1)]...)
	}
	return lines[:min(len(lines), maxNounExamples)]
}

// Verb is a command whose text is in the manual.
type Verb struct {
	*cobra.Command
	manual *Manual
}

// Do sets what the verb does.
func (v *Verb) Do(do func(ctx context.Context, args []string) error) {
	v.RunE = func(cmd *cobra.Command, args []string) error { return do(cmd.Context(), args) }
}

// Flag adds a flag. to points to its value, which is the default before; or it is a
// function that parses one.
func (v *Verb) Flag(to any, name string) {
	text, flags := v.manual.flag(name), v.Flags()
	switch p := to.(type) {
	case *bool:
		flags.BoolVarP(p, name, text.short, *p, text.usage)
	case *int:
		flags.IntVarP(p, name, text.short, *p, text.usage)
	case *int64:
		flags.Int64VarP(p, name, text.short, *p, text.usage)
	case *string:
		flags.StringVarP(p, name, text.short, *p, text.usage)
	case *[]string:
		flags.StringArrayVarP(p, name, text.short, *p, text.usage)
	case *time.Duration:
		flags.DurationVarP(p, name, text.short, *p, text.usage)
	case func(string) error:
		flags.FuncP(name, text.short, text.usage, p)
	default:
		panic(fmt.Sprintf("flag --%s: no such type %T", name, to))
	}
}

// FlagBelow adds a flag of the command and of all below it.
func (v *Verb) FlagBelow(to any, name string) {
	v.Flag(to, name)
	v.PersistentFlags().AddFlag(v.Flags().Lookup(name))
}
