package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// toolSet is what the agents of one role may call under one revision. The list that they
// see is of the same tools. It is shared by all views that have it, and does not change.
type toolSet struct {
	key   setKey
	users int              // guarded by Gateway.mu
	tools map[string]*tool // by the name that agents use
	// above are the tools that the role has above the ceiling, so that no call can be
	// allowed. To agents they do not exist; the log says why they are refused.
	above map[string]api.Tool
	shown []shownTool
	list  json.RawMessage // of shown: the tools of tools/list while none is closed
}

type setKey struct {
	revision api.Digest
	role     api.Name
	ceiling  api.Tier
}

// tool is a tool with its compiled schemas.
type tool struct {
	api.Tool
	definition api.Digest // of the canonical definition
	input      *jsonschema.Resolved
	output     *jsonschema.Resolved // nil: none
}

// setFor returns the tools of a role, which the caller releases.
func (g *Gateway) setFor(ctx context.Context, a *Attempt) (*toolSet, error) {
	key := setKey{a.Manifest.RevisionDigest, a.Manifest.Role, a.Manifest.Ceiling}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sets[key]
	if s == nil {
		var err error
		if s, err = newToolSet(ctx, key, a.Revision, g.cfg.Logger); err != nil {
			return nil, err
		}
		g.sets[key] = s
	}
	s.users++
	return s, nil
}

func (g *Gateway) release(s *toolSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(g.sets, s.key)
	}
}

func newToolSet(ctx context.Context, key setKey, rev *catalog.Revision, logger *slog.Logger) (*toolSet, error) {
	s := &toolSet{key: key, tools: map[string]*tool{}, above: map[string]api.Tool{}}
	s.shown = []shownTool{}
	for _, t := range rev.Tools(key.role) {
		if t.Tier > key.ceiling {
			s.above[t.Name] = t
			continue
		}
		made, err := newTool(t)
		if err != nil { // plan refuses such a definition
			logger.WarnContext(ctx, "a tool is closed: its pinned definition cannot be used", slog.String("tool", t.ID), slog.Any("err", err))
			continue
		}
		s.tools[t.Name] = made
		s.shown = append(s.shown, show(t))
	}
	var err error
	s.list, err = json.Marshal(s.shown)
	return s, err
}

func newTool(t api.Tool) (made *tool, err error) {
	made = &tool{Tool: t}
	if made.definition, err = catalog.DefinitionDigest(t.Definition); err != nil {
		return nil, err
	}
	if made.input, err = compile(t.Definition.InputSchema); err != nil {
		return nil, err
	}
	made.output, err = compile(t.Definition.OutputSchema)
	return made, err
}

// compile returns a schema, which refers to no other document; nil for none.
func compile(doc json.RawMessage) (*jsonschema.Resolved, error) {
	if len(doc) == 0 {
		return nil, nil //nolint:nilnil // a tool need not have one
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(doc, &schema); err != nil {
		return nil, err
	}
	return schema.Resolve(nil)
}

// shownTool is a tool in the list that an agent sees.
type shownTool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
	Meta         shownMeta       `json:"_meta"`
}

type shownMeta struct {
	Tier     api.Tier `json:"io.bailiwick/tier"`
	Approval bool     `json:"io.bailiwick/approval,omitempty"` // a human approves each call
}

// approvalNote follows the pinned description of a tool: models read nothing else.
const approvalNote = "[A human approves each call of this tool. A call waits for them; when it says so, call again with the same arguments.]"

// show returns the pinned definition with the name that agents use and our own words.
func show(t api.Tool) shownTool {
	d := t.Definition
	s := shownTool{
		Name: t.Name, Title: d.Title, Description: d.Description, InputSchema: d.InputSchema, OutputSchema: d.OutputSchema, Annotations: d.Annotations,
		Meta: shownMeta{Tier: t.Tier, Approval: t.AsksPeople()},
	}
	if t.AsksPeople() {
		s.Description = strings.TrimSpace(s.Description + "\n\n" + approvalNote)
	}
	return s
}
