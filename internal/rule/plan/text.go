package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// Text is a document in YAML or JSON with the position of each value.
type Text struct {
	JSON json.RawMessage // canonical
	root *spot
}

// Place is a problem with its position in a text; line 0 means the whole text.
type Place struct {
	api.Problem
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

func (p Place) String() string {
	s := p.Message
	if p.Path != "$" {
		s = p.Problem.String()
	}
	if p.Line > 0 {
		s = fmt.Sprintf("%d:%d: %s", p.Line, p.Column, s)
	}
	return s
}

// Read reads a plan from YAML or JSON. It reports all problems, with positions.
func Read(text []byte) (*Plan, []Place) {
	t, places := ReadText(text)
	if places != nil {
		return nil, places
	}
	return t.Plan(nil)
}

// Plan returns the plan that a text has, with values of its parameters.
func (t Text) Plan(values map[string]json.RawMessage) (*Plan, []Place) {
	p, problems := ParseWith(t.JSON, values)
	if p != nil {
		problems = oversized(p.Tasks)
	}
	if len(problems) > 0 {
		return nil, t.Places(problems)
	}
	return p, nil
}

// OfSchedule reads the plan of a schedule with its parameters, and checks that its
// runs can have their ids.
func OfSchedule(v api.Schedule) (*Plan, []Place) {
	text, places := ReadText([]byte(v.Plan))
	if places != nil {
		return nil, places
	}
	p, places := text.Plan(v.Set)
	if places != nil {
		return nil, places
	}
	if _, err := p.WithID(api.ScheduleRun(v.Name, time.Unix(0, 0))); err != nil && v.Name != "" {
		return nil, []Place{{Problem: api.Problem{Path: "$", Message: err.Error()}}}
	}
	return p, nil
}

// oversized refuses inputs that no dispatch accepts. Parse accepts them: an older
// service may have stored such a plan.
func oversized(tasks []api.PlanTask) []api.Problem {
	var found list
	for i := range tasks {
		if n := len(tasks[i].Input); n > api.MaxInput {
			found.sense(task(i)+".input", "%d bytes: at most %d; let the task read a file of its source, or what another task leaves", n, api.MaxInput)
		}
	}
	return NameTasks(found.problems(), tasks)
}

// ReadText reads YAML or JSON. It returns either JSON or problems of syntax.
func ReadText(text []byte) (Text, []Place) {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return Text{}, []Place{{api.Problem{Path: "$", Message: "begins with a byte order mark; save it without one"}, 1, 1}}
	}
	if len(text) <= api.MaxPlan {
		if doc, err := canon.Canonicalize(text); err == nil {
			return Text{JSON: doc, root: jsonSpots(text)}, nil
		}
	}
	var p strictyaml.Parser
	root := p.DocumentUpTo(text, api.MaxPlan)
	if root == nil {
		return Text{}, places(p.Err())
	}
	doc := p.JSON(root, "plan")
	if err := p.Err(); err != nil {
		return Text{}, places(err)
	}
	return Text{JSON: doc, root: yamlSpots(root)}, nil
}

func places(err error) []Place {
	var found strictyaml.Problems
	errors.As(err, &found)
	if last := len(found) - 1; last >= api.MaxProblems { // the one that counts the rest
		found = append(found[:api.MaxProblems-1:api.MaxProblems-1], found[last])
	}
	all := make([]Place, 0, len(found))
	for _, p := range found {
		all = append(all, Place{api.Problem{Path: "$", Message: p.Message}, p.Line, p.Column})
	}
	return all
}

// Places returns the problems of t.JSON with their positions, in the order of the
// text, and last those of the whole text.
func (t Text) Places(problems []api.Problem) []Place {
	var all []Place
	for _, p := range problems {
		place := Place{Problem: p}
		if p.Path != "$" {
			at := t.root.find(p.Path)
			place.Line, place.Column = at.line, at.column
		}
		all = append(all, place)
	}
	slices.SortStableFunc(all, func(a, b Place) int {
		return cmp.Or(cmp.Compare(min(1, b.Line), min(1, a.Line)), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// spot is the position of a value: of its key, if it has one.
type spot struct {
	line, column int
	members      map[string]*spot
	items        []*spot
}

// find returns the spot of a path, or of the longest prefix that exists.
func (s *spot) find(path string) *spot {
	for _, step := range steps(path) {
		next := s.members[step]
		if i, err := strconv.Atoi(step); next == nil && err == nil && i >= 0 && i < len(s.items) {
			next = s.items[i]
		}
		if next == nil {
			break
		}
		s = next
	}
	return s
}

// steps splits a path made by member and item.
func steps(path string) []string {
	var all []string
	rest := strings.TrimPrefix(path, "$")
	for rest != "" {
		var step string
		switch {
		case strings.HasPrefix(rest, "['"):
			step, rest = quoted(rest[2:])
		case rest[0] == '[':
			step, rest, _ = strings.Cut(rest[1:], "]")
		default:
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			step, rest = rest[1:end], rest[end:]
		}
		all = append(all, step)
	}
	return all
}

// quoted reads a name up to the closing quote.
func quoted(s string) (name, rest string) {
	b := []byte{'"'}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\'':
			_ = json.Unmarshal(append(b, '"'), &name)
			return name, strings.TrimPrefix(s[i+1:], "]")
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '\'':
			i++
			b = append(b, '\'')
		case s[i] == '\\' && i+1 < len(s):
			b = append(b, s[i], s[i+1])
			i++
		case s[i] == '"':
			b = append(b, '\\', '"')
		default:
			b = append(b, s[i])
		}
	}
	return "", ""
}

// yamlSpots returns the spots of a node, whose depth strictyaml has bounded.
func yamlSpots(n *yaml.Node) *spot {
	s := &spot{line: n.Line, column: n.Column}
	if n.Kind == yaml.MappingNode {
		s.members = make(map[string]*spot, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], yamlSpots(n.Content[i+1])
			value.line, value.column = key.Line, key.Column
			s.members[key.Value] = value
		}
		return s
	}
	for _, item := range n.Content {
		s.items = append(s.items, yamlSpots(item))
	}
	return s
}

// jsonSpots returns the spots of valid JSON, whose depth canon has bounded.
func jsonSpots(text []byte) *spot {
	w := &jsonWalk{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1, column: 1}
	w.dec.UseNumber()
	return w.value()
}

type jsonWalk struct {
	text         []byte
	dec          *json.Decoder
	at           int // offset of line and column
	line, column int
}

// next is the spot of the next token.
func (w *jsonWalk) next() *spot {
	to := int(w.dec.InputOffset())
	for to < len(w.text) && strings.IndexByte(" \t\r\n,:", w.text[to]) >= 0 {
		to++
	}
	for _, b := range w.text[w.at:to] {
		switch {
		case b == '\n':
			w.line, w.column = w.line+1, 1
		case b&0xc0 != 0x80: // not within a character
			w.column++
		}
	}
	w.at = to
	return &spot{line: w.line, column: w.column}
}

func (w *jsonWalk) value() *spot {
	s := w.next()
	token, _ := w.dec.Token()
	switch token {
	case json.Delim('{'):
		s.members = map[string]*spot{}
		for w.dec.More() {
			at := w.next()
			key, _ := w.dec.Token()
			value := w.value()
			value.line, value.column = at.line, at.column
			s.members[fmt.Sprint(key)] = value
		}
		_, _ = w.dec.Token()
	case json.Delim('['):
		for w.dec.More() {
			s.items = append(s.items, w.value())
		}
		_, _ = w.dec.Token()
	}
	return s
}
