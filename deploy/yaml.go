package deploy

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
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

const (
	maxManifestBytes = 1 << 20
	maxYAMLDepth     = 60
	maxText          = 256 << 10
)

// parser reads YAML nodes into values, notes where each came from, and
// collects every problem instead of stopping at the first.
type parser struct{ list }

func (p *parser) at(n *yaml.Node, format string, args ...any) {
	p.add(n.Line, n.Column, format, args...)
}

// document returns the root mapping of the one document in b.
func (p *parser) document(b []byte) *yaml.Node {
	switch {
	case len(b) > maxManifestBytes:
		p.add(0, 0, "larger than %d KiB", maxManifestBytes>>10)
		return nil
	case !utf8.Valid(b):
		p.add(0, 0, "not valid UTF-8")
		return nil
	}
	var doc yaml.Node
	if err := yaml.Load(b, &doc, yaml.WithSingleDocument(false)); err != nil {
		p.syntax(err)
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		p.add(1, 1, "the file is empty")
		return nil
	}
	if !p.plain(doc.Content[0], 0) {
		return nil
	}
	return doc.Content[0]
}

// syntax gives a YAML error the form of our own.
func (p *parser) syntax(err error) {
	if load, ok := errors.AsType[*yaml.LoadError](err); ok && load.Mark.Line > 0 {
		p.add(load.Mark.Line, max(load.Mark.Column, 1), "not valid YAML: %s", oneLine(load.Message))
		return
	}
	if strings.Contains(err.Error(), "no documents in stream") { // the library has no type for it
		p.add(1, 1, "the file is empty")
		return
	}
	p.add(0, 0, "not valid YAML: %s", oneLine(strings.TrimPrefix(err.Error(), "yaml: ")))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// plain refuses what makes a reviewed file mean something else than it seems
// to, or more than fits in memory.
func (p *parser) plain(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxYAMLDepth:
		p.at(n, "nested deeper than %d", maxYAMLDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.at(n, "anchors and aliases are not supported; write the value out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		p.at(n, "tags such as %.40q are not supported", n.Tag)
		return false
	}
	ok := true
	for _, c := range n.Content {
		ok = p.plain(c, depth+1) && ok
	}
	return ok
}

// fields calls the reader of each key of a mapping. Keys of later are known
// to the design and not to this version.
func (p *parser) fields(n *yaml.Node, what string, readers map[string]func(*yaml.Node), later ...string) {
	if n.Kind != yaml.MappingNode {
		p.at(n, "%s: want a mapping of keys to values, got %s", what, kindOf(n))
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !p.key(key, what, seen) {
			continue
		}
		if read, ok := readers[key.Value]; ok {
			read(value)
			continue
		}
		if slices.Contains(later, key.Value) {
			p.at(key, "%s: %q is not supported yet in this version", what, key.Value)
			continue
		}
		hint := ""
		if near := nearest(key.Value, slices.Collect(maps.Keys(readers))); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		p.at(key, "%s: unknown key %q%s", what, clip(key.Value), hint)
	}
}

func (p *parser) key(key *yaml.Node, what string, seen map[string]*yaml.Node) bool {
	if key.Kind != yaml.ScalarNode {
		p.at(key, "%s: a key must be plain text, got %s", what, kindOf(key))
		return false
	}
	if first, twice := seen[key.Value]; twice {
		p.at(key, "%s: key %q is there twice, first in line %d", what, clip(key.Value), first.Line)
		return false
	}
	seen[key.Value] = key
	return true
}

func (p *parser) items(n *yaml.Node, what string, read func(i int, item *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		p.at(n, "%s: want a list, got %s", what, kindOf(n))
		return
	}
	for i, item := range n.Content {
		read(i, item)
	}
}

func kindOf(n *yaml.Node) string {
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
			return fmt.Sprintf("the text %q", clip(n.Value))
		case "!!int", "!!float":
			return "the number " + clip(n.Value)
		case "!!bool":
			return "the truth value " + clip(n.Value)
		}
		return fmt.Sprintf("%q", clip(n.Value))
	default:
		return "something else"
	}
}

