package console

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func row(width int, value string) string {
	var b bytes.Buffer
	o := Output{Stdout: &b, Screen: width > 0, Width: func() int { return width }}
	o.Row("label", "%s", value)
	return b.String()
}

func TestRowsFitTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"short":                       "label       short\n",
		"one two three four five six": "label       one two three four\n            five six\n",
		"sha256:0123456789012345678901234567890 end": "label       sha256:0123456789012345678901234567890\n            end\n",
		"first line\nsecond one two three four":      "label       first line\n            second one two\n            three four\n",
		"see: bailiwick run show a-long-name":        "label       see: bailiwick run show a-long-name\n",
		"| agent text that is long":                  "label       | agent text that\n            |>is long\n",
		"| " + strings.Repeat("x", 40):               "label       | " + strings.Repeat("x", 18) + "\n            |>" + strings.Repeat("x", 18) + "\n            |>xxxx\n",
	} {
		if got := row(32, in); got != want {
			t.Errorf("%q is\n%q, want\n%q", in, got, want)
		}
	}
	if got := row(0, "one two three four five six seven"); got != "label       one two three four five six seven\n" { // the control: a pipe
		t.Errorf("%q", got)
	}
}

// A question may be long.
func TestLongTextsAreBrokenInLinearTime(t *testing.T) {
	from := time.Now()
	if n := len(row(40, AgentText(strings.Repeat("x", 1<<20)))); n < 1<<20 || time.Since(from) > 5*time.Second {
		t.Errorf("%d bytes after %s", n, time.Since(from))
	}
}

// A terminal breaks no marked line itself, which would show the rest unmarked.
//
// proves R-D7
func FuzzRowsKeepTheMarker(f *testing.F) {
	f.Add("one two\u4e16\u4e16\u4e16\u4e16\u4e16\u4e16\u4e16\u4e16\u4e16\u4e16 x", 33)
	f.Add(strings.Repeat(" ", 40)+"next        bailiwick run cancel x", 40)
	f.Add("\t\t\t\t\t\tx", 35)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = labelWidth + 1 + minWrap + abs(width)%80
		for line := range strings.Lines(row(width, AgentText(text))) {
			line = strings.TrimSuffix(line, "\n")
			if Columns(line) > width || !strings.HasPrefix(line[labelWidth+1:], AgentMarker) && !strings.HasPrefix(line[labelWidth+1:], brokenMarker) {
				t.Fatalf("%d columns: %q", width, line)
			}
		}
	})
}
