package deploy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

// Definer asks a registered server, which has files of its capability, for the
// definitions of all its tools. They are hostile.
type Definer func(ctx context.Context, s api.ToolServer, files []ToolFile) (Offer, error)

// Offer is what a server has.
type Offer struct {
	Tools  []api.ToolDefinition
	Unused []string // what no agent gets, such as resources; in our words
}

// ToolFile is a file of a capability. Open verifies nothing.
type ToolFile struct {
	api.File

	Open func() (io.ReadCloser, error)
}

// Unpinned is a server whose definitions are not agreed to: the manifest has no pin
// of them, or that of others.
type Unpinned struct {
	Server  api.Name
	Pin     api.Digest // of Tools
	Was     api.Digest // of the manifest; empty if it has none
	Tools   []api.ToolDefinition
	InForce []api.ToolDefinition // of the catalog; nil if it does not have the server
	Others  []string             // tools that no allow names
	Unused  []string             // what the server has and no agent gets

	decl *decl
}

// Changed lists in which parts the definition of a tool differs from that in force.
func (u Unpinned) Changed(tool string) []string {
	return catalogdiff.ChangedParts(u.InForce, u.Tools, tool)
}

// UnpinnedError refuses a plan until a person has seen definitions and pinned them. Its
// problems have the lines to put into the manifest.
type UnpinnedError struct {
	Servers  []Unpinned
	problems error
}

func (e *UnpinnedError) Error() string { return e.problems.Error() }

// Unwrap returns the problems of the manifest.
func (e *UnpinnedError) Unwrap() error { return e.problems }

// define adds the definitions of servers to what the manifest declares, which has their
// pins. A server that cannot be asked keeps the definitions in force.
func (c *Catalog) define(ctx context.Context, l *strictyaml.List, p *Plan, m *Manifest, declared map[api.Ref]*decl) (unpinned []Unpinned, err error) {
	fit := map[api.Ref]*decl{}
	for ref, d := range declared {
		if d.tool == nil {
			continue
		}
		before := l.Len()
		if toolPlaces(l, d, c.cfg.Private); l.Len() == before && d.tool.Run == nil {
			fit[ref] = d
		}
	}
	answers := c.askAll(ctx, p, m, declared, fit)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, ref := range slices.Sorted(maps.Keys(answers)) {
		d := declared[ref]
		u := judge(l, p, d, answers[ref])
		switch {
		case u == nil:
			continue
		case u.Pin != d.pin:
			unpinned = append(unpinned, *u)
			l.Add(d.at("pin").Line, d.at("pin").Column, "%s: %s", ref, pinProblem(u))
			continue
		}
		full := *d.tool
		full.Definitions = u.Tools
		doc, err := canon.Marshal(full)
		if err == nil && len(doc) > catalog.MaxDocument {
			err = fmt.Errorf("larger than %d bytes", catalog.MaxDocument)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		defined := *d
		defined.doc = doc
		declared[ref] = &defined
		p.notAllowed(ref, u.Others)
		if len(u.Unused) > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%s: no agent gets its %s", ref, strings.Join(u.Unused, ", ")))
		}
	}
	return unpinned, nil
}

func pinProblem(u *Unpinned) string {
	if u.Was == "" {
		return fmt.Sprintf("no pin; review the definitions of its tools, then add the line pin: %s, or have catalog plan --pin do it", u.Pin)
	}
	return fmt.Sprintf("the definitions of its tools have changed: they differ from pin %s; review them, then write pin: %s, or have catalog plan --pin do it", u.Was.Short(), u.Pin)
}

// answer is what a server says.
type answer struct {
	Offer

	err error
}

// How servers are asked.
const (
	askTimeout = time.Minute
	askAtOnce  = 4
	maxReason  = 500 // bytes of an error that a server caused
)

