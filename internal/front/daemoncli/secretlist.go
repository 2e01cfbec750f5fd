package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/secret"
)

// secretLister lists the secrets of the catalog and those that are set.
type secretLister struct {
	inForce  *inforce.Reader
	registry *operator.Registry
	value    func(ctx context.Context, ref string, uses []api.SecretKind) error
	files    *secret.Files
}

// list lists the secrets. With check, it reads each value as a dispatch would.
func (s secretLister) list(ctx context.Context, check bool) (list api.SecretList, err error) {
	rules, err := s.inForce.Current(ctx)
	if err != nil {
		return list, err
	}
	var all []api.SecretInfo
	if rules.Revision != nil {
		all = usedSecrets(rules.Revision.Set())
	}
	for _, name := range s.registry.Secrets() {
		ref := fileRef(name)
		if !slices.ContainsFunc(all, func(u api.SecretInfo) bool { return u.Ref == ref }) {
			all = append(all, api.SecretInfo{Name: name, Ref: ref, UsedBy: []string{}})
		}
	}
	slices.SortStableFunc(all, func(a, b api.SecretInfo) int { return strings.Compare(string(a.Name), string(b.Name)) })
	var reading sync.WaitGroup
	for i := range all {
		u := &all[i]
		if name, ok := strings.CutPrefix(u.Ref, "file:"); ok {
			if at, ok := s.registry.SecretSetAt(api.Name(name)); ok {
				u.SetAt = &at
			}
		}
		if check {
			reading.Go(func() { s.check(ctx, u) })
		}
	}
	reading.Wait()
	return api.SecretList{Recipient: s.files.Recipient(), Secrets: append([]api.SecretInfo{}, all...)}, ctx.Err()
}

// fileRef is the reference of a value that bailiwick secret set stores.
func fileRef(name api.Name) string { return string(api.SecretFile) + ":" + string(name) }

// check has the value of a secret read as for a dispatch.
func (s secretLister) check(ctx context.Context, u *api.SecretInfo) {
	u.Checked = true
	if err := s.value(ctx, u.Ref, u.Uses); err != nil {
		u.Problem = err.Error()
	}
}

// readSecret reads the value of a secret in this process, and keeps nothing of it.
func readSecret(from *secret.Store) func(ctx context.Context, ref string, uses []api.SecretKind) error {
	return func(ctx context.Context, ref string, uses []api.SecretKind) error {
		v, err := from.Resolve(ctx, ref)
		if err == nil {
			err = api.CheckSecretUses(uses, v)
		}
		return err
	}
}

// usedSecrets returns the secrets of a catalog, each with what uses it.
func usedSecrets(set *catalog.Set) (all []api.SecretInfo) {
	by := map[api.Name]*api.SecretInfo{}
	for name, v := range set.Secrets {
		by[name] = &api.SecretInfo{Name: name, Ref: v.Ref, UsedBy: []string{}}
	}
	use := func(name api.Name, what string, kinds ...api.SecretKind) {
		if u := by[name]; u != nil {
			u.UsedBy, u.Uses = append(u.UsedBy, what), append(u.Uses, kinds...)
		}
	}
	for name, m := range set.Models {
		if m.Credential != nil {
			use(m.Credential.Secret, "model "+string(name), api.SecretModel)
		}
	}
	for name, e := range set.Envs {
		for v, how := range e.Secrets {
			kind := api.SecretBrokered
			if how.Exposed {
				kind = api.SecretExposed
			}
			use(how.Secret, fmt.Sprintf("env %s %s (%s)", name, v, kind), kind)
		}
	}
	for name, src := range set.Sources {
		use(src.Secret, "source "+string(name))
	}
	for name, t := range set.Tools {
		toolSecrets(t, func(secret api.Name, how string, kinds ...api.SecretKind) {
			use(secret, "tool "+string(name)+" "+how, kinds...)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[name].UsedBy)
		all = append(all, *by[name])
	}
	return all
}

// secretCheck is doctor's check of the secrets: the running service reads each.
func secretCheck(ctx context.Context, conn *client.Conn) []check {
	list, err := conn.Operator().Secrets(ctx, true)
	if err != nil {
		return []check{{name: "secrets", found: err.Error(), fix: "see: bailiwick secret check"}}
	}
	var problems []error
	for _, s := range list.Secrets {
		if s.Problem != "" && len(s.UsedBy) > 0 {
			problems = append(problems, fmt.Errorf("%s: %s", s.Name, s.Problem))
		}
	}
	switch {
	case len(list.Secrets) == 0:
		return nil
	case len(problems) > 0:
		return []check{{name: "secrets", found: errors.Join(problems...).Error(), fix: "dispatches that need them fail; see: bailiwick secret check"}}
	}
	return []check{{name: "secrets", ok: true, found: record.Plural(len(list.Secrets), "secret") + " can be read"}}
}

// toolSecrets calls use with each secret that a server of tools has.
func toolSecrets(t api.ToolServer, use func(secret api.Name, how string, kinds ...api.SecretKind)) {
	host := map[string]api.Name{}
	switch {
	case t.Stdio != nil:
		host = t.Stdio.Secrets
	case t.Run != nil:
		host = t.Run.Secrets
	case t.HTTP == nil:
	case t.HTTP.Header != nil:
		use(t.HTTP.Header.Secret, t.HTTP.Header.Header, api.SecretBrokered)
	case t.HTTP.OAuth != nil:
		use(t.HTTP.OAuth.Secret, "oauth")
	}
	for variable, name := range host {
		use(name, variable)
	}
}
