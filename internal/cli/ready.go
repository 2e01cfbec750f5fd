package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/console"
	"github.com/bailiwick-dev/bailiwick/internal/runcli"
)

// readiness is what a caller needs for its first dispatch, in the order in which
// to provide it. What depends on something missing is left out.
type readiness struct {
	Ready bool   `json:"ready"`
	Needs []need `json:"needs"`
	Next  string `json:"next"` // a command
	err   error  // the service could not be asked
}

// need is one thing that a dispatch needs.
type need struct {
	Name   string `json:"name"`
	Met    bool   `json:"met"`
	Detail string `json:"detail"`
	Run    string `json:"run,omitempty"` // the command that provides it
}

func (r *readiness) met(name, format string, args ...any) {
	r.Needs = append(r.Needs, need{Name: name, Met: true, Detail: fmt.Sprintf(format, args...)})
}

// missing adds what is missing; next is the first command of all.
func (r *readiness) missing(name, run, format string, args ...any) {
	r.Needs = append(r.Needs, need{Name: name, Detail: fmt.Sprintf(format, args...), Run: run})
	if r.Ready = false; r.Next == "" {
		r.Next = run
	}
}

// ready finds out what the caller needs for its first dispatch. It starts no
// service.
func (t *findVerbs) ready(ctx context.Context) readiness {
	c := t.connect(false)
	defer c.Close()
	r := readiness{Ready: true}
	socket, err := c.Find(ctx)
	e, known := errors.AsType[*api.Error](err)
	switch {
	case known && e.Code == api.CodeUnavailable && e.Hint == "run: bailiwick up":
		if _, err := os.Stat(t.Dirs.TrustRoot()); errors.Is(err, fs.ErrNotExist) && t.socket == "" {
			r.missing("keys", "bailiwick init", "no trust root at %s, so nobody can sign a catalog", t.Dirs.TrustRoot())
			return r
		}
		r.missing("service", "bailiwick up", "no service is running at %s; dispatch run starts one for itself", c.Socket())
		return r
	case err != nil:
		r.err = err
		return r
	}
	r.met("service", "%s", socket)
	id, err := t.identity(ctx, c)
	if err != nil {
		r.err = err
		return r
	}
	t.checkAuthority(&r, id)
	if len(id.Subagents) > 0 {
		t.checkSource(ctx, &r, c, id.Subagents[0])
		t.checkSecrets(ctx, &r, c, id)
	}
	for _, stop := range id.Stops {
		r.missing("stop", "bailiwick stop lift "+stop, "emergency stop %s is engaged; only an operator can lift it", stop)
	}
	if r.Ready {
		r.Next = console.ExampleDispatch(id.Subagents[0].Listing)
	}
	return r
}

// checkAuthority checks catalog, grants and ceiling.
func (t *findVerbs) checkAuthority(r *readiness, id identity) {
	switch {
	case id.CatalogError != "":
		r.missing("catalog", "bailiwick catalog verify", "%s", id.CatalogError)
		return
	case id.Revision == 0:
		r.missing("catalog", "bailiwick catalog apply", "none has been applied yet; look at it first: bailiwick catalog plan")
		return
	}
	r.met("catalog", "revision %d", id.Revision)
	if len(id.Grants) == 0 {
		r.missing("grant", "bailiwick catalog apply", "no grant names %s; add one to bailiwick.yaml, then sign it", id.Principal)
		return
	}
	var granted []api.Name
	raise := id.Ceiling
	for _, g := range id.Grants {
		granted = append(granted, g.Name)
		if g.Ceiling != nil && *g.Ceiling > id.Ceiling && (raise == id.Ceiling || *g.Ceiling < raise) {
			raise = *g.Ceiling
		}
	}
	r.met("grant", "%s", console.Joined(granted, ", ", ""))
	switch {
	case len(id.Subagents) > 0 && id.AboveCeiling > 0:
		r.met("ceiling", "%s; for %d more, an operator can raise it: bailiwick ceiling set %s %s", id.Ceiling, id.AboveCeiling, id.Principal, raise)
	case len(id.Subagents) > 0:
		r.met("ceiling", "%s", id.Ceiling)
	case id.AboveCeiling > 0:
		r.missing("ceiling", fmt.Sprintf("bailiwick ceiling set %s %s", id.Principal, raise), "%s is below all that is granted; an operator can raise it", id.Ceiling)
	default:
		r.missing("grant", "bailiwick grant show "+string(granted[0]), "no grant admits the tier of a subagent that it lists, on a target that it lists")
	}
}

// checkSource checks the first source of a subagent.
func (t *findVerbs) checkSource(ctx context.Context, r *readiness, c *client.Conn, sub api.ArtifactInfo) {
	if len(sub.Sources) == 0 {
		if sub.NeedsSource {
			r.missing("source", "bailiwick catalog apply", "subagent %s needs a source, and no grant lists one", sub.Name)
		}
		return
	}
	page, err := c.Runtime().Artifacts(ctx, api.KindSource, sub.Sources[0], "")
	if err != nil || len(page.Items) == 0 {
		return // the dispatch says what is wrong
	}
	source := page.Items[0]
	if source.Repo != "" && !api.IsRemote(source.Repo) && !runcli.HasCommit(ctx, t.Env, source.Repo) {
		r.missing("source", "git -C "+console.ShellText(source.Repo)+" commit", "%s: the repository %s has no commit yet, or cannot be read by this account", source.Name, source.Repo)
		return
	}
	r.met("source", "%s", source.Name)
}

// checkSecrets checks the secrets that a dispatch of the first subagent uses. Only an
// operator may ask for their values' places.
func (t *findVerbs) checkSecrets(ctx context.Context, r *readiness, c *client.Conn, id identity) {
	answer, err := c.Runtime().Can(ctx, api.CanRequest{Principal: id.Principal, Subagent: id.Subagents[0].Name})
	if err != nil || len(answer.Secrets) == 0 {
		return // the dispatch says what is wrong
	}
	list, err := c.Operator().Secrets(ctx, true)
	if err != nil {
		return
	}
	for _, s := range list.Secrets {
		uses := func(u api.SecretRef) bool { return u.Name == s.Name }
		if !slices.ContainsFunc(answer.Secrets, uses) {
			continue
		}
		if s.Problem == "" {
			r.met("secret", "%s", s.Name)
			continue
		}
		run := "bailiwick secret check"
		if name, ok := strings.CutPrefix(s.Ref, "file:"); ok {
			run = "bailiwick secret set " + name
		}
		r.missing("secret", run, "%s: %s", s.Name, s.Problem)
	}
}

func (t *findVerbs) printReady(r readiness) error {
	if r.err != nil {
		return r.err
	}
	err := t.Emit(r, "", func() {
		for _, n := range r.Needs {
			if n.Met {
				t.Row(n.Name, "ok: %s", n.Detail)
				continue
			}
			t.Row(n.Name, "MISSING: %s", n.Detail)
			t.Row("", "run: %s", n.Run)
		}
		if r.Ready {
			t.Row("next", "%s", r.Next)
		}
	})
	if err == nil && !r.Ready {
		err = console.ExitFor(api.CodeDenied)
	}
	return err
}