// askAll asks servers that the manifest declares. One whose capability is missing
// has no answer: references says so.
func (c *Catalog) askAll(ctx context.Context, p *Plan, m *Manifest, declared, servers map[api.Ref]*decl) map[api.Ref]answer {
	all := map[api.Ref]answer{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	turn := make(chan struct{}, askAtOnce)
	for ref, d := range servers {
		files, ok, err := c.toolFiles(ctx, p, m, declared, *d.tool)
		if err != nil {
			all[ref] = answer{err: err}
		}
		if err != nil || !ok {
			continue
		}
		server, without := p.unsigned(*d.tool, declared)
		wg.Go(func() {
			turn <- struct{}{}
			offer, err := c.definitions(ctx, server, files)
			<-turn
			if err != nil && without {
				err = fmt.Errorf("%w; its egress and connect are not signed yet, so it ran without them; --connect allows them", err)
			}
			mu.Lock()
			all[ref] = answer{offer, err}
			mu.Unlock()
		})
	}
	wg.Wait()
	return all
}

// unsigned returns a server as a plan runs it: one that is not signed as it is
// reaches no network, unless the user says so. It reports whether something was taken.
func (p *Plan) unsigned(s api.ToolServer, declared map[api.Ref]*decl) (_ api.ToolServer, without bool) {
	if p.Connect || s.Stdio == nil || len(s.Stdio.Egress)+len(s.Stdio.Connect) == 0 {
		return s, false
	}
	ref := api.RefTo(api.KindCapability, s.Stdio.Capability)
	files := declared[ref]
	old, errOld := canon.Marshal(p.before.Tools[s.Name].Stdio)
	now, errNow := canon.Marshal(s.Stdio)
	if errOld == nil && errNow == nil && bytes.Equal(old, now) && (files == nil || bytes.Equal(files.doc, p.before.Document(ref))) {
		return s, false
	}
	alone := *s.Stdio
	alone.Egress, alone.Connect = nil, nil
	s.Stdio = &alone
	return s, true
}

// judge returns the definitions of the tools that a server's allow names. It is nil after
// a problem.
func judge(l *strictyaml.List, p *Plan, d *decl, a answer) *Unpinned {
	inForce, has := p.before.Tools[d.tool.Name]
	u := &Unpinned{Server: d.tool.Name, Was: d.pin, decl: d}
	if has {
		u.InForce = inForce.Definitions
	}
	if a.err != nil {
		reason := cuttext.Text(strings.ToValidUTF8(strictyaml.OneLine(a.err.Error()), "?"), maxReason)
		if u.Tools, u.Pin = pinned(*d.tool, inForce.Definitions); u.Pin == d.pin && d.pin != "" {
			p.Notes = append(p.Notes, fmt.Sprintf("%s: not asked for its tools: %s; the definitions in force have the pin of the manifest and stay", d.ref, reason))
			return u
		}
		l.Add(d.node.Line, d.node.Column, "%s: cannot ask the server for its tools: %s; a plan needs it to run here, unless the catalog has definitions with the pin of the manifest", d.ref, reason)
		return nil
	}
	all := a.Tools
	u.Unused = a.Unused
	var err error
	before := l.Len()
	names := make([]string, 0, len(all))
	for _, def := range all {
		names = append(names, def.Name)
	}
	for _, a := range d.tool.Allow {
		i := slices.Index(names, a.Tool)
		n := d.at("allow[" + a.Tool + "].tool")
		if i < 0 {
			l.Add(n.Line, n.Column, "%s: the server has no tool %q; it has %s", d.ref, a.Tool, ToolNames(names))
			continue
		}
		if all[i].TaskOnly {
			l.Add(n.Line, n.Column, "%s: tool %q of the server runs as a task only, which is not supported, so every call would fail; leave it out of allow", d.ref, a.Tool)
			continue
		}
		def, err := defined(all[i])
		if err != nil {
			l.Add(n.Line, n.Column, "%s: %v", d.ref, err)
			continue
		}
		u.Tools = append(u.Tools, def)
	}
	if l.Len() > before {
		return nil
	}
	if u.Pin, err = catalog.PinOf(u.Tools); err != nil {
		l.Add(d.node.Line, d.node.Column, "%s: %v", d.ref, err)
		return nil
	}
	for _, n := range names {
		if !slices.ContainsFunc(d.tool.Allow, func(a api.ToolAllow) bool { return a.Tool == n }) {
			u.Others = append(u.Others, n)
		}
	}
	return u
}

// toolFiles returns the files of a server's capability, which the manifest or the catalog
// has.
func (c *Catalog) toolFiles(ctx context.Context, p *Plan, m *Manifest, declared map[api.Ref]*decl, s api.ToolServer) (files []ToolFile, ok bool, err error) {
	host := s.Host()
	if host == nil || host.Capability == "" {
		return nil, true, nil
	}
	v, ok := p.before.Capabilities[host.Capability]
	if d := declared[api.RefTo(api.KindCapability, host.Capability)]; d != nil {
		v, ok = api.Capability{}, true
		err = canon.DecodeExact(d.doc, &v)
	}
	for _, f := range v.Files {
		open := func() (io.ReadCloser, error) {
			if from, ok := m.files[f.Digest]; ok {
				return from.open(m.dir)
			}
			b, err := c.File(ctx, f)
			return io.NopCloser(bytes.NewReader(b)), err
		}
		files = append(files, ToolFile{f, open})
	}
	return files, ok, err
}

// definitions asks a server. It refuses two tools of one name.
func (c *Catalog) definitions(ctx context.Context, s api.ToolServer, files []ToolFile) (offer Offer, err error) {
	if c.cfg.Define == nil {
		return offer, errors.New("this program does not connect to servers")
	}
	wait := cmp.Or(c.cfg.askWait, askTimeout)
	short, stop := context.WithTimeout(ctx, wait)
	defer stop()
	offer, err = c.cfg.Define(short, s, files)
	all := offer.Tools
	if short.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %s", wait)
	}
	if err == nil && len(all) > catalog.MaxDefinitions {
		err = fmt.Errorf("it has %d tools, want at most %d", len(all), catalog.MaxDefinitions)
	}
	if err != nil {
		return Offer{}, err
	}
	all = slices.SortedStableFunc(slices.Values(all), func(a, b api.ToolDefinition) int { return cmp.Compare(a.Name, b.Name) })
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			return Offer{}, fmt.Errorf("it has two tools with the name %.80q", all[i].Name)
		}
	}
	offer.Tools = all
	return offer, nil
}

