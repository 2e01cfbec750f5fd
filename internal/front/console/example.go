package console

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ExampleDispatch returns a command line that dispatches a subagent, with what its
// input schema requires.
func ExampleDispatch(l api.Listing) string {
	words := []string{"bailiwick", "dispatch", "run", string(l.Name)}
	if len(l.Sources) > 0 {
		words = append(words, "--source", string(l.Sources[0]))
	}
	if l.Target == "" && len(l.Targets) > 0 {
		words = append(words, "--target", string(l.Targets[0]))
	}
	return ShellText(append(words, ExampleInput(l.Input)...)...)
}

// ExampleInput returns the flags of dispatch run that give an input which fits a JSON
// Schema: the members that it requires. A text is TEXT, to be replaced. Where no such
// value is found, they name a file to write.
func ExampleInput(raw json.RawMessage) []string {
	if len(raw) == 0 {
		return nil
	}
	var s jsonschema.Schema
	if json.Unmarshal(raw, &s) != nil {
		return []string{"--input", "@input.json"}
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return []string{"--input", "@input.json"}
	}
	for _, repeat := range []int{0, 1, 3, 8, 20, 64} {
		g := sampler{root: &s, repeat: repeat, left: new(maxSampleValues)}
		members, ok := g.value(&s, 0).(map[string]any)
		if !ok && typeOf(&s) == "" { // anything
			members, ok = map[string]any{}, true
		}
		if ok && resolved.Validate(members) == nil {
			return inputFlags(members, order(&s, members))
		}
	}
	return []string{"--input", "@input.json"}
}

// order returns the names of members: required ones first, as the schema lists
// them.
func order(s *jsonschema.Schema, members map[string]any) (names []string) {
	for _, n := range s.Required {
		if _, ok := members[n]; ok && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	var rest []string
	for n := range members {
		if !slices.Contains(names, n) {
			rest = append(rest, n)
		}
	}
	slices.Sort(rest)
	return append(names, rest...)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// inputFlags returns --set for each member, or --input if a shell or a terminal
// would not pass one on as it is.
func inputFlags(members map[string]any, names []string) (flags []string) {
	for _, n := range names {
		assign, ok := "=", true
		text, isText := members[n].(string)
		if !isText {
			b, err := json.Marshal(members[n])
			assign, text, ok = ":=", string(b), err == nil
		}
		if !ok || !plainKey.MatchString(n) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			b, err := json.Marshal(members)
			if err != nil {
				return []string{"--input", "@input.json"}
			}
			return []string{"--input", asciiJSON(string(b))}
		}
		flags = append(flags, "--set", n+assign+text)
	}
	return flags
}

// asciiJSON escapes what is not plain ASCII in a JSON text.
func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// sampler makes values that fit schemas. It covers what people write in manifests;
// the caller validates the value.
type sampler struct {
	root   *jsonschema.Schema
	repeat int  // how often a pattern repeats what it may repeat
	left   *int // values that may still be made
}

// Bounds of an example. Schemas contain themselves, and patterns repeat what they
// repeat.
const (
	maxSampleDepth  = 8
	maxSampleValues = 1000
	maxSampleText   = 4096
)

// value returns a value for s: an example, the default, or the simplest value of
// its type.
func (g sampler) value(s *jsonschema.Schema, depth int) any {
	*g.left--
	switch {
	case s == nil || depth > maxSampleDepth || *g.left < 0:
		return "TEXT"
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Const != nil:
		return *s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case strings.HasPrefix(s.Ref, "#/$defs/"):
		return g.value(g.root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")], depth+1)
	}
	var v any
	if len(s.Default) > 0 && json.Unmarshal(s.Default, &v) == nil {
		return v
	}
	for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(list) > 0 && s.Type == "" && len(s.Types) == 0 {
			return g.value(list[0], depth+1)
		}
	}
	switch typeOf(s) {
	case "object":
		return g.object(s, depth)
	case "array":
		list := make([]any, 0)
		for range least(s.MinItems) {
			list = append(list, g.value(s.Items, depth+1))
		}
		return list
	case "integer":
		return number(s, true)
	case "number":
		return number(s, false)
	case "boolean":
		return true
	case "null":
		return nil
	}
	return g.text(s)
}

// typeOf returns the type of a value for s; an object where the schema has
// members.
func typeOf(s *jsonschema.Schema) string {
	switch {
	case s.Type != "":
		return s.Type
	case len(s.Types) > 0:
		return s.Types[0]
	case len(s.Properties) > 0 || len(s.Required) > 0:
		return "object"
	case s.Minimum != nil || s.Maximum != nil:
		return "number"
	}
	return ""
}

// object returns the members that s and the first alternative in it require.
func (g sampler) object(s *jsonschema.Schema, depth int) map[string]any {
	members := map[string]any{}
	required := s.Required
	for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(list) > 0 {
			required = slices.Concat(required, list[0].Required)
		}
	}
	for _, n := range required {
		members[n] = g.value(s.Properties[n], depth+1)
	}
	return members
}

