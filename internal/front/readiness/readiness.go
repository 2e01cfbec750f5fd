// Package readiness finds out what an installation and a caller lack for a first
// dispatch, in the order in which to provide it, each with the command that does.
//
// bailiwick can, up, status and doctor show this one list, so they never advise
// different things. The package reads files and asks the service; it changes nothing,
// and decides nothing: the service decides each dispatch.
package readiness

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
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// List is what a caller needs for its first dispatch. What depends on something
// missing is left out.
type List struct {
	Ready bool   `json:"ready"`
	Needs []Need `json:"needs"`
	Next  string `json:"next"` // a command
}

// Need is one thing that a dispatch needs.
type Need struct {
	Name   string `json:"name"`
	Met    bool   `json:"met"`
	Detail string `json:"detail"`
	Run    string `json:"run,omitempty"` // the command that provides it
}

// Missing returns the needs that are not met.
func (l *List) Missing() (list []Need) {
	for _, n := range l.Needs {
		if !n.Met {
			list = append(list, n)
		}
	}
	return list
}

func (l *List) met(name, format string, args ...any) {
	l.Needs = append(l.Needs, Need{Name: name, Met: true, Detail: fmt.Sprintf(format, args...)})
}

// missing adds what is missing; Next is the first command of all.
func (l *List) missing(name, run, format string, args ...any) {
	l.Needs = append(l.Needs, Need{Name: name, Detail: fmt.Sprintf(format, args...), Run: run})
	if l.Ready = false; l.Next == "" {
		l.Next = run
	}
}

// Config is what Of needs.
type Config struct {
	Dirs api.Dirs
	// Conn speaks to the service. If it may start one, Of does so where the installation
	// is complete.
	Conn *client.Conn
	// Starts reports whether Conn may start a service; if not and none answers, Of checks
	// the installation only.
	Starts bool
	// HasCommit reports whether a local repository has a commit that this account can
	// read. Nil: not checked.
	HasCommit func(ctx context.Context, repo string) bool
}

// Of returns what the caller lacks. The error is that of a service that could not be
// asked.
func Of(ctx context.Context, cfg Config) (List, error) {
	l := List{Ready: true}
	socket, err := cfg.Conn.Find(ctx)
	running := err == nil
	if err != nil && !client.NoService(err) {
		return l, err
	}
	if lost := lostRoot(cfg.Dirs); lost != nil && cfg.Conn.Server() == "" {
		l.missing(lost.Name, lost.Run, "%s", lost.Detail)
		return l, nil
	}
	switch {
	case running:
		l.met("service", "%s", socket)
	case !console.Published(cfg.Dirs.Catalog()):
		l.catalog(0, "")
		return l, nil
	case cfg.Starts:
		l.met("service", "none is running; a command that needs one starts it")
	default:
		l.missing("service", api.StartService(cfg.Dirs.Mode), "no service is running at %s", cfg.Conn.Socket())
		return l, nil
	}
	id, err := identify(ctx, cfg.Conn)
	if err != nil {
		return l, err
	}
	if l.authority(id); len(id.subagents) > 0 {
		l.source(ctx, cfg, id.subagents[0])
		l.secrets(ctx, cfg.Conn, id)
	}
	for _, stop := range id.Stops {
		l.missing("stop", "bailiwick stop lift "+stop, "emergency stop %s is engaged; only an operator can lift it", stop)
	}
	if l.Ready {
		l.Next = console.ExampleDispatch(id.subagents[0].Listing)
	}
	return l, nil
}

// lostRoot returns what is missing where there is no trust root, or nil. A catalog that
// was published before says that the root was lost: another one cannot verify it.
func lostRoot(d api.Dirs) *Need {
	switch _, err := os.Stat(d.TrustRoot()); {
	case !errors.Is(err, fs.ErrNotExist):
		return nil
	case console.Published(d.Catalog()):
		return &Need{
			Name: "trust root", Run: "cp BACKUP/trust.json " + console.ShellText(d.TrustRoot()),
			Detail: d.TrustRoot() + " is missing, and the catalog was signed under it; restore the file from a backup. A new one could not verify the catalog",
		}
	}
	return &Need{Name: "keys", Run: "bailiwick init", Detail: "no trust root at " + d.TrustRoot() + ", so nobody can sign a catalog"}
}

// identity is the caller, and what it may use.
type identity struct {
	api.Who
	grants, subagents []api.ArtifactInfo
	above             int // subagents that a higher ceiling would allow
}

