package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/readiness"
)

// findVerbs are the verbs that say who the caller is and what it may use.
type findVerbs struct{ *tree }

// listCommand makes the verb that lists a kind of artifact.
func (t *findVerbs) listCommand(kind api.Kind) func(*console.Verb) {
	return func(v *console.Verb) {
		t.connVerb(v, func(ctx context.Context, c *client.Conn, _ []string) error { return t.list(ctx, c, kind) })
	}
}

func (t *findVerbs) list(ctx context.Context, c *client.Conn, kind api.Kind) error {
	who, err := c.Runtime().Who(ctx)
	if err != nil {
		return err
	}
	list, above, err := t.artifacts(ctx, c, who, kind)
	if err != nil {
		return err
	}
	with, err := t.users(ctx, c, kind)
	if err != nil {
		return err
	}
	head, row := table(kind, with)
	if len(list) > 0 || t.Format != "text" {
		if err := console.List(&t.Output, list, func(a api.ArtifactInfo) string { return string(a.Name) }, head, row); err != nil {
			return err
		}
	}
	switch {
	case above > 0:
		fmt.Fprintf(t.Stderr, "note: subagents granted to %s and above its ceiling %s: %d; see: bailiwick can\n", who.Principal, who.Ceiling, above)
	case len(list) == 0:
		fmt.Fprintf(t.Stderr, "note: %s may use no %s; see: bailiwick can\n", who.Principal, kind)
	}
	return nil
}

// artifacts returns all artifacts of a kind that the caller may use; of grants an
// operator gets those of all principals. above is how many more subagents a higher
// ceiling would allow.
func (t *findVerbs) artifacts(ctx context.Context, c *client.Conn, who api.Who, kind api.Kind) (list []api.ArtifactInfo, above int, err error) {
	if kind == api.KindGrant && who.Operator {
		list, err = c.Operator().Grants(ctx)
		return list, 0, err
	}
	return readiness.Artifacts(ctx, c, kind)
}

// users returns, for each artifact of a kind, the subagents that the caller may
// use it with.
func (t *findVerbs) users(ctx context.Context, c *client.Conn, kind api.Kind) (map[api.Name][]api.Name, error) {
	with := map[api.Name][]api.Name{}
	if kind == api.KindSubagent || kind == api.KindGrant || kind == api.KindRole {
		return with, nil
	}
	subagents, _, err := t.artifacts(ctx, c, api.Who{}, api.KindSubagent)
	for _, s := range subagents {
		for _, n := range used(s, kind) {
			with[n] = append(with[n], s.Name)
		}
	}
	return with, err
}

// used returns what a subagent may be used with of a kind.
func used(s api.ArtifactInfo, kind api.Kind) []api.Name {
	switch kind { //nolint:exhaustive // the others are not used by a subagent
	case api.KindCapability:
		return s.Capabilities
	case api.KindEnv:
		return s.Envs
	case api.KindSource:
		return s.Sources
	case api.KindTarget:
		return s.Targets
	case api.KindModel:
		if s.Model != nil {
			return []api.Name{s.Model.Name}
		}
	}
	return nil
}

// table returns the head and the rows of the list of a kind.
func table(kind api.Kind, with map[api.Name][]api.Name) (head string, row func(api.ArtifactInfo) string) {
	switch kind { //nolint:exhaustive // the others have the default
	case api.KindSubagent:
		return "NAME\tTIER\tROLE\tTARGET\tSOURCES\tDESCRIPTION", func(a api.ArtifactInfo) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", a.Name, tierText(a.Tier), a.Role, cmp.Or(a.Target, "-"), joined(a.Sources), console.Line(a.Description))
		}
	case api.KindSource:
		return "NAME\tREPOSITORY\tSUBAGENTS\tDESCRIPTION", func(a api.ArtifactInfo) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", a.Name, console.Dash(console.Line(a.Repo)), joined(with[a.Name]), console.Line(a.Description))
		}
	case api.KindModel:
		return "NAME\tAPI\tLEVELS\tSUBAGENTS\tDESCRIPTION", func(a api.ArtifactInfo) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", a.Name, a.API, joined(slices.Sorted(maps.Keys(a.Levels))), joined(with[a.Name]), console.Line(a.Description))
		}
	case api.KindTarget:
		return "NAME\tMODE\tSUBAGENTS\tDESCRIPTION", func(a api.ArtifactInfo) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", a.Name, a.Mode, joined(with[a.Name]), console.Line(a.Description))
		}
	case api.KindRole:
		return "NAME\tTOOLS\tSUBAGENTS\tDESCRIPTION", func(a api.ArtifactInfo) string {
			return fmt.Sprintf("%s\t%d\t%s\t%s", a.Name, a.ToolCount, joined(a.Subagents), console.Line(a.Description))
		}
	case api.KindGrant:
		return "NAME\tPRINCIPAL\tUP TO\tSUBAGENTS\tSOURCES\tTARGETS", func(a api.ArtifactInfo) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", a.Name, a.Principal, tierText(a.Ceiling), joined(a.Subagents), joined(a.Sources), joined(a.Targets))
		}
	}
	return "NAME\tSUBAGENTS\tDESCRIPTION", func(a api.ArtifactInfo) string {
		return fmt.Sprintf("%s\t%s\t%s", a.Name, joined(with[a.Name]), console.Line(a.Description))
	}
}

