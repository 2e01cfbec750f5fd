package console

import "strings"

// minWrap is the least number of columns that text is broken at.
const minWrap = 20

// wrap breaks the lines of a value that stands behind a label, where they are
// wider than the terminal that shows them. A line with a command stays whole, so
// that it can be copied; one that others wrote keeps its marker.
func (o *Output) wrap(value string) string {
	width, _ := o.Size()
	if width -= labelWidth + 1; !o.Screen || width < minWrap {
		return value
	}
	var lines []string
	value = strings.ReplaceAll(value, "\t", "    ") // how wide a tab is depends on its column
	for line := range strings.SplitSeq(value, "\n") {
		switch {
		case Columns(line) <= width:
			lines = append(lines, line)
		case strings.HasPrefix(line, AgentMarker):
			lines = append(lines, wrapLine(line, width, brokenMarker, true)...)
		case strings.Contains(line, "bailiwick ") || strings.Contains(line, "git "):
			lines = append(lines, line)
		default:
			lines = append(lines, wrapLine(line, width, "", false)...)
		}
	}
	return strings.Join(lines, "\n")
}

// wrapLine breaks a line at spaces; with hard also where a word is wider than
// width. Every line but the first begins with prefix.
func wrapLine(line string, width int, prefix string, hard bool) (lines []string) {
	indent := ""
	for {
		end, next := breakAt(line, width-len(indent), hard)
		lines = append(lines, indent+line[:end])
		if next >= len(line) {
			return lines
		}
		line, indent = line[next:], prefix
	}
}

// breakAt returns where the first part of a line ends, and where the next begins.
func breakAt(line string, width int, hard bool) (end, next int) {
	at, space := 0, 0
	for i, r := range line {
		if at += columns(r, at); at > width {
			switch {
			case space > 0:
				return space, space + 1
			case hard:
				return i, i
			case r == ' ':
				return i, i + 1
			}
		} else if r == ' ' && i >= len(AgentMarker) {
			space = i
		}
	}
	return len(line), len(line)
}
