package usererror

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestLibrariesAreTranslated(t *testing.T) {
	t.Parallel()
	_, missing := os.Open("/nonexistent/a file.json")
	_, number := strconv.Atoi("x1")
	_, large := strconv.ParseInt("99999999999999999999", 10, 64)
	_, duration := time.ParseDuration("90")
	type document struct{ A int }
	var v document
	for want, err := range map[string]error{
		"/nonexistent/a file.json: no such file or directory":          missing,
		"--trust: /nonexistent/a file.json: no such file or directory": fmt.Errorf("--trust: %w", missing),
		`"x1": not a number`:                                   number,
		`"99999999999999999999": too large a number`:           large,
		`"90": want a duration such as 90s, 5m or 2h`:          duration,
		"not JSON: unexpected 'x'":                             json.Unmarshal([]byte("x"), &v),
		"the JSON text ends too early":                         json.Unmarshal([]byte("{"), &v),
		"A: the JSON value is of the wrong type: string":       json.Unmarshal([]byte(`{"A":"x"}`), &v),
		"the JSON value is of the wrong type: string":          json.Unmarshal([]byte(`"x"`), &v),
		"@/nonexistent/a file.json: no such file or directory": fmt.Errorf("@/nonexistent/a file.json: %w", missing),
		"a: a b: b c":          errors.New("a: a b: b c"),
		"plan.yaml: no change": errors.New("plan.yaml: no change"),
	} {
		if got := Explain(err); got.Message != want || (got.Code == api.CodeInvalid) != errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: %q, want %q", err, got.Message, want)
		}
	}
}

// An error keeps its code and its parts, and the text around it.
func TestErrorsKeepTheirParts(t *testing.T) {
	t.Parallel()
	entry := uint64(7)
	e := &api.Error{Code: api.CodeDenied, Message: "denied", Hint: "ask\x1b[2J", AuditEntry: &entry, Problems: []api.Problem{{Path: "$.a", Message: "bad"}}}
	var out strings.Builder
	Print(&out, "p", "json", fmt.Errorf("run r1: %w", e), func(string) string { panic("not for JSON") })
	var back struct {
		Error api.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Error; got.Code != e.Code || got.Message != "run r1: denied" || got.Hint != e.Hint || *got.AuditEntry != 7 || len(got.Problems) != 1 {
		t.Errorf("%+v", got)
	}
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	Print(&out, "p", "text", e, strings.ToUpper)
	if got := out.String(); !strings.HasPrefix(got, "p: DENIED\n  $.A: BAD\n  HINT: ASK") {
		t.Errorf("%q", got)
	}
}

func TestFlagErrorsAreTranslated(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--nope": "unknown flag --nope", "-n": "--n: want a value", "-n x": `--n "x": want a number or another value of that flag's kind`, "-b=2": `--b "2": want a number or another value of that flag's kind`,
	} {
		set := flag.NewFlagSet("p", flag.ContinueOnError)
		set.SetOutput(io.Discard)
		set.Int("n", 0, "")
		set.Bool("b", false, "")
		if got := OfFlag(set.Parse(strings.Fields(line)), "p --help").Error(); got != want+"\n  hint: see: p --help" {
			t.Errorf("%s: %q", line, got)
		}
	}
}

func TestTheFormatIsFoundInAnyCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"": "", "a -o json": "json", "-o=json --x": "json", "-ojsonl": "jsonl", "--output=json": "json", "--output jsonl b": "jsonl", "a -- -o json": "", "-o": "", "-o json -o text": "text",
	} {
		if got := Format(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