func clip(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// text reads a string. What YAML takes for a number or a truth value is
// refused, because its spelling would be lost.
func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		hint := ""
		if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
			hint = "; put it in quotes"
		}
		p.at(n, "%s: want text, got %s%s", what, kindOf(n), hint)
		return ""
	}
	if err := checkText(n.Value); err != nil {
		p.at(n, "%s: %v", what, err)
		return ""
	}
	return n.Value
}

// checkText refuses characters that a reviewer cannot see.
func checkText(s string) error {
	if len(s) > maxText {
		return fmt.Errorf("longer than %d KiB", maxText>>10)
	}
	if !utf8.ValidString(s) {
		return errors.New("not valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
			return fmt.Errorf("contains the character %U, which a reader does not see", r)
		}
	}
	return nil
}

func (p *parser) line(n *yaml.Node, what string) string {
	s := p.text(n, what)
	if strings.ContainsAny(s, "\n\t") {
		p.at(n, "%s: want one line", what)
	}
	return s
}

func (p *parser) name(n *yaml.Node, what string) api.Name {
	s := p.text(n, what)
	if s == "" {
		if n.ShortTag() == "!!str" && n.Value == "" {
			p.at(n, "%s: is empty", what)
		}
		return ""
	}
	name, err := api.ParseName(s)
	if err != nil {
		p.at(n, "%s: %v", what, err)
	}
	return name
}

func (p *parser) texts(n *yaml.Node, what string) []string {
	var all []string
	p.items(n, what, func(i int, item *yaml.Node) {
		s := p.text(item, fmt.Sprintf("%s[%d]", what, i))
		if s == "" && item.ShortTag() == "!!str" && item.Value == "" {
			p.at(item, "%s[%d]: is empty", what, i)
		}
		all = append(all, s)
	})
	return all
}

func (p *parser) truth(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" || n.ShortTag() != "!!bool" {
		p.at(n, "%s: want true or false, got %s", what, kindOf(n))
	}
	return n.Value == "true"
}

// scalar reads text or a number into what has a text form.
func (p *parser) scalar(n *yaml.Node, what string, into interface{ UnmarshalText([]byte) error }) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" && n.ShortTag() != "!!int" {
		p.at(n, "%s: want a value, got %s", what, kindOf(n))
		return
	}
	if err := into.UnmarshalText([]byte(n.Value)); err != nil {
		p.at(n, "%s: %v", what, err)
	}
}

func (p *parser) count(n *yaml.Node, what string) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v <= 0 || v > math.MaxInt32 || strconv.Itoa(v) != n.Value {
		p.at(n, "%s: want a positive whole number, got %s", what, kindOf(n))
		return 0
	}
	return v
}

func (p *parser) positive(n *yaml.Node, what string) float64 {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" || err != nil || !(v > 0) || v > 4096 {
		p.at(n, "%s: want a number above 0, at most 4096, got %s", what, kindOf(n))
		return 0
	}
	return v
}

// json returns the canonical JSON of a node.
func (p *parser) json(n *yaml.Node, what string) json.RawMessage {
	before := len(p.all)
	v := p.value(n, what)
	if len(p.all) > before {
		return nil
	}
	b, err := canon.Marshal(v)
	if err != nil {
		p.at(n, "%s: %v", what, err)
		return nil
	}
	return b
}

func (p *parser) value(n *yaml.Node, what string) any {
	switch n.Kind {
	case yaml.MappingNode:
		m, seen := map[string]any{}, map[string]*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; p.key(key, what, seen) {
				m[p.text(key, what)] = p.value(n.Content[i+1], what+"."+clip(key.Value))
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

func (p *parser) scalarValue(n *yaml.Node, what string) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return p.truth(n, what)
	case "!!int", "!!float":
		if !json.Valid([]byte(n.Value)) {
			p.at(n, "%s: the number %s is not one of JSON", what, clip(n.Value))
			return nil
		}
		return json.Number(n.Value)
	}
	return p.text(n, what)
}
