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

func (t *keyVerbs) inviteCommand(v *console.Verb) {
	var synced bool
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, args []string) error {
		p, err := api.ParsePrincipal(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		in, err := o.Invite(ctx, api.InvitationRequest{Principal: p, Synced: synced})
		if err != nil {
			return err
		}
		return t.Emit(in, in.Link, func() {
			fmt.Fprintln(t.Stdout, in.Link)
			fmt.Fprintf(t.Stderr, "For %s, once, until %s. Ask for the fingerprint that the page shows, then run: bailiwick operators admit %s FINGERPRINT\n", p, t.Time(in.Expires), p)
		})
	})
	v.Flag(&synced, "synced")
}

func (t *keyVerbs) invitationsCommand(v *console.Verb) {
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, _ []string) error {
		list, err := o.Invitations(ctx)
		if err != nil {
			return err
		}
		return console.List(&t.Output, list, func(in api.Invitation) string { return string(in.Principal) }, "PRINCIPAL\tSTATE\tINVITED BY\tINVITED\tEXPIRES", func(in api.Invitation) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", in.Principal, in.State, in.By, t.Ago(in.At), t.Time(in.Expires))
		})
	})
}

func (t *keyVerbs) admitCommand(v *console.Verb) {
	var f keysFlags
	v.Do(func(ctx context.Context, args []string) error {
		in, err := t.enrolled(ctx, api.Principal(args[0]))
		if err != nil {
			return err
		}
		raw, err := owned(in.Key, in.Principal)
		var k keyName
		if err == nil {
			k, err = nameOf(raw)
		}
		if err != nil {
			return err
		}
		// bailiwick-deploy, which signs, verifies that the id is the digest of the key.
		if given := strings.Join(strings.Fields(strings.ToLower(args[1])), ""); given == "" || given != strings.ReplaceAll(api.Fingerprint(k.ID), " ", "") {
			return api.Errorf(api.CodeIntegrity, "the passkey that was enrolled for %s has another fingerprint than %.80q", in.Principal, args[1]).
				WithHint("if %s read it to you from the page, another person enrolled a passkey with the link: invite them again, over another channel", in.Principal)
		}
		return t.changeKeys(ctx, f.decideFlags, func(s *keySet) (string, error) {
			if _, err := s.index(k.ID); err == nil {
				return "", api.Errorf(api.CodeConflict, "operator key %s is already in force", k.ID).WithHint("see: bailiwick operators list")
			}
			s.Keys = append(s.Keys, raw)
			f.apply(s)
			return fmt.Sprintf("Passkey %s was added for %s.", k.text(), in.Principal), nil
		})
	})
	f.add(v)
}

// enrolled returns the invitation with which a person enrolled a passkey.
func (t *keyVerbs) enrolled(ctx context.Context, p api.Principal) (in api.Invitation, err error) {
	var list []api.Invitation
	if err := t.withOperator(func(o client.Operator) (err error) {
		list, err = o.Invitations(ctx)
		return err
	}); err != nil {
		return in, err
	}
	i := slices.IndexFunc(list, func(in api.Invitation) bool { return in.Principal == p })
	switch {
	case i < 0:
		return in, api.Errorf(api.CodeNotFound, "no invitation of %.80q", p).WithHint("invite that person: bailiwick operators invite PRINCIPAL; see: bailiwick operators invitations")
	case list[i].State == api.InvitationOpen:
		return in, api.Errorf(api.CodeConflict, "%s has not used the link yet", p).WithHint("wait until they have; see: bailiwick operators invitations")
	}
	return list[i], nil
}
