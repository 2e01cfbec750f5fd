package logview

import (
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// Part is a piece of a line with the style that its colour codes give it.
type Part struct {
	visibletext.Part

	Style string `json:"style,omitempty"` // CSS classes of view.css, such as "bold red"; empty: none
}

// maxCode bounds the bytes of a colour code. A longer one is shown as it is.
const maxCode = 32

// parts splits a line into pieces. Codes that set a colour of ECMA-48 (select graphic
// rendition) style the text behind them, up to the end of the line, and are not shown.
// The style is a foreground colour or bold; every other effect is left out, since it
// could hide text. Every other escape is shown as a hidden character.
func parts(line string) (list []Part) {
	var s style
	for line != "" {
		text, code, rest := cutCode(line)
		for _, p := range visibletext.Parts(text) {
			piece := Part{Part: p}
			if p.Hidden == "" {
				piece.Style = s.classes()
			}
			list = append(list, piece)
		}
		s.set(code)
		line = rest
	}
	return list
}

// cutCode cuts a line at its first colour code, and returns the code without its
// introducer and final byte.
func cutCode(line string) (text, code, rest string) {
	for at := 0; ; {
		i := strings.Index(line[at:], "\x1b[")
		if i < 0 {
			return line, "", ""
		}
		at += i + 2
		n := 0
		for n < maxCode && at+n < len(line) && strings.IndexByte("0123456789;", line[at+n]) >= 0 {
			n++
		}
		if at+n < len(line) && line[at+n] == 'm' {
			return line[:at-2], "0" + line[at:at+n], line[at+n+1:]
		}
	}
}

// style is what the codes so far ask for.
type style struct {
	bold   bool
	colour string
}

func (s style) classes() string {
	if s.bold {
		return strings.TrimSpace("bold " + s.colour)
	}
	return s.colour
}

// set applies the parameters of a code.
func (s *style) set(code string) {
	colours := [8]string{1: "red", 2: "green", 3: "yellow", 4: "blue", 5: "magenta", 6: "cyan"} // black and white have the ink of the page
	for list := strings.Split(code, ";"); len(list) > 0; list = list[1:] {
		switch p := strings.TrimLeft(list[0], "0"); {
		case p == "" && code != "":
			*s = style{}
		case p == "1":
			s.bold = true
		case p == "22":
			s.bold = false
		case p == "39":
			s.colour = ""
		case p == "38" || p == "48": // of a palette: its own parameters follow
			s.colour = ""
			return
		case len(p) == 2 && (p[0] == '3' || p[0] == '9') && p[1] < '8':
			s.colour = colours[p[1]-'0']
		}
	}
}
