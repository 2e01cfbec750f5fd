package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// node says what the body of a request may have at one place. A nil node allows
// anything. A null is allowed unless raw says otherwise. Other kinds of values than those that the
// node describes are refused, because a lenient server might understand them.
type node struct {
	object  map[string]*node // members with rules
	closed  bool             // an object has no other members, unless serverTools lists them
	array   *node            // of each element; a single object may stand for a list of one
	leaf    check            // of a string, number or Boolean
	raw     check            // of the whole value instead of all others
	tool    string           // allowed only if serverTools lists this name
	needs   []string         // an object has one of these members, which is not null, unless serverTools lists toolStored
	media   bool             // members with a URL or data by their name have no URL to fetch
	unbound bool             // a value here may be more tokens than its bytes

	folded map[string]string // by folded name: the member of object
}

// check looks at a value. Its error says what is wrong, without the place.
type check func(in *inspection, value jsontext.Value) error

// plain allows a string, number or Boolean.
func plain(*inspection, jsontext.Value) error { return nil }

// inspection is the work on one body.
type inspection struct {
	dec   *jsontext.Decoder
	model *Model
	facts facts
}

// facts are what the relay needs to know of a body.
type facts struct {
	named   bool // the model
	stream  bool
	options span  // of the value of stream_options; zero if it is missing
	store   bool  // the request decides about storing its answer
	storeAt span  // of a null that does not; zero if it is missing
	most    int64 // tokens that the answer may have; 0: the request does not say
	many    bool  // it may ask for several answers
	unbound bool  // its members say less than it may use
}

// output returns how many tokens the answer may have; 0: nothing bounds them, or the
// input.
func (f *facts) output() int64 {
	if f.unbound {
		return 0
	}
	return f.most
}

type span struct{ from, to int64 }

// errSyntax marks bodies that are not JSON.
var errSyntax = errors.New("the body of the request is not a JSON object in UTF-8 with unique member names")

// inspect checks a body against the rules of its format. Work is proportional to its
// length; memory, to its nesting and to the member names of one object.
func inspect(b []byte, rules *node, m *Model) (facts, error) {
	if !utf8.Valid(b) {
		return facts{}, fmt.Errorf("%w: invalid UTF-8", errSyntax)
	}
	// A lone surrogate, as JavaScript makes of a text that it cuts, is passed on.
	in := &inspection{model: m, dec: jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true))}
	if in.dec.PeekKind() != '{' {
		return facts{}, errSyntax
	}
	if err := in.value(rules); err != nil {
		if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			err = fmt.Errorf("%w: %.200s", errSyntax, strings.TrimPrefix(syntax.Error(), "jsontext: "))
		}
		return in.facts, err
	}
	if _, err := in.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return in.facts, fmt.Errorf("%w: data after it", errSyntax)
	}
	return in.facts, nil
}

func (in *inspection) value(n *node) error {
	kind := in.dec.PeekKind()
	if n != nil && n.unbound && kind != 'n' {
		in.facts.unbound = true
	}
	switch {
	case n != nil && n.raw != nil:
		return in.check(n.raw)
	case n == nil, kind == 'n', kind == 0: // an invalid value, too
		return in.dec.SkipValue()
	case n.tool != "":
		return in.needs(n.tool)
	case kind == '{' && n.object != nil:
		return in.members(n)
	case kind == '{' && n.array != nil:
		return in.value(n.array)
	case kind == '[' && n.array != nil:
		return in.elements(n.array)
	case kind != '{' && kind != '[' && n.leaf != nil:
		return in.check(n.leaf)
	}
	return in.wrong(in.place(), errors.New("unexpected kind of value"))
}

func (in *inspection) elements(n *node) error {
	if _, err := in.dec.ReadToken(); err != nil {
		return err
	}
	for in.dec.PeekKind() != ']' {
		if err := in.value(n); err != nil {
			return err
		}
	}
	_, err := in.dec.ReadToken()
	return err
}

// members checks an object. Two members are the same one, and refused, if a server that
// ignores case or underscores in names would take one for the other.
func (in *inspection) members(n *node) error {
	if _, err := in.dec.ReadToken(); err != nil {
		return err
	}
	seen, named := map[string]bool{}, len(n.needs) == 0 || in.model.serverTool(toolStored)
	for in.dec.PeekKind() != '}' {
		t, err := in.dec.ReadToken()
		if err != nil {
			return err
		}
		name := t.String()
		rule, known := n.object[name]
		folded := fold(name)
		named = named || slices.Contains(n.needs, name) && in.dec.PeekKind() != 'n'
		_, similar := n.folded[folded]
		if n.media && !known && !similar && namesMedia(folded) {
			rule, known = fetched(), true
		}
		switch {
		case known && seen[folded]:
			err = in.wrong(in.place(), errors.New("second spelling of a member"))
		case known:
			seen[folded] = true
			err = in.value(rule)
		case similar:
			err = in.wrong(in.place(), fmt.Errorf("want the spelling %q", n.folded[folded]))
		case n.closed && in.dec.PeekKind() != 'n' && !in.model.serverTool(name):
			err = in.wrong(in.place(), errors.New("unknown member, and the model's serverTools do not list it"))
		default:
			err = in.dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	if !named {
		return in.wrong(in.place(), notListed(toolStored))
	}
	_, err := in.dec.ReadToken()
	return err
}

func (in *inspection) check(c check) error {
	v, err := in.dec.ReadValue()
	if err != nil {
		return err
	}
	if err := c(in, v); err != nil {
		return in.wrong(in.place(), err) // only now: a place is as long as it is deep
	}
	return nil
}

// needs skips a value that is allowed only if serverTools lists tool.
func (in *inspection) needs(tool string) error {
	if in.model.serverTool(tool) {
		return in.dec.SkipValue()
	}
	return in.wrong(in.place(), notListed(tool))
}

// place is where the next value is: a JSON pointer.
func (in *inspection) place() string { return string(in.dec.StackPointer()) }

func (in *inspection) wrong(at string, err error) error {
	return fmt.Errorf("%.100q in the body of the request: %w", at, err)
}

func notListed(tool string) error {
	return fmt.Errorf("the model's serverTools do not list %.60q, so that the provider cannot reach hosts or data for the agent", tool)
}

// serverTool reports whether serverTools lists a tool of the provider, exactly or
// without its version.
func (m *Model) serverTool(name string) bool {
	for _, t := range m.ServerTools {
		if t == name || fold(t) == fold(name) || strings.HasPrefix(name, t+"_") {
			return true
		}
	}
	return false
}

// listed makes the rules of members: those of object, and all names in others without
// one.
func listed(object map[string]*node, others ...string) *node {
	n := &node{object: object, closed: true}
	for _, name := range others {
		n.object[name] = nil
	}
	return n.fold()
}

// open makes the rules of an object with any other members.
func open(object map[string]*node) *node { return (&node{object: object}).fold() }

func (n *node) fold() *node {
	n.folded = make(map[string]string, len(n.object))
	for name := range n.object {
		n.folded[fold(name)] = name
	}
	return n
}

// fold returns what is equal for names that lenient servers take for the same.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return unicode.ToLower(least)
	}, name)
}
