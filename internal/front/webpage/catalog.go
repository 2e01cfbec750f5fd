package webpage

import (
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// historyPage is how many revisions a page of the history of the catalog has.
const historyPage = 50

// shelf is the artifacts of a kind.
type shelf struct {
	Kind api.Kind
	part[[]api.ArtifactInfo]
}

// matrix is which role may call which tool.
type matrix struct {
	Roles []api.Name
	Tools []string
	Cells map[string]map[api.Name]api.RoleTool // by tool and role
}

// catalogPages shows what is signed, and what follows from it for a principal.
type catalogPages struct{ source }

// catalog shows the revision in force and what of it the caller may use.
func (s catalogPages) catalog(r *http.Request) (*view, error) {
	ctx := r.Context()
	before, err := number(given(r), "before", 0, 1, math.MaxInt)
	if err != nil {
		return nil, err
	}
	var shelves []shelf
	for _, kind := range []api.Kind{api.KindSubagent, api.KindCapability, api.KindEnv, api.KindModel, api.KindSource, api.KindTarget, api.KindRole} {
		shelves = append(shelves, shelf{kind, partOf(ctx, func(ctx context.Context) ([]api.ArtifactInfo, error) { return s.artifacts(ctx, kind) })})
	}
	roles := shelves[len(shelves)-1].Value
	history := operatorPart(ctx, func(ctx context.Context) ([]api.CatalogRevision, error) {
		return s.operator(ctx).Revisions(ctx, uint64(before), historyPage) //nolint:gosec // G115: not negative
	})
	older := ""
	if n := len(history.Value); n > 0 && history.Value[n-1].Number > 1 {
		older = linkWith(r, "before", strconv.FormatUint(history.Value[n-1].Number, 10)) + "#history"
	}
	return &view{"catalog", "Catalog", struct {
		Status  part[api.ServiceStatus]
		Shelves []shelf
		Grants  part[[]api.ArtifactInfo]
		Matrix  part[*matrix]
		History part[[]api.CatalogRevision]
		Older   string // the revisions before those of History; may be empty
		Seen    part[[]api.LogLine]
	}{
		operatorPart(ctx, s.operator(ctx).Status), shelves, operatorPart(ctx, s.operator(ctx).Grants),
		partOf(ctx, func(ctx context.Context) (*matrix, error) { return s.matrix(ctx, roles) }),
		history, older,
		operatorPart(ctx, s.lines(api.LogQuery{Kinds: []string{"catalog.revision", "catalog.refused"}, Last: historyPage})),
	}}, nil
}

// artifacts reads all pages of a kind.
func (s catalogPages) artifacts(ctx context.Context, kind api.Kind) (list []api.ArtifactInfo, err error) {
	for cursor := ""; ; {
		p, err := s.runtime(ctx).Artifacts(ctx, kind, "", cursor)
		if list = append(list, p.Items...); err != nil || p.Next == "" {
			return list, err
		}
		cursor = p.Next
	}
}

func (s catalogPages) matrix(ctx context.Context, roles []api.ArtifactInfo) (*matrix, error) {
	m := &matrix{Cells: map[string]map[api.Name]api.RoleTool{}}
	for i := range roles {
		role, err := s.runtime(ctx).RoleTools(ctx, roles[i].Name, false)
		if err != nil {
			return nil, err
		}
		m.Roles = append(m.Roles, role.Role)
		for _, tool := range role.Tools {
			if m.Cells[tool.Tool] == nil {
				m.Cells[tool.Tool] = map[api.Name]api.RoleTool{}
			}
			m.Cells[tool.Tool][role.Role] = tool
		}
	}
	m.Tools = slices.Sorted(maps.Keys(m.Cells))
	return m, nil
}

// who shows the caller, principals, their ceilings and tokens, and stops.
func (s catalogPages) who(r *http.Request) (*view, error) {
	ctx := r.Context()
	me, err := s.runtime(ctx).Who(ctx)
	if err != nil {
		return nil, err
	}
	return &view{"who", "Who", struct {
		api.Who
		Principals part[[]api.PrincipalInfo]
		Tokens     part[[]api.TokenInfo]
		Stops      part[[]api.Stop]
		Operators  part[api.OperatorKeys]
		Head       part[api.OperatorHead]
	}{me, operatorPart(ctx, s.operator(ctx).Principals), operatorPart(ctx, s.operator(ctx).Tokens), operatorPart(ctx, s.operator(ctx).Stops), operatorPart(ctx, s.operator(ctx).Keys), operatorPart(ctx, s.operator(ctx).Head)}}, nil
}

// budgets lists budgets and what is left of them.
func (s catalogPages) budgets(r *http.Request) (*view, error) {
	list, err := s.runtime(r.Context()).Budgets(r.Context(), api.BudgetFilter{})
	return &view{"budgets", "Budgets", list}, err
}

func (s catalogPages) schedules(r *http.Request) (*view, error) {
	list, err := s.operator(r.Context()).Schedules(r.Context())
	return &view{"schedules", "Schedules", list}, err
}

const (
	slotsPage = 50
	slotsNext = 10
)

// schedule shows a schedule with its next and latest slots.
func (s catalogPages) schedule(r *http.Request) (*view, error) {
	name, err := api.ParseName(r.PathValue("name"))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	info, err := s.operator(r.Context()).Schedule(r.Context(), name, slotsNext)
	if err != nil {
		return nil, err
	}
	slots, err := s.operator(r.Context()).Slots(r.Context(), name, 0, slotsPage)
	return &view{"schedule", "Schedule " + string(name), struct {
		api.ScheduleInfo
		Slots []api.Slot
	}{info, slots}}, err
}
