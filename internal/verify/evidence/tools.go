package evidence

import (
	"fmt"
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// toolset is the tools in the hands of a role. Attempts with the same role, servers and
// revision share it.
type toolset struct {
	once       sync.Once
	tools      map[string]api.Tool   // by id
	definition map[string]api.Digest // likewise
	err        error
}

// toolServer is a registered server with the digests of its definitions.
type toolServer struct {
	api.ToolServer
	digests map[string]api.Digest // by tool
}

// toolServer returns a registered server of the revision.
func (r *revision) toolServer(name api.Name) (*toolServer, error) {
	v, err := r.decoded(api.RefTo(api.KindTool, name), func(doc []byte) (any, api.Name, error) {
		s := &toolServer{digests: map[string]api.Digest{}}
		err := r.docs.exact(doc, &s.ToolServer)
		if err == nil {
			err = r.docs.work.decode(doc) // the definitions are encoded again
		}
		for i := range s.Definitions {
			var definition []byte
			if err == nil {
				definition, err = canon.Marshal(s.Definitions[i])
			}
			s.digests[s.Definitions[i].Name] = api.DigestOf(definition)
		}
		return s, s.Name, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*toolServer), nil //nolint:forcetypeassert // as decoded for this kind
}

// tools returns what the agent of an attempt may call: what the servers that its
// manifest pins let its role call.
func (w *world) tools(m *record.Manifest) (*toolset, error) {
	key := fmt.Sprintf("%s %s %q", m.RevisionDigest, m.Role, m.Tools)
	one, _ := w.toolsets.LoadOrStore(key, &toolset{})
	t := one.(*toolset) //nolint:forcetypeassert // only these are stored
	t.once.Do(func() { t.err = t.load(w, m) })
	return t, t.err
}

func (t *toolset) load(w *world, m *record.Manifest) error {
	r := w.revisions[m.RevisionDigest]
	if r == nil {
		return fmt.Errorf("catalog revision %s is not in the bundle", m.RevisionDigest.Short())
	}
	t.tools, t.definition = map[string]api.Tool{}, map[string]api.Digest{}
	var servers []api.ToolServer
	of := map[api.Name]*toolServer{}
	for _, n := range m.Tools {
		s, err := r.toolServer(n)
		if err != nil {
			return err
		}
		roles := 0
		for i := range s.Allow {
			roles += len(s.Allow[i].Roles)
		}
		if err := r.docs.work.hold(unitCompare*(roles+len(s.Allow)*len(s.Definitions)), toolMemory*len(s.Allow)); err != nil {
			return err
		}
		servers, of[n] = append(servers, s.ToolServer), s
	}
	for _, tool := range catalog.ToolsOf(m.Role, servers...) {
		t.tools[tool.ID] = tool
		if s := of[tool.Server]; s != nil {
			t.definition[tool.ID] = s.digests[tool.Definition.Name]
		}
	}
	return nil
}

// rulesOf returns the rules under which a run was submitted; 0 if the bundle does not say.
func (w *world) rulesOf(id api.RunID) int64 {
	if r := w.replayed[id]; id != "" && r != nil && r.submitted != nil {
		return detail[record.RunRequest](r.submitted).Rules
	}
	return 0
}

// tool returns the tool of an entry, and false if its role has no such tool or the
// bundle does not say.
func (s *scene) tool() (api.Tool, bool) {
	if s.m == nil {
		return api.Tool{}, false
	}
	of, err := s.v.tools(s.m)
	t, ok := of.tools[s.e.Tool]
	return t, ok && err == nil
}

// request verifies what people are requested to approve: all but the arguments and the
// time follows from the manifest, the pinned tool and the entries before.
func (c *closure) request(a *attempt, e *entry) error {
	doc, err := c.v.docs.load(e.Refs[record.RefAction], "action", e.reader())
	if err != nil {
		return err
	}
	got := &api.ToolAction{}
	if err := c.v.docs.exact(doc, got); err != nil {
		return fmt.Errorf("action: %w", err)
	}
	m, d := a.manifest, detail[record.ApprovalRequest](e)
	of, err := c.v.tools(m)
	if err != nil {
		return err
	}
	t, ok := of.tools[e.Tool]
	if !ok {
		return fmt.Errorf("entry #%d requests an approval of %s, which role %s does not have", e.seq, record.Word(e.Tool), m.Role)
	}
	want := record.ToolAction(m, &t, of.definition[t.ID], got.Arguments, policy.ToolApprovers(t.Tier))
	want.V, want.ID, want.Policies, want.Taint, want.Expires = got.V, api.ApprovalID(d.Approval), got.Policies, got.Taint, got.Expires
	switch {
	case got.V != api.ToolActionVersion && (got.V != 1 || c.owned(m, e)):
		return fmt.Errorf("entry #%d requests an approval of version %d, but services whose operator keys have principals write version %d", e.seq, got.V, api.ToolActionVersion)
	case got.V < c.version:
		return fmt.Errorf("entry #%d requests an approval of version %d, after one of version %d in the same dispatch", e.seq, got.V, c.version)
	}
	c.version = got.V
	if got.Taint != nil && !sameTaint(got.Taint, e.taint) { // another call may taint it meanwhile, which d.approved finds
		return fmt.Errorf("entry #%d requests an approval for a dispatch with %s, which has %s", e.seq, taintWords(got.Taint), taintWords(e.taint))
	}
	if !sameJSON(want, got) || int64(got.Needs) != d.Needs || sameList(d.Policies, got.Policies) == differs {
		return fmt.Errorf("entry #%d requests an approval of another call than its dispatch can make: tool, definition, tier, dispatch, role, target, revision, taint or number of people differ", e.seq)
	}
	e.action = got
	return nil
}

func sameJSON(a, b any) bool {
	x, errX := canon.Marshal(a)
	y, errY := canon.Marshal(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}

// countCalls sums up the calls of what is verified.
func countCalls(dispatches []*history, records *CallRecords, row *report.Finding) {
	var called, returned, unknown, denied, approved int
	for _, h := range dispatches {
		for _, a := range h.attempts {
			for _, e := range a.calls {
				switch e.Kind { //nolint:exhaustive // the others are no calls
				case record.KindToolCalled:
					called++
					if d := detail[record.ToolCall](e); d.Approval != "" {
						approved++
					}
				case record.KindToolReturned:
					returned++
				case record.KindToolUnknown:
					unknown++
				case record.KindToolDenied:
					denied++
				}
			}
		}
	}
	if row.Checked += denied; called+denied == 0 {
		row.Absent = "no tool was called"
	}
	compared := compareCalls(dispatches, records, row)
	row.Right = fmt.Sprintf("%s allowed, each by the role, pins and rules then in force and logged before its effect; %d approved by people before, %d returned, %d of unknown outcome; %d refused",
		record.Plural(called, "call"), approved, returned, unknown, denied)
	if compared > 0 {
		row.Right += fmt.Sprintf("; arguments and answers of %s are those in the log", record.Plural(compared, "call"))
	}
}
