package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// principalVerbs are the verbs about principals and their ceilings.
type principalVerbs struct{ *operatorVerbs }

func (t *principalVerbs) addCommand(v *console.Verb) {
	var oauth api.OAuthSubject

	t.signedVerb(v, func(p api.Principal, _ []string) (api.OperatorRecord, string, error) {
		r := api.OperatorRecord{Verb: api.VerbPrincipalAdd}
		// Also if both are empty, as from unset variables: that is refused.
		if v.Flags().Changed("oauth-issuer") || v.Flags().Changed("oauth-subject") {
			r.OAuth = &oauth
		}
		return r, fmt.Sprintf("%s was added. Next: bailiwick token create %[1]s, and bailiwick ceiling set %[1]s TIER", p), nil
	})
	v.Flag(&oauth.Issuer, "oauth-issuer")
	v.Flag(&oauth.Subject, "oauth-subject")
}

func (t *principalVerbs) removeCommand(v *console.Verb) {
	t.signedVerb(v, func(p api.Principal, _ []string) (api.OperatorRecord, string, error) {
		return api.OperatorRecord{Verb: api.VerbPrincipalRemove}, fmt.Sprintf("%s was removed: its tokens are revoked, its ceiling is observe. %s", p, continues(p)), nil
	})
}

func (t *principalVerbs) listCommand(v *console.Verb) {
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.PrincipalInfo, error) {
		return c.Operator().Principals(ctx)
	},
		func(p api.PrincipalInfo) string { return string(p.Principal) }, "PRINCIPAL\tKNOWN\tCEILING\tTOKENS\tGRANTS\tSTOPS", principalRow)
}

func principalRow(p api.PrincipalInfo) string {
	active := 0
	for _, token := range p.Tokens {
		if token.State == api.TokenActive {
			active++
		}
	}
	known := "yes"
	switch {
	case local(p.Principal):
		known = "system"
	case !p.Known:
		known = "no"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s", p.Principal, known, p.Ceiling, active, console.Joined(p.Grants, ",", "-"), console.Joined(p.Stops, ",", "-"))
}

func (t *principalVerbs) showCommand(v *console.Verb) {
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, args []string) error {
		var a console.Args
		principal := console.Parse(&a, args[0], api.ParsePrincipal)
		if a.Err != nil {
			return a.Err
		}
		info, err := o.Principal(ctx, principal)
		if err != nil {
			return err
		}
		return t.Emit(info, string(info.Principal), func() { t.printPrincipal(info) })
	})
}

func (t *principalVerbs) printPrincipal(p api.PrincipalInfo) {
	known := "added by an operator"
	if !p.Known {
		known = "not added by an operator; it comes from the operating system or from a grant"
	}
	t.Row("principal", "%s", p.Principal)
	t.Row("known", "%s", known)
	t.Row("ceiling", "%s; change it with: bailiwick ceiling set %s TIER", p.Ceiling, p.Principal)
	t.Row("grants", "%s", console.Joined(p.Grants, ",", "-"))
	if p.OAuth != nil {
		t.Row("oauth", "tokens of %s\nwith subject %s", console.Quoted(p.OAuth.Issuer), console.Quoted(p.OAuth.Subject))
	}
	t.Rows("tokens", len(p.Tokens), func(i int) string { return t.tokenText(p.Tokens[i]) })
	if len(p.Tokens) == 0 {
		t.Row("tokens", "none")
	}
	if len(p.Stops) > 0 {
		t.Row("STOPPED BY", "%s; see: bailiwick stop list", strings.Join(p.Stops, ", "))
	}
}

func (t *principalVerbs) ceilingSetCommand(v *console.Verb) {
	t.signedVerb(v, func(p api.Principal, args []string) (api.OperatorRecord, string, error) {
		tier, err := api.ParseTier(args[0])
		return api.OperatorRecord{Verb: api.VerbCeilingSet, Ceiling: &tier}, fmt.Sprintf("%s may act up to %s, where grants and targets allow it.", p, tier), err
	})
}

// local reports whether a principal is an account of this machine, which the
// operating system authenticates.
func local(p api.Principal) bool { return strings.HasPrefix(string(p), "local:") }

// checkKnown refuses an unknown principal before anyone types a passphrase for
// it. The service checks again when it gets the decision.
func (t *operatorVerbs) checkKnown(ctx context.Context, verb api.OperatorVerb, p api.Principal) error {
	return t.withOperator(func(o client.Operator) error {
		info, err := o.Principal(ctx, p)
		switch {
		case err != nil:
			return nil //nolint:nilerr // an unreadable catalog must not prevent a decision
		case local(p):
			t.noteNoGrant(info)
			return nil
		case !info.Known && verb == api.VerbPrincipalRemove:
			return api.Errorf(api.CodeInvalid, "unknown principal %s", p).WithHint("see: bailiwick principal list")
		case !info.Known:
			return api.Errorf(api.CodeInvalid, "unknown principal %s", p).WithHint("run: bailiwick principal add %s; see: bailiwick principal list", p)
		}
		return nil
	})
}

// checkNew refuses a principal that exists, or that is easily taken for one that
// exists or has grants, before anyone types a passphrase for it. The service checks
// again when it gets the decision.
func (t *operatorVerbs) checkNew(ctx context.Context, _ api.OperatorVerb, p api.Principal) error {
	return t.withOperator(func(o client.Operator) error {
		all, err := o.Principals(ctx)
		if err != nil {
			return nil //nolint:nilerr // an unreadable catalog must not prevent a decision
		}
		for _, other := range all {
			switch {
			case other.Principal == p && other.Known:
				return api.Errorf(api.CodeConflict, "principal %s already exists", p).WithHint("see: bailiwick principal show %s", p)
			case other.Principal.Resembles(p):
				return api.Errorf(api.CodeConflict, "principal %s is easily taken for %s, which exists", p, other.Principal).WithHint("use %s, or a name that differs in more; see: bailiwick principal list", other.Principal)
			}
		}
		return nil
	})
}

// signedVerb is a verb about one known principal that an operator signs.
func (t *principalVerbs) signedVerb(v *console.Verb, record func(api.Principal, []string) (api.OperatorRecord, string, error)) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		var a console.Args
		p := console.Parse(&a, args[0], api.ParsePrincipal)
		r, text, err := record(p, args[1:])
		if a.Fail(err); a.Err != nil {
			return a.Err
		}
		check := t.checkKnown
		if r.Verb == api.VerbPrincipalAdd {
			check = t.checkNew
		}
		if err := check(ctx, r.Verb, p); err != nil {
			return err
		}
		r.Principal = p
		return t.decided(ctx, f, r, text)
	})
	f.add(v)
}

// continues says what less authority does not stop.
func continues(p api.Principal) string {
	return fmt.Sprintf("Its running dispatches continue; cancel them with: bailiwick stop --principal %s", p)
}
