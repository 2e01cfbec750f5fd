package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Manifest is a parsed bailiwick.yaml with the files that it names. Plan resolves
// its references, which may be to artifacts of the catalog.
type Manifest struct {
	path  string // absolute
	text  []byte // its content
	shown string // as the caller passed it
	dir   string // its directory
	// project is whose artifacts it declares; derived: from its directory's name.
	project api.Name
	derived bool
	decls   []*decl
	files   map[api.Digest]staged
}

// decl is the declaration of one artifact.
type decl struct {
	ref   api.Ref
	kind  api.Kind
	node  *yaml.Node
	pos   map[string]*yaml.Node // nodes by field
	doc   []byte                // the artifact document
	about string
	// unnamed is the grant, if its name is derived.
	unnamed *api.Grant
	// tool is the registered server, whose definitions a plan adds, and pin what the
	// manifest says of them.
	tool *api.ToolServer
	pin  api.Digest
}

// staged says where a file of a capability is on disk.
type staged struct {
	from string // directory below the manifest's
	file api.File
}

// Load reads the manifest at path and every file that it names. The error is
// Problems if they are invalid.
func Load(ctx context.Context, path string) (*Manifest, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	b, err := readManifest(abs)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return load(ctx, path, b)
}

// load reads the manifest at path with the content b.
func load(ctx context.Context, path string, b []byte) (*Manifest, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	root, err := os.OpenRoot(filepath.Dir(abs))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	r := &reader{
		parser: parser{strictyaml.Parser{List: strictyaml.List{File: path}}},
		ctx:    ctx,
		root:   root,
		m:      &Manifest{path: abs, text: b, shown: path, dir: filepath.Dir(abs), files: map[api.Digest]staged{}},
		refs:   map[api.Ref]*decl{},
	}
	r.read(b)
	if err := errors.Join(ctx.Err(), root.Close()); err != nil {
		return nil, err
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return r.m, nil
}

// Path is the absolute path of the manifest.
func (m *Manifest) Path() string { return m.path }

func readManifest(path string) (b []byte, err error) {
	st, err := os.Stat(path)                  //nolint:gosec // G703: the caller names its own manifest
	if err == nil && !st.Mode().IsRegular() { // opening a fifo would block
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path) //nolint:gosec // G304: the caller names its own manifest
	if err != nil {
		return nil, err
	}
	b, err = io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
	return b, errors.Join(err, f.Close())
}

// reader reads one manifest.
type reader struct {
	parser
	ctx  context.Context
	root *os.Root // the manifest's directory
	m    *Manifest
	refs map[api.Ref]*decl
	// unnamed are grants that get their names when the project is known.
	unnamed []*decl
	// grouped are grants for groups, which are written out when all people are known.
	grouped []grouped
	persons []api.IdentityPerson
	groups  []api.Name
}

func (r *reader) read(b []byte) {
	n := r.Document(b)
	if n == nil {
		return
	}
	version := false
	var project *yaml.Node
	each := func(kind api.Kind, one func(*decl, string)) func(*yaml.Node) {
		what := sectionOf(kind)
		return func(n *yaml.Node) {
			r.Items(n, what, func(i int, item *yaml.Node) {
				one(&decl{kind: kind, node: item, pos: map[string]*yaml.Node{}}, fmt.Sprintf("%s[%d]", what, i))
			})
		}
	}
	r.Fields(n, "manifest", map[string]func(*yaml.Node){
		"version": func(n *yaml.Node) {
			version = true
			if r.Count(n, "version") != 1 {
				r.At(n, "version: unsupported; this build reads version 1")
			}
		},
		"project":      func(n *yaml.Node) { project = n },
		"capabilities": each(api.KindCapability, r.capability),
		"subagents":    each(api.KindSubagent, r.subagent),
		"models":       each(api.KindModel, r.model),
		"envs":         each(api.KindEnv, r.env),
		"secrets":      each(api.KindSecret, r.secret),
		"sources":      each(api.KindSource, r.source),
		"targets":      each(api.KindTarget, r.target),
		"tools":        each(api.KindTool, r.tool),
		"roles":        each(api.KindRole, r.role),
		"grants":       each(api.KindGrant, r.grant),
		"schedules":    each(api.KindSchedule, r.schedule),
		"identities":   each(api.KindIdentity, r.identity),
	}, "policies", "pipelines", "egress", "queues")
	if !version && n.Kind == yaml.MappingNode {
		r.At(n, "manifest: the key \"version\" is missing; add \"version: 1\"")
	}
	r.project(project)
	for _, g := range r.grouped {
		r.expand(g)
	}
	for _, d := range r.unnamed {
		who := d.unnamed.Principal
		d.unnamed.Name = grantName(r.m.project, who)
		if first := r.refs[api.RefTo(api.KindGrant, d.unnamed.Name)]; first != nil && first.unnamed != nil && first.unnamed.Principal != who {
			r.At(d.at("principal"), "grants: %s and %s in line %d both get the name %s; use one spelling, or give one grant a name", who, first.unnamed.Principal, first.node.Line, d.unnamed.Name)
			continue
		}
		r.declare(d, api.KindGrant, d.unnamed.Name, "", d.unnamed)
	}
}

// sectionOf is the key of the manifest that declares artifacts of a kind.
func sectionOf(k api.Kind) string {
	switch k { //nolint:exhaustive // the others have a regular plural
	case api.KindCapability:
		return "capabilities"
	case api.KindIdentity:
		return "identities"
	}
	return string(k) + "s"
}

// declare adds an artifact to the manifest, if it has a name.
func (r *reader) declare(d *decl, kind api.Kind, name api.Name, about string, value any) {
	if name == "" {
		if _, given := d.pos["name"]; !given && d.node.Kind == yaml.MappingNode {
			r.At(d.node, "%s: the key \"name\" is missing", kind)
		}
		return
	}
	d.ref, d.about = api.RefTo(kind, name), about
	if first, twice := r.refs[d.ref]; twice {
		r.At(d.at("name"), "%s: duplicate declaration, first in line %d", d.ref, first.node.Line)
		return
	}
	r.refs[d.ref] = d
	doc, err := canon.Marshal(value)
	if err == nil && len(doc) > catalog.MaxDocument {
		err = fmt.Errorf("larger than %d bytes", catalog.MaxDocument)
	}
	if err != nil {
		r.At(d.node, "%s: %v", d.ref, err)
		return
	}
	d.doc = doc
	r.m.decls = append(r.m.decls, d)
}

// at returns the node of a field, or of the whole declaration.
func (d *decl) at(field string) *yaml.Node {
	if n, ok := d.pos[field]; ok {
		return n
	}
	return d.node
}

// label is the ref of a declaration that is still being read, or its kind if it has
// no name.
func (d *decl) label() string {
	for i := 0; d.node.Kind == yaml.MappingNode && i+1 < len(d.node.Content); i += 2 {
		if key, value := d.node.Content[i], d.node.Content[i+1]; slices.Contains(nameKeys(d.kind), key.Value) && value.Kind == yaml.ScalarNode {
			return string(d.kind) + "/" + strictyaml.Clip(value.Value)
		}
	}
	return string(d.kind)
}

// nameKeys are the keys that name an artifact of a kind.
func nameKeys(k api.Kind) []string {
	if k == api.KindTool {
		return []string{"server", "command"}
	}
	return []string{"name"}
}

// in wraps a reader to record the node of a field.
func (d *decl) in(field string, read func(*yaml.Node)) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.pos[field] = n
		read(n)
	}
}
