package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// fixed completes the same words everywhere.
func fixed(words ...string) completer {
	return func(context.Context, *client.Conn, []string) (list []candidate, _ error) {
		for _, w := range words {
			list = append(list, candidate{word: w})
		}
		return list, nil
	}
}

func strs[T ~string](list []T) (words []string) {
	for _, v := range list {
		words = append(words, string(v))
	}
	return words
}

func clientNames() (names []string) {
	for _, c := range mcpClients() {
		names = append(names, c.name)
	}
	return names
}

func tierNames() (names []string) {
	for t := api.Observe; t <= api.Irreversible; t++ {
		names = append(names, t.String())
	}
	return names
}

// artifactNames completes the names of a kind that the caller may use.
func artifactNames(kind api.Kind) completer {
	return func(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
		if !slices.Contains(api.Kinds(), kind) {
			return nil, nil
		}
		page, err := c.Runtime().Artifacts(ctx, kind, "", "")
		for _, a := range page.Items {
			list = append(list, candidate{string(a.Name), a.Description})
		}
		return list, err
	}
}

func (t *completion) dispatchIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Runtime().List(ctx, api.DispatchFilter{Limit: completeList})
	for _, d := range found {
		list = append(list, candidate{string(d.ID), string(d.Subagent) + " " + stateText(d) + ", " + t.Ago(d.AcceptedAt)})
	}
	return list, err
}

func runIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Runtime().Runs(ctx, api.RunFilter{Limit: completeList})
	for _, r := range found {
		list = append(list, candidate{string(r.RunID), string(r.State)})
	}
	return list, err
}

// taskIDs completes the tasks of the run that the first argument names.
func taskIDs(ctx context.Context, c *client.Conn, args []string) (list []candidate, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	id, err := api.ParseRunID(args[0])
	if err != nil {
		return nil, err
	}
	run, err := c.Runtime().Run(ctx, id, "", completeList)
	for _, k := range run.Tasks {
		list = append(list, candidate{string(k.Task), string(k.State)})
	}
	return list, err
}

// outputPaths completes the outputs of the dispatch that the first argument names.
// An agent chose their names.
func outputPaths(ctx context.Context, c *client.Conn, args []string) (list []candidate, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	id, err := api.ParseDispatchID(args[0])
	if err != nil {
		return nil, err
	}
	d, err := c.Runtime().Describe(ctx, id, 0)
	if err == nil && d.Outcome != nil {
		for _, o := range d.Outcome.Outputs {
			list = append(list, candidate{word: o.Path})
		}
	}
	return list, err
}

func queueNames(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Operator().Queues(ctx)
	for _, q := range found {
		list = append(list, candidate{word: string(q.Name)})
	}
	return list, err
}

// principals completes the principals that an operator sees, else the caller.
func principals(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Operator().Principals(ctx)
	if api.CodeOf(err) == api.CodeDenied {
		who, err := c.Runtime().Who(ctx)
		return []candidate{{word: string(who.Principal)}}, err
	}
	for _, p := range found {
		list = append(list, candidate{string(p.Principal), "up to " + p.Ceiling.String()})
	}
	return list, err
}

func stopIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Operator().Stops(ctx)
	for _, s := range found {
		if s.LiftedAt == nil {
			list = append(list, candidate{s.ID, strings.TrimSpace(string(s.Scope) + " " + s.Name)})
		}
	}
	return list, err
}

func tokenIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Operator().Tokens(ctx)
	for _, k := range found {
		list = append(list, candidate{string(k.ID), string(k.Principal) + " " + string(k.State)})
	}
	return list, err
}

// canWords completes the arguments of can.
func (t *completion) canWords(ctx context.Context, c *client.Conn, args []string) ([]candidate, error) {
	switch {
	case len(args) > 0 && strings.HasPrefix(args[0], "role:"):
		return callWords(ctx, c, args)
	case len(args) > 0 && args[len(args)-1] == "dispatch":
		return artifactNames(api.KindSubagent)(ctx, c, args)
	case len(args) == 1:
		return []candidate{{word: "dispatch"}}, nil
	case len(args) > 1:
		return nil, nil
	}
	list, _ := principals(ctx, c, args) // without a service, dispatch remains
	roles, _ := artifactNames(api.KindRole)(ctx, c, args)
	for _, r := range roles {
		list = append(list, candidate{"role:" + r.word, r.about})
	}
	return append([]candidate{{"dispatch", "by you"}}, list...), nil
}

// callWords completes the arguments of can role:ROLE call TOOL.
func callWords(ctx context.Context, c *client.Conn, args []string) (list []candidate, err error) {
	role, err := api.ParseName(strings.TrimPrefix(args[0], "role:"))
	switch {
	case len(args) == 1:
		return []candidate{{word: "call"}}, nil
	case len(args) > 2 || args[1] != "call" || err != nil:
		return nil, err
	}
	found, err := c.Runtime().RoleTools(ctx, role, false)
	for _, k := range found.Tools {
		list = append(list, candidate{k.Tool, k.Tier.String()})
	}
	return list, err
}

// toolIDs completes the tools of each role that the caller may use.
func (t *completion) toolIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	roles, err := (&findVerbs{t.tree}).toolsByRole(ctx, c, "")
	for _, r := range roles {
		for _, k := range r.Tools {
			if !slices.ContainsFunc(list, func(known candidate) bool { return known.word == k.Tool }) {
				list = append(list, candidate{word: k.Tool})
			}
		}
	}
	return list, err
}

// callNumbers completes the tool calls of the dispatch that the first argument names.
func callNumbers(ctx context.Context, c *client.Conn, args []string) (list []candidate, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	id, err := api.ParseDispatchID(args[0])
	if err != nil {
		return nil, err
	}
	err = c.Runtime().Tools(ctx, id, client.ToolQuery{}, func(l api.ToolCallLine) error {
		list = append(list, candidate{strconv.FormatInt(l.Number, 10), l.Tool + " " + l.State})
		return nil
	})
	return list[max(0, len(list)-completeList):], err
}

// operatorKeyIDs completes the operator keys in force.
func operatorKeyIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	found, err := c.Operator().Keys(ctx)
	for _, k := range found.Keys {
		if k.Retired == nil {
			list = append(list, candidate{k.ID, k.Name})
		}
	}
	return list, err
}