// least returns a minimum that an example can have.
func least(n *int) int {
	if n == nil {
		return 0
	}
	return min(max(*n, 0), 100)
}

// number returns the number closest to 1 that the bounds of s allow.
func number(s *jsonschema.Schema, whole bool) float64 {
	v, step := 1.0, 0.5
	if whole {
		step = 1
	}
	if s.MultipleOf != nil && *s.MultipleOf > 0 {
		step = *s.MultipleOf
		v = step
	}
	up := func(bound float64) float64 { return math.Ceil(bound/step) * step }
	down := func(bound float64) float64 { return math.Floor(bound/step) * step }
	if s.Minimum != nil && v < *s.Minimum {
		v = up(*s.Minimum)
	}
	if s.ExclusiveMinimum != nil && v <= *s.ExclusiveMinimum {
		v = up(*s.ExclusiveMinimum + step/2)
	}
	if s.Maximum != nil && v > *s.Maximum {
		v = down(*s.Maximum)
	}
	if s.ExclusiveMaximum != nil && v >= *s.ExclusiveMaximum {
		v = down(*s.ExclusiveMaximum - step/2)
	}
	return v
}

// text returns a text that fits the pattern, format and length of s.
func (g sampler) text(s *jsonschema.Schema) string {
	if s.Pattern != "" {
		if re, err := syntax.Parse(s.Pattern, syntax.Perl); err == nil {
			return g.matching(re)
		}
	}
	formats := map[string]string{
		"date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "email": "ann@example.com", "hostname": "example.com",
		"uri": "https://example.com/", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "123e4567-e89b-42d3-a456-426614174000",
	}
	text, ok := formats[s.Format]
	if !ok {
		text = "TEXT"
	}
	for len(text) < least(s.MinLength) {
		text += "T"
	}
	if s.MaxLength != nil && len(text) > *s.MaxLength {
		text = text[:max(*s.MaxLength, 0)]
	}
	return text
}

// matching returns a text that an expression matches.
func (g sampler) matching(re *syntax.Regexp) string {
	times := func(least, most int) string {
		n := max(least, g.repeat)
		if most >= 0 {
			n = min(n, most)
		}
		once := g.matching(re.Sub[0])
		return strings.Repeat(once, min(n, maxSampleText/max(1, len(once))))
	}
	switch re.Op { //nolint:exhaustive // the others match the empty text
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		return string(pick(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "a"
	case syntax.OpCapture, syntax.OpAlternate:
		return g.matching(re.Sub[0])
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(g.matching(sub))
		}
		return b.String()
	case syntax.OpStar:
		return times(0, -1)
	case syntax.OpPlus:
		return times(1, -1)
	case syntax.OpQuest:
		return times(0, 1)
	case syntax.OpRepeat:
		return times(re.Min, re.Max)
	}
	return ""
}

// pick returns a character of a class of ranges: a letter or digit if it has
// one.
func pick(ranges []rune) rune {
	for _, want := range "aA0_-" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	if len(ranges) == 0 {
		return 'a'
	}
	return ranges[0]
}
