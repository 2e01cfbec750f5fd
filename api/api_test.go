package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// constants returns the values of the string constants of a type in this
// package, read from its source.
func constants(t *testing.T, typ string) []string {
	t.Helper()
	pkgs, err := parser.ParseDir(token.NewFileSet(), ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0) //nolint:staticcheck // one package without build tags
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(pkgs["api"], func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && fmt.Sprint(v.Type) == typ {
			for _, e := range v.Values {
				if lit, ok := e.(*ast.BasicLit); ok {
					s, _ := strconv.Unquote(lit.Value)
					out = append(out, s)
				}
			}
		}
		return true
	})
	if len(out) == 0 {
		t.Fatalf("no constants of type %s", typ)
	}
	return out
}

func TestTheTableOfCodesIsTotal(t *testing.T) {
	codes := constants(t, "Code")
	for _, c := range codes {
		s, ok := Table()[Code(c)]
		if !ok || s.HTTP < 400 || s.Exit == 0 || s.Exit == 2 {
			t.Errorf("code %s has status %+v", c, s)
		}
	}
	if len(Table()) != len(codes) {
		t.Errorf("the table has %d rows for %d codes", len(Table()), len(codes))
	}
	if ExitStatus(nil) != 0 || ExitStatus(errors.New("x")) != 1 || ExitStatus(fmt.Errorf("y: %w", Errorf(CodeDenied, "no"))) != 3 {
		t.Error("exit statuses differ from the table")
	}
}

// proves R-D3
func TestEventsAndReasonsAreTheClosedLists(t *testing.T) {
	list := func(v any) string { return fmt.Sprint(v) }
	if got, want := list(Events()), "[accepted started finished needs_input failed cancelled]"; got != want || list(constants(t, "Event")) != want {
		t.Errorf("events %s and %s, want %s", got, list(constants(t, "Event")), want)
	}
	if got, want := list(Reasons()), "[denied integrity fetch setup context agent verify output timeout limit lost]"; got != want || list(constants(t, "Reason")) != want {
		t.Errorf("reasons %s and %s, want %s", got, list(constants(t, "Reason")), want)
	}
}

func TestNamesHaveOneForm(t *testing.T) {
	type all struct {
		N Name       `json:"n"`
		P Principal  `json:"p"`
		I DispatchID `json:"i"`
		D Digest     `json:"d"`
		R Ref        `json:"r"`
		T Tier       `json:"t"`
	}
	good := map[string]string{
		"n": "go-service_1.2", "p": "local:uid:1234", "i": "d-01", "d": string(DigestOf(nil)), "r": "subagent/x", "t": "reversible",
	}
	bad := map[string][]string{
		"n": {"", "-a", "a-", "A", "a/b", "a b", strings.Repeat("a", 65), "ä", "a\n"},
		"p": {"", "ann", "root:x", "local:", "local:-x", "agent:a b", "human:ann\n", "agent:" + strings.Repeat("a", 129)},
		"i": {"", "abc", "-abc", "../../x", "ABCD", strings.Repeat("a", 65)},
		"d": {"", "sha256:", "sha256:" + strings.Repeat("A", 64), "sha512:" + strings.Repeat("a", 64), strings.Repeat("a", 64)},
		"r": {"", "x", "planet/x", "subagent/", "subagent/../x"},
		"t": {"", "Observe", "stateful ", "4"},
	}
	decode := func(field, value string) error {
		m := maps.Clone(good)
		m[field] = value
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var v all
		return json.Unmarshal(b, &v)
	}
	if err := decode("n", good["n"]); err != nil {
		t.Fatal(err)
	}
	for field, values := range bad {
		for _, value := range values {
			if decode(field, value) == nil {
				t.Errorf("%s = %q was accepted", field, value)
			}
		}
	}
}

func TestNewIDsSortByTimeAndParse(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a, b := NewDispatchID(now), NewDispatchID(now.Add(time.Millisecond))
	if a >= b || a == NewDispatchID(now) {
		t.Errorf("%s and %s do not sort, or repeat", a, b)
	}
	if _, err := ParseDispatchID(string(a)); err != nil {
		t.Error(err)
	}
}

func TestLimitsCompareFieldByField(t *testing.T) {
	limits := rapid.Custom(func(t *rapid.T) Limits {
		n := rapid.IntRange(1, 100)
		return Limits{
			Timeout: Duration(n.Draw(t, "timeout")), Memory: Bytes(n.Draw(t, "memory")), Processes: n.Draw(t, "processes"), Disk: Bytes(n.Draw(t, "disk")),
			FileSize: Bytes(n.Draw(t, "fileSize")), Files: n.Draw(t, "files"), CPU: float64(n.Draw(t, "cpu")), Log: Bytes(n.Draw(t, "log")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := limits.Draw(t, "a"), limits.Draw(t, "b")
		both := a.Least(b)
		if both.Within(a) != nil || both.Within(b) != nil {
			t.Fatalf("least of %+v and %+v is %+v", a, b, both)
		}
		if (a.Within(b) == nil) != (both == a) {
			t.Fatalf("%+v within %+v: %v", a, b, a.Within(b))
		}
		if a.Least(Limits{}) != a || (Limits{}).Or(a) != a {
			t.Fatal("zero is not neutral")
		}
	})
}

func TestSizesAreReadAndShown(t *testing.T) {
	for in, want := range map[string]Bytes{"1": 1, "4GiB": 4 << 30, "512 MiB": 512 << 20, "1024": 1 << 10} {
		var n Bytes
		if err := n.UnmarshalText([]byte(in)); err != nil || n != want {
			t.Errorf("%q is %d, %v; want %d", in, n, err, want)
		}
	}
	for _, in := range []string{"", "-1", "0", "4GB", "1.5GiB", "9999999TiB", "0x10", "1 2", "+1"} {
		var n Bytes
		if n.UnmarshalText([]byte(in)) == nil {
			t.Errorf("%q was read as %d", in, n)
		}
	}
	if got := Bytes(3 << 20).String(); got != "3MiB" {
		t.Errorf("3 MiB is shown as %s", got)
	}
}

// A maximal duration can be added to the current time and still be stored and
// compared. The control is a duration within the bound.
func TestADurationIsPositiveAndAtMostAHundredYears(t *testing.T) {
	for text, ok := range map[string]bool{"1ns": true, "876600h": true, "876600h1ns": false, "2562047h": false, "0s": false, "-1s": false, "1": false, "": false} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if later := time.Now().Add(2 * time.Duration(d)); ok && later.UnixNano() <= 0 {
			t.Errorf("%q from now is %d", text, later.UnixNano())
		}
	}
}

// A person serves a page of their own in mode system, too: its socket is where that person
// may write.
func TestThePageOfAPersonHasASocketOfTheirOwn(t *testing.T) {
	env := func(name string) string { return map[string]string{"HOME": "/home/p"}[name] }
	for mode, want := range map[string]string{ModeSystem: "/home/p/.config/bailiwick/page.sock", ModeSameUser: "/home/p/.local/state/bailiwick/page.sock"} {
		d := DirsFrom(func(name string) string {
			if name == ModeVariable {
				return mode
			}
			return env(name)
		}, 1000)
		if got := d.Page(); got != want {
			t.Errorf("mode %s: %s, want %s", mode, got, want)
		}
	}
}
