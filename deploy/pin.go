package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// Pin writes the pins of servers into the manifest. Every other byte of it stays. It
// refuses a manifest that has changed since m was loaded.
func (m *Manifest) Pin(ctx context.Context, servers []Unpinned) error {
	now, err := readManifest(m.path)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if !bytes.Equal(now, m.text) {
		return api.Errorf(api.CodeConflict, "%s: changed while it was planned", m.shown).WithHint("plan again")
	}
	pins := map[api.Ref]api.Digest{}
	text := now
	// From the end, so that the places of the others stay.
	for _, u := range slices.SortedFunc(slices.Values(servers), func(a, b Unpinned) int {
		return b.decl.node.Line*1e6 + b.decl.node.Column - a.decl.node.Line*1e6 - a.decl.node.Column
	}) {
		pins[u.decl.ref] = u.Pin
		if text, err = withPin(text, u); err != nil {
			return m.byHand(u, err)
		}
	}
	again, err := load(ctx, m.shown, text)
	if err == nil {
		err = m.samePinned(again, pins)
	}
	if err != nil {
		return m.byHand(servers[0], err)
	}
	st, err := os.Stat(m.path)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	// In place: links to it, its owner and its mode stay.
	if err := os.WriteFile(m.path, text, st.Mode().Perm()); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

func (m *Manifest) byHand(u Unpinned, err error) error {
	return api.Errorf(api.CodeInvalid, "%s: cannot write the pin of %s: %w", m.shown, u.decl.ref, err).WithHint("add it to the server yourself: pin: %s", u.Pin)
}

// samePinned refuses a text that means anything else than m with other pins.
func (m *Manifest) samePinned(again *Manifest, pins map[api.Ref]api.Digest) error {
	same := len(m.decls) == len(again.decls) && m.project == again.project
	for i := 0; same && i < len(m.decls); i++ {
		old, now := m.decls[i], again.decls[i]
		pin, set := pins[old.ref]
		if !set {
			pin = old.pin
		}
		same = old.ref == now.ref && bytes.Equal(old.doc, now.doc) && now.pin == pin
	}
	if !same {
		return errors.New("the layout of the file does not tell where it belongs")
	}
	return nil
}

// withPin returns the text of a manifest with the pin of one server: in the place of
// the one that it has, or after its name.
func withPin(text []byte, u Unpinned) ([]byte, error) {
	d := u.decl
	if n := d.pos["pin"]; n != nil {
		from, err := offset(text, n)
		if err != nil {
			return nil, err
		}
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			from++
		}
		if !bytes.HasPrefix(text[from:], []byte(n.Value)) {
			return nil, errors.New("its pin is not in one line")
		}
		return slices.Concat(text[:from], []byte(u.Pin), text[from+len(n.Value):]), nil
	}
	name := d.pos["name"]
	at, err := offset(text, name)
	if err != nil {
		return nil, err
	}
	if d.node.Style&yaml.FlowStyle != 0 {
		end := at + len(name.Value)
		if name.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			end += 2
		}
		return slices.Concat(text[:end], []byte(", pin: "+u.Pin), text[end:]), nil
	}
	line := "pin: " + string(u.Pin)
	indent := strings.Repeat(" ", d.node.Column-1)
	end := bytes.IndexByte(text[at:], '\n')
	if end < 0 {
		return slices.Concat(text, []byte("\n"+indent+line)), nil
	}
	end += at
	ending := "\n"
	if text[end-1] == '\r' {
		ending = "\r\n"
	}
	return slices.Concat(text[:end+1], []byte(indent+line+ending), text[end+1:]), nil
}

// offset returns where a node begins. Its column counts characters.
func offset(text []byte, n *yaml.Node) (int, error) {
	at := 0
	for range n.Line - 1 {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			return 0, errors.New("its lines do not end with a line feed")
		}
		at += i + 1
	}
	rest := string(text[at:])
	column := 1
	for i, r := range rest {
		if column == n.Column {
			return at + i, nil
		}
		if r == '\n' {
			break
		}
		column++
	}
	return 0, errors.New("the place of " + strictyaml.Clip(n.Value) + " is unknown")
}
