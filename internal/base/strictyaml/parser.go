// Package strictyaml reads YAML that people write and review: bailiwick.yaml, plans
// and the service's configuration (R-C6). It refuses unknown keys and values, and
// each problem names its file, line and column and the key that was probably meant.
//
// It refuses anchors, tags, duplicate keys, invisible characters and a second
// document. It opens no files.
package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

const (
	// MaxBytes is the size of the largest file in bytes.
	MaxBytes = 1 << 20
	// MaxText is the length of the longest text in bytes.
	MaxText  = 256 << 10
	maxDepth = 60
)

// Parser reads YAML nodes into values and collects all problems with their places.
// Its readers take a node and its name in messages; they return the zero value if
// there is a problem.
type Parser struct{ List }

// At adds a problem of a node.
func (p *Parser) At(n *yaml.Node, format string, args ...any) {
	p.Add(n.Line, n.Column, format, args...)
}

// Document returns the root node of the one document in b, or nil.
func (p *Parser) Document(b []byte) *yaml.Node { return p.DocumentUpTo(b, MaxBytes) }

// DocumentUpTo is Document for a file of at most limit bytes.
func (p *Parser) DocumentUpTo(b []byte, limit int) *yaml.Node {
	switch {
	case len(b) > limit:
		p.Add(0, 0, "larger than %d KiB", limit>>10)
		return nil
	case !utf8.Valid(b):
		p.Add(0, 0, "not valid UTF-8")
		return nil
	}
	var doc yaml.Node
	if err := yaml.Load(b, &doc, yaml.WithSingleDocument(false)); err != nil {
		p.syntax(err)
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		p.Add(1, 1, "the file is empty")
		return nil
	}
	if !p.plain(doc.Content[0], 0) {
		return nil
	}
	return doc.Content[0]
}

// syntax adds an error of the YAML library.
func (p *Parser) syntax(err error) {
	if load, ok := errors.AsType[*yaml.LoadError](err); ok && load.Mark.Line > 0 {
		p.Add(load.Mark.Line, max(load.Mark.Column, 1), "not valid YAML: %s", OneLine(load.Message))
		return
	}
	if strings.Contains(err.Error(), "no documents in stream") { // the library has no error type for it
		p.Add(1, 1, "the file is empty")
		return
	}
	p.Add(0, 0, "not valid YAML: %s", OneLine(strings.TrimPrefix(err.Error(), "yaml: ")))
}

// OneLine joins the lines of a message.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// plain refuses nodes that hide what a file means or take unbounded memory.
func (p *Parser) plain(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxDepth:
		p.At(n, "nested deeper than %d", maxDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.At(n, "anchors and aliases are not supported; write the value out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		p.At(n, "tags such as %.40q are not supported", n.Tag)
		return false
	}
	ok := true
	for _, c := range n.Content {
		ok = p.plain(c, depth+1) && ok
	}
	return ok
}

// Fields calls the reader of each key of a mapping. Keys in later are planned but
// not supported.
func (p *Parser) Fields(n *yaml.Node, what string, readers map[string]func(*yaml.Node), later ...string) {
	if n.Kind != yaml.MappingNode {
		p.At(n, "%s: want a mapping of keys to values, got %s", what, KindOf(n))
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !p.Key(key, what, seen) {
			continue
		}
		if read, ok := readers[key.Value]; ok {
			read(value)
			continue
		}
		if slices.Contains(later, key.Value) {
			p.At(key, "%s: %q is not supported yet in this version", what, key.Value)
			continue
		}
		p.At(key, "%s: unknown key %q%s", what, Clip(key.Value), Suggestion(key.Value, slices.Collect(maps.Keys(readers))))
	}
}

// Key reports whether a key of a mapping is plain text and not a duplicate.
func (p *Parser) Key(key *yaml.Node, what string, seen map[string]*yaml.Node) bool {
	if key.Kind != yaml.ScalarNode {
		p.At(key, "%s: a key must be plain text, got %s", what, KindOf(key))
		return false
	}
	if first, ok := seen[key.Value]; ok {
		p.At(key, "%s: duplicate key %q, first in line %d", what, Clip(key.Value), first.Line)
		return false
	}
	seen[key.Value] = key
	return true
}

// Items calls read for each item of a list.
func (p *Parser) Items(n *yaml.Node, what string, read func(i int, item *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		p.At(n, "%s: want a list, got %s", what, KindOf(n))
		return
	}
	for i, item := range n.Content {
		read(i, item)
	}
}

// KindOf describes a node for a message.
func KindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "nothing"
		case "!!str":
			return fmt.Sprintf("the text %q", Clip(n.Value))
		case "!!int", "!!float":
			return "the number " + Clip(n.Value)
		case "!!bool":
			return "the boolean " + Clip(n.Value)
		}
		return fmt.Sprintf("%q", Clip(n.Value))
	default:
		return "something else"
	}
}