// defined returns a definition in the canonical form. It refuses one whose schemas could
// not be checked at a call.
func defined(d api.ToolDefinition) (api.ToolDefinition, error) {
	d, err := catalog.Define(d)
	if err != nil {
		return d, err
	}
	for what, raw := range map[string]json.RawMessage{"inputSchema": d.InputSchema, "outputSchema": d.OutputSchema} {
		if raw == nil {
			continue
		}
		if err := compiles(raw); err != nil {
			return d, fmt.Errorf("tool %q: %s: %w", d.Name, what, err)
		}
		if !isObjectSchema(raw) {
			return d, fmt.Errorf("tool %q: %s: want type: object", d.Name, what)
		}
	}
	return d, nil
}

// pinned returns the definitions of the tools that allow names, if there is one of each,
// and their pin.
func pinned(s api.ToolServer, have []api.ToolDefinition) ([]api.ToolDefinition, api.Digest) {
	var list []api.ToolDefinition
	for _, a := range s.Allow {
		i := slices.IndexFunc(have, func(d api.ToolDefinition) bool { return d.Name == a.Tool })
		if i < 0 {
			return nil, ""
		}
		list = append(list, have[i])
	}
	pin, err := catalog.PinOf(list)
	if err != nil {
		return nil, ""
	}
	return list, pin
}

// maxNamed is how many tools of a server a message names.
const maxNamed = 40

// ToolNames lists names that a server chose, for people.
func ToolNames(names []string) string {
	if len(names) == 0 {
		return "no tools"
	}
	shown := make([]string, 0, maxNamed)
	for _, n := range names[:min(len(names), maxNamed)] {
		if !catalog.IsToolName(n) {
			n = fmt.Sprintf("%+q", strictyaml.Clip(n))
		}
		shown = append(shown, n)
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// notAllowed notes the tools of a server that no role has.
func (p *Plan) notAllowed(ref api.Ref, names []string) {
	if len(names) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s: not allowed to any role: %s", ref, ToolNames(names)))
	}
}
