package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// statusNeedsApproval is the exit status of can about a call that people approve.
const statusNeedsApproval = 9

// canCall prints what policy would decide about a call of a tool.
func (t *findVerbs) canCall(ctx context.Context, who, tool string, f canFlags) error {
	var a console.Args
	role, ok := strings.CutPrefix(who, "role:")
	if !ok || role == "" {
		return api.Errorf(api.CodeInvalid, "%q: want role:ROLE", who).WithHint("roles: bailiwick role list")
	}
	if f.source != "" || len(f.envs)+len(f.capabilities) > 0 {
		return api.Errorf(api.CodeInvalid, "--source, --env and --capability are about a dispatch, not a call")
	}
	req := api.CanCallRequest{
		Role: a.Name("role", role), Tool: tool, Subagent: a.Name("subagent", f.subagent), Target: a.Name("target", f.target),
		Principal: console.Optional(&a, f.principal, api.ParsePrincipal), Tainted: f.tainted,
	}
	if a.Fail(api.CheckTool(tool)); a.Err != nil {
		return a.Err
	}
	return t.withConn(func(c *client.Conn) error {
		answer, err := c.Runtime().CanCall(ctx, req)
		if err != nil {
			return err
		}
		if t.Format != "text" {
			if err := t.JSON(answer); err != nil {
				return err
			}
			return callStatus(answer)
		}
		for _, k := range answer.Answers {
			t.printCallCase(req, answer.Revision, k)
		}
		if !slices.ContainsFunc(answer.Answers, func(k api.CanCallCase) bool { return k.Decision != api.CallDenied }) {
			t.nearTools(ctx, c, req)
		}
		return callStatus(answer)
	})
}

// callStatus is 0 if some subagent may make the call at once.
func callStatus(a api.CanCallAnswer) error {
	decided := func(d string) bool {
		return slices.ContainsFunc(a.Answers, func(k api.CanCallCase) bool { return k.Decision == d })
	}
	switch {
	case decided(api.CallAllowed):
		return nil
	case decided(api.CallNeedsApproval):
		return console.Exit{Status: statusNeedsApproval}
	}
	return console.ExitFor(api.CodeDenied)
}

func (t *findVerbs) printCallCase(req api.CanCallRequest, revision uint64, k api.CanCallCase) {
	by := fmt.Sprintf("catalog revision %d", revision)
	if len(k.Policies) > 0 {
		by = "policy " + strings.Join(k.Policies, ", ") + "; " + by
	}
	may := map[string]string{api.CallAllowed: "yes: %s may call %s", api.CallNeedsApproval: "with approval: %s may call %s", api.CallDenied: "no: %s may not call %s"}[k.Decision]
	agent := fmt.Sprintf("%s (role %s)", k.Subagent, req.Role)
	fmt.Fprintf(t.Stdout, may+" (%s)\n", agent, console.Line(req.Tool), console.Line(by))
	if k.Decision == api.CallNeedsApproval {
		fmt.Fprintf(t.Stdout, "  %s each call\n", approvers(k.Approvers))
	}
	for _, reason := range k.Reasons {
		fmt.Fprintf(t.Stdout, "  %s\n", console.Line(reason))
	}
	if k.Decision == api.CallDenied {
		return
	}
	of := string(k.Principal)
	if of == "" {
		of = "a principal with every ceiling; see --principal"
	}
	fmt.Fprintf(t.Stdout, "  on target %s, up to %s, in a dispatch of %s\n", console.Dash(string(k.Target)), k.Ceiling, of)
}

// nearTools names the roles of the caller that have the tool, and tools of the role
// with a similar name. It names nothing that role list and tool list would not show.
func (t *findVerbs) nearTools(ctx context.Context, c *client.Conn, req api.CanCallRequest) {
	roles, err := t.toolsByRole(ctx, c, "")
	if err != nil {
		return // the answer stands without it
	}
	var others, near []string
	for _, r := range roles {
		for _, tool := range r.Tools {
			switch {
			case tool.Tool == req.Tool && r.Role == req.Role:
				return // it is no question of names
			case tool.Tool == req.Tool:
				others = append(others, string(r.Role))
			case r.Role == req.Role && similar(tool.Tool, req.Tool):
				near = append(near, tool.Tool)
			}
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(t.Stderr, "roles that have it: %s\n", strings.Join(others, ", "))
	}
	if len(near) > 0 {
		fmt.Fprintf(t.Stderr, "role %s has: %s\n", req.Role, console.Line(strings.Join(near, ", ")))
	}
}

// similar reports whether two names of tools differ in case and punctuation only, or
// one contains the other.
func similar(a, b string) bool {
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune("/_-.", r) {
				return -1
			}
			return r
		}, strings.ToLower(s))
	}
	a, b = plain(a), plain(b)
	return a == b || len(a) > 3 && strings.Contains(b, a) || len(b) > 3 && strings.Contains(a, b)
}