func identify(ctx context.Context, c *client.Conn) (id identity, err error) {
	if id.Who, err = c.Runtime().Who(ctx); err != nil || id.CatalogError != "" || id.Revision == 0 {
		return id, err
	}
	// The grants of the caller, also for an operator: those of others allow it nothing.
	if id.grants, _, err = Artifacts(ctx, c, api.KindGrant); err == nil {
		id.subagents, id.above, err = Artifacts(ctx, c, api.KindSubagent)
	}
	return id, err
}

// Artifacts returns all artifacts of a kind that the caller may use. above is how many
// more subagents a higher ceiling would allow.
func Artifacts(ctx context.Context, c *client.Conn, kind api.Kind) (list []api.ArtifactInfo, above int, err error) {
	for cursor := ""; ; {
		page, err := c.Runtime().Artifacts(ctx, kind, "", cursor)
		if err != nil {
			return nil, 0, err
		}
		if list = append(list, page.Items...); page.Next == "" || page.Next == cursor {
			return list, page.AboveCeiling, nil
		}
		cursor = page.Next
	}
}

// catalog checks the catalog in force, and reports whether it is there.
func (l *List) catalog(revision uint64, refused string) bool {
	switch {
	case refused != "":
		l.missing("catalog", "bailiwick catalog verify", "%s", refused)
	case revision == 0:
		l.missing("catalog", "bailiwick catalog apply", "none has been applied yet; look at it first: bailiwick catalog plan")
	default:
		l.met("catalog", "revision %d", revision)
		return true
	}
	return false
}

// authority checks catalog, grants and ceiling.
func (l *List) authority(id identity) {
	if !l.catalog(id.Revision, id.CatalogError) {
		return
	}
	var granted []api.Name
	raise := id.Ceiling
	for _, g := range id.grants {
		granted = append(granted, g.Name)
		if g.Ceiling != nil && *g.Ceiling > id.Ceiling && (raise == id.Ceiling || *g.Ceiling < raise) {
			raise = *g.Ceiling
		}
	}
	if len(id.grants) == 0 {
		l.missing("grant", "bailiwick catalog apply", "no grant names %s; add one to bailiwick.yaml, then sign it", id.Principal)
		return
	}
	l.met("grant", "%s", console.Joined(granted, ", ", ""))
	switch {
	case len(id.subagents) > 0 && id.above > 0:
		l.met("ceiling", "%s; for %d more, an operator can raise it: bailiwick ceiling set %s %s", id.Ceiling, id.above, id.Principal, raise)
	case len(id.subagents) > 0:
		l.met("ceiling", "%s", id.Ceiling)
	case id.above > 0:
		l.missing("ceiling", fmt.Sprintf("bailiwick ceiling set %s %s", id.Principal, raise), "your ceiling is %s, and every granted subagent needs more; an operator can raise it", id.Ceiling)
	default:
		l.missing("grant", "bailiwick grant show "+string(granted[0]), "no grant admits the tier of a subagent that it lists, on a target that it lists")
	}
}

// source checks the first source of a subagent.
func (l *List) source(ctx context.Context, cfg Config, sub api.ArtifactInfo) {
	if len(sub.Sources) == 0 {
		if sub.NeedsSource {
			l.missing("source", "bailiwick catalog apply", "subagent %s needs a source, and no grant lists one", sub.Name)
		}
		return
	}
	page, err := cfg.Conn.Runtime().Artifacts(ctx, api.KindSource, sub.Sources[0], "")
	if err != nil || len(page.Items) == 0 {
		return // the dispatch says what is wrong
	}
	source := page.Items[0]
	if source.Repo != "" && !api.IsRemote(source.Repo) && cfg.HasCommit != nil && !cfg.HasCommit(ctx, source.Repo) {
		l.missing("source", "git -C "+console.ShellText(source.Repo)+" commit", "%s: the repository %s has no commit yet, or cannot be read by this account", source.Name, source.Repo)
		return
	}
	l.met("source", "%s", source.Name)
}

// secrets checks the secrets that a dispatch of the first subagent uses. Only an
// operator may ask for their values' places.
func (l *List) secrets(ctx context.Context, c *client.Conn, id identity) {
	answer, err := c.Runtime().Can(ctx, api.CanRequest{Principal: id.Principal, Subagent: id.subagents[0].Name})
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
			l.met("secret", "%s", s.Name)
			continue
		}
		run := "bailiwick secret check"
		if name, ok := strings.CutPrefix(s.Ref, "file:"); ok {
			run = "bailiwick secret set " + name
		}
		l.missing("secret", run, "%s: %s", s.Name, s.Problem)
	}
}
