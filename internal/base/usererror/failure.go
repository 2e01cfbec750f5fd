// Package usererror is how every program says that it failed: in our words, not in
// those of the libraries that it uses, and with -o json as one JSON value.
package usererror

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Print writes err to a program's standard error: for the formats json and jsonl
// as one line {"error": {"code", "message", "hint", "problems"}}, else as text
// behind the name of the program. escape makes text harmless to a terminal.
func Print(stderr io.Writer, program, format string, err error, escape func(string) string) {
	e := Explain(err)
	if format == "json" || format == "jsonl" {
		if list, ok := errors.AsType[interface {
			error
			Problems() []api.Problem
		}](err); ok && e.Problems == nil {
			e.Problems = list.Problems()
		}
		if b, failed := canon.Marshal(map[string]*api.Error{"error": e}); failed == nil {
			_, _ = fmt.Fprintf(stderr, "%s\n", b) // an error here has nowhere to go
			return
		}
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", program, escape(e.Error())) // likewise
}

// Explain returns an error with its code, in our words. The text around an
// api.Error stays around its message.
func Explain(err error) *api.Error {
	out := api.Error{Code: api.CodeInternal, Message: err.Error()}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) {
		out.Code = api.CodeInvalid // the user named a file that cannot be used
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		out = *e
		out.Message = strings.Replace(err.Error(), e.Error(), e.Message, 1)
	}
	out.Message = ours(out.Message)
	return &out
}

// phrases are texts of the standard library and of other modules, and what we
// say. An api.Error keeps the text of its cause and not the cause itself, so the
// texts are all there is.
var phrases = []struct { //nolint:gochecknoglobals // a table that nothing writes, of compiled expressions
	raw *regexp.Regexp
	say string
}{
	{regexp.MustCompile(`\b(?:open|openat|openat2|stat|lstat|read|readlink|mkdir|mkdirat|fork/exec|chdir) ([^:\n]+): (no such file or directory|permission denied|is a directory|not a directory|file exists|too many levels of symbolic links|file name too long)`), "$1: $2"},
	{regexp.MustCompile(`strconv\.\w+: parsing ("(?:[^"\\]|\\.)*"): value out of range`), "$1: too large a number"},
	{regexp.MustCompile(`strconv\.\w+: parsing ("(?:[^"\\]|\\.)*"): invalid syntax`), "$1: not a number"},
	{regexp.MustCompile(`\btime: (?:invalid|missing unit in|unknown unit "[^"]*" in) duration ("(?:[^"\\]|\\.)*")`), "$1: want a duration such as 90s, 5m or 2h"},
	{regexp.MustCompile(`exec: ("(?:[^"\\]|\\.)*"): executable file not found in \$PATH`), "$1: no such program on PATH"},
	{regexp.MustCompile(`json: cannot unmarshal (\w+) into Go (?:struct field \S*?\.(\S+) of type|value of type) \S+`), "$2: the JSON value is of the wrong type: $1"},
	{regexp.MustCompile(`(^|: ): the JSON value`), "${1}the JSON value"},
	{regexp.MustCompile(`\bunexpected end of JSON input`), "the JSON text ends too early"},
	{regexp.MustCompile(`invalid character ('(?:[^'\\]|\\.)+') (?:looking for beginning of value|after top-level value|looking for beginning of object key string)`), "not JSON: unexpected $1"},
	{regexp.MustCompile(`(^|: )yaml: `), "${1}not valid YAML: "},
}

func ours(s string) string {
	for _, p := range phrases {
		s = p.raw.ReplaceAllString(s, p.say)
	}
	parts := strings.Split(s, ": ") // a path before what the library says about it
	for i := len(parts) - 1; i > 0; i-- {
		if strings.TrimPrefix(parts[i-1], "@") == parts[i] {
			parts = slices.Delete(parts, i, i+1)
		}
	}
	return strings.Join(parts, ": ")
}

// OfFlag explains an error of package flag. see is the command that shows the
// flags.
func OfFlag(err error, see string) error {
	text := err.Error()
	for _, p := range []struct {
		raw *regexp.Regexp
		say string
	}{
		{regexp.MustCompile(`^flag provided but not defined: -+(.*)$`), "unknown flag --$1"},
		{regexp.MustCompile(`^flag needs an argument: -+(.*)$`), "--$1: want a value"},
		{regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-+([^:]*): parse error$`), "--$2 $1: want a number or another value of that flag's kind"},
		{regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-+([^:]*): (.*)$`), "--$2 $1: $3"},
		{regexp.MustCompile(`^bad flag syntax: (.*)$`), "$1 is not a flag"},
	} {
		text = p.raw.ReplaceAllString(text, p.say)
	}
	return api.Errorf(api.CodeInvalid, "%s", text).WithHint("see: %s", see)
}

// Format is the output format that a command line asks for with -o or --output,
// also if the command line is invalid otherwise.
func Format(args []string) (format string) {
	for i, arg := range args {
		value, given := strings.CutPrefix(arg, "--output=")
		switch {
		case arg == "--":
			return format
		case given:
			format = value
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			format = args[i+1]
		case strings.HasPrefix(arg, "-o"):
			format = strings.TrimPrefix(arg[2:], "=")
		}
	}
	return format
}
