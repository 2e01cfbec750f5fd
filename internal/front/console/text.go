package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// Line makes text that others wrote part of a single line: line ends and tabs
// are escaped too.
func Line(s string) string { return strings.ReplaceAll(plainLine(s), "\t", `\x09`) }

// Quoted marks the further lines of text that others wrote, so that none of them
// looks like a row of Bailiwick's own. The first line stands behind the label of
// its row.
func Quoted(s string) string { return strings.ReplaceAll(s, "\n", "\n"+AgentMarker) }

// AgentText marks every line of text that others wrote.
func AgentText(s string) string { return AgentMarker + Quoted(s) }

// Cell quotes text that others wrote for a cell of a table, so that it cannot
// look like a further column.
func Cell(s string) string {
	if s == "" {
		return "-"
	}
	return visibletext.Quote(s)
}

// Dash is s, or a dash for an empty cell of a table.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Joined lists words, or returns none if the list is empty.
func Joined[T ~string](list []T, separator, none string) string {
	if len(list) == 0 {
		return none
	}
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = string(s)
	}
	return strings.Join(words, separator)
}

// Pad fills text up with spaces, or cuts it, to width columns.
func Pad(s string, width int) string {
	s = Cut(s, width)
	return s + strings.Repeat(" ", max(0, width-Columns(s)))
}

// Cut cuts text to at most width columns. A cut text ends in ~.
func Cut(s string, width int) string {
	if len(s) <= width && !strings.Contains(s, "\t") || Columns(s) <= width { // only a tab has more columns than bytes
		return s
	}
	at := 0
	for i, r := range s {
		if at += columns(r, at); at > width-1 {
			return s[:i] + "~"[:min(1, max(width, 0))]
		}
	}
	return s
}

// Columns is how many columns of a terminal a text takes at most.
func Columns(s string) int {
	at := 0
	for _, r := range s {
		at += columns(r, at)
	}
	return at
}

// columns is how far a character at column at moves the cursor, at most: any
// character outside ASCII may be wide.
func columns(r rune, at int) int {
	switch {
	case r == '\t':
		return 8 - at%8
	case r < 0x80:
		return 1
	}
	return 2
}

// Duration is a duration for people, of at most six columns below a thousand
// hours.
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// Ago is how long ago something happened, for people: "2 hours ago".
func Ago(d time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{day, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := d / unit.length; n > 1 {
			return fmt.Sprintf("%d %ss ago", n, unit.name)
		} else if n == 1 {
			return fmt.Sprintf("1 %s ago", unit.name)
		}
	}
	return "just now"
}

// Bytes is a number of bytes for people.
func Bytes(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1023.95 && unit < len("KMGTPE")-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit])
}

// RedactedPatch warns of a patch that is not what the agent wrote.
const RedactedPatch = "warning: values of secrets were removed from this patch, so it is not what the agent wrote; it cannot be applied by bailiwick"

// NoChanges is why finished work has no patch.
const NoChanges = "no file that a patch can contain has changed"

// ShellText quotes a command for a shell; see package visible.
func ShellText(command ...string) string { return visibletext.ShellText(command...) }