func joined(list []api.Name) string { return console.Joined(list, ",", "-") }

func tierText(t *api.Tier) string {
	if t == nil {
		return "-"
	}
	return t.String()
}

// showCommand makes the verb that shows an artifact of a kind.
func (t *findVerbs) showCommand(kind api.Kind) func(*console.Verb) {
	return func(v *console.Verb) {
		v.Do(func(ctx context.Context, args []string) error {
			var a console.Args
			name := a.Name(string(kind), args[0])
			if a.Err != nil {
				return a.Err
			}
			return t.withConn(func(c *client.Conn) error { return t.show(ctx, c, kind, name) })
		})
	}
}

// shown is an artifact with what the rest of the catalog says about it.
type shown struct {
	api.ArtifactInfo
	With    []api.Name `json:"with,omitempty"`    // subagents that the caller may use it with
	MayRun  []mayRun   `json:"mayRun,omitempty"`  // who may run a subagent: the caller; for an operator, every principal
	Example string     `json:"example,omitempty"` // a command line
}

type mayRun struct {
	Principal api.Principal `json:"principal"`
	Grant     api.Name      `json:"grant"`
}

func (t *findVerbs) show(ctx context.Context, c *client.Conn, kind api.Kind, name api.Name) error {
	who, err := c.Runtime().Who(ctx)
	if err != nil {
		return err
	}
	s, err := t.find(ctx, c, who, kind, name)
	if err != nil {
		return err
	}
	with, err := t.users(ctx, c, kind)
	if err != nil {
		return err
	}
	s.With = with[name]
	if kind == api.KindSubagent {
		s.Example = console.ExampleDispatch(s.Listing)
		grants, _, err := t.artifacts(ctx, c, who, api.KindGrant)
		if err != nil {
			return err
		}
		for _, g := range grants {
			if slices.Contains(g.Subagents, name) && g.Ceiling != nil && *g.Ceiling >= *s.Tier {
				s.MayRun = append(s.MayRun, mayRun{g.Principal, g.Name})
			}
		}
	}
	return t.Emit(s, string(name), func() { t.printShown(s, who) })
}

// find returns an artifact that the caller may use.
func (t *findVerbs) find(ctx context.Context, c *client.Conn, who api.Who, kind api.Kind, name api.Name) (shown, error) {
	var list []api.ArtifactInfo
	var err error
	if kind == api.KindGrant {
		list, _, err = t.artifacts(ctx, c, who, kind)
	} else {
		var page api.ArtifactPage
		page, err = c.Runtime().Artifacts(ctx, kind, name, "")
		list = page.Items
	}
	if err != nil {
		return shown{}, err
	}
	for _, a := range list {
		if a.Name == name {
			return shown{ArtifactInfo: a}, nil
		}
	}
	e := api.Errorf(api.CodeNotFound, "no %s %q that %s may use", kind, name, who.Principal)
	if kind == api.KindSubagent {
		return shown{}, e.WithHint("why: bailiwick can %s dispatch %s; see: bailiwick subagent list", who.Principal, name)
	}
	return shown{}, e.WithHint("see: bailiwick %s list", kind)
}