// Clip shortens a quotation for a message.
func Clip(s string) string { return cuttext.Text(s, 60) }

// Text reads a string. It refuses YAML numbers and booleans, whose spelling would be
// lost.
func (p *Parser) Text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		hint := ""
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
			hint = "; put it in quotes"
		}
		p.At(n, "%s: want text, got %s%s", what, KindOf(n), hint)
		return ""
	}
	if err := CheckText(n.Value); err != nil {
		p.At(n, "%s: %v", what, err)
		return ""
	}
	return n.Value
}

// CheckText refuses invisible characters.
func CheckText(s string) error {
	if len(s) > MaxText {
		return fmt.Errorf("longer than %d KiB", MaxText>>10)
	}
	if !utf8.ValidString(s) {
		return errors.New("not valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
			return fmt.Errorf("contains the invisible character %U", r)
		}
	}
	return nil
}

// Line reads a string without line breaks.
func (p *Parser) Line(n *yaml.Node, what string) string {
	s := p.Text(n, what)
	if strings.ContainsAny(s, "\n\t") {
		p.At(n, "%s: want one line", what)
	}
	return s
}

// Name reads the name of an artifact.
func (p *Parser) Name(n *yaml.Node, what string) api.Name {
	s := p.Text(n, what)
	if s == "" {
		if n.ShortTag() == "!!str" && n.Value == "" {
			p.At(n, "%s: is empty", what)
		}
		return ""
	}
	name, err := api.ParseName(s)
	if err != nil {
		p.At(n, "%s: %v", what, err)
	}
	return name
}

// Texts reads a list of strings, none of them empty.
func (p *Parser) Texts(n *yaml.Node, what string) []string {
	var all []string
	p.Items(n, what, func(i int, item *yaml.Node) {
		s := p.Text(item, fmt.Sprintf("%s[%d]", what, i))
		if s == "" && item.ShortTag() == "!!str" && item.Value == "" {
			p.At(item, "%s[%d]: is empty", what, i)
		}
		all = append(all, s)
	})
	return all
}

// Bool reads true or false.
func (p *Parser) Bool(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" || n.ShortTag() != "!!bool" {
		p.At(n, "%s: want true or false, got %s", what, KindOf(n))
	}
	return n.Value == "true"
}

// Scalar reads text or a number into a value with a text form.
func (p *Parser) Scalar(n *yaml.Node, what string, into interface{ UnmarshalText([]byte) error }) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" && n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
		p.At(n, "%s: want a value, got %s", what, KindOf(n))
		return
	}
	if err := into.UnmarshalText([]byte(n.Value)); err != nil {
		p.At(n, "%s: %v", what, err)
	}
}

// Count reads a positive whole number.
func (p *Parser) Count(n *yaml.Node, what string) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v <= 0 || v > math.MaxInt32 || strconv.Itoa(v) != n.Value {
		p.At(n, "%s: want a positive whole number, got %s", what, KindOf(n))
		return 0
	}
	return v
}

// Positive reads a number above 0.
func (p *Parser) Positive(n *yaml.Node, what string) float64 {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" || err != nil || !(v > 0) || v > 4096 {
		p.At(n, "%s: want a number above 0, at most 4096, got %s", what, KindOf(n))
		return 0
	}
	return v
}

// JSON returns the canonical JSON of a node.
func (p *Parser) JSON(n *yaml.Node, what string) json.RawMessage {
	before := p.Len()
	v := p.value(n, what)
	if p.Len() > before {
		return nil
	}
	b, err := canon.Marshal(v)
	if err != nil {
		p.At(n, "%s: %v", what, err)
		return nil
	}
	return b
}

func (p *Parser) value(n *yaml.Node, what string) any {
	switch n.Kind {
	case yaml.MappingNode:
		m, seen := map[string]any{}, map[string]*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; p.Key(key, what, seen) {
				m[p.Text(key, what)] = p.value(n.Content[i+1], what+"."+Clip(key.Value))
			}
		}
		return m
	case yaml.SequenceNode:
		all := []any{}
		for i, item := range n.Content {
			all = append(all, p.value(item, fmt.Sprintf("%s[%d]", what, i)))
		}
		return all
	default:
		return p.scalarValue(n, what)
	}
}

func (p *Parser) scalarValue(n *yaml.Node, what string) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return p.Bool(n, what)
	case "!!int", "!!float":
		if !json.Valid([]byte(n.Value)) {
			p.At(n, "%s: %s is not a JSON number", what, Clip(n.Value))
			return nil
		}
		return json.Number(n.Value)
	}
	return p.Text(n, what)
}
