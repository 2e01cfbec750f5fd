package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// addSuggestions has a verb that fails because an argument or flag names nothing that
// the caller may see suggest the nearest name. The candidates are those of completion,
// which the service lists for the caller.
func (t *completion) addSuggestions(cmd *cobra.Command, noun string) {
	run := cmd.RunE
	if run == nil || cmd.DisableFlagParsing {
		return
	}
	names := operandNames(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		unknown, ok := errors.AsType[*api.Error](err)
		if !ok || unknown.Code != api.CodeNotFound && !strings.Contains(unknown.Message, "no such ") || strings.Contains(unknown.Error(), "did you mean") {
			return err
		}
		for _, word := range t.namedBy(cmd, noun, names, args) {
			if near := t.nearest(cmd.Context(), word, unknown.Message); near != "" {
				return unknown.WithHint("%s", strings.TrimSuffix("did you mean: "+near+"; "+unknown.Hint, "; "))
			}
		}
		return err
	}
}

// named is a word of a command line that a completer knows the alternatives of.
type named struct {
	word     string
	args     []string // before it
	complete completer
}

// namedBy returns the words of a command line that name something.
func (t *completion) namedBy(cmd *cobra.Command, noun string, names, args []string) (list []named) {
	for i, word := range args {
		if c, _ := t.argCompleter(cmd, noun, names, i); c != nil {
			list = append(list, named{word, args[:i], c})
		}
	}
	flags := t.flagCompleters(noun, cmd.Name())
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if many, ok := f.Value.(interface{ GetSlice() []string }); ok {
			values = many.GetSlice()
		}
		for _, v := range values {
			list = append(list, named{v, args, flags[name]})
		}
	}
	return list
}

// nearest returns the candidate that was probably meant by a word that message names, or
// "" if the word is a candidate itself. Only a plain word is returned: agents choose some
// names.
func (t *completion) nearest(ctx context.Context, n named, message string) string {
	if n.word == "" || !strings.Contains(message, strings.TrimPrefix(n.word, "role:")) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	c := t.connect(false)
	defer c.Close()
	list, err := n.complete(ctx, c, n.args)
	if err != nil {
		return "" // the error stands without it
	}
	var words []string
	for _, known := range list {
		if known.word == n.word {
			return ""
		}
		if safeWord.MatchString(known.word) {
			words = append(words, known.word)
		}
	}
	if near := strictyaml.Nearest(n.word, words); near != "" {
		return near
	}
	return beginsLike(n.word, words)
}

// beginsLike returns the only word that begins like part, such as the id of a prefix with
// a wrong letter, or "".
func beginsLike(part string, words []string) string {
	full := map[string][]string{}
	var begin []string
	for _, w := range words {
		if len(w) > len(part) {
			begin = append(begin, w[:len(part)])
			full[w[:len(part)]] = append(full[w[:len(part)]], w)
		}
	}
	if like := full[strictyaml.Nearest(part, begin)]; len(like) == 1 {
		return like[0]
	}
	return ""
}
