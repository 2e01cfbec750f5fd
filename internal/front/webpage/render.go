package webpage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// layoutData is what the layout shows around a page.
type layoutData struct {
	Title  string
	Path   string // of the request
	In     bool   // signed in
	Signs  bool   // on the signing page
	Sign   string // path below which decisions are signed, with a slash at its end; empty: not here
	Search string
	Steer  bool
	Team   bool
	Person api.Who // of a page for several people
	Token  string  // of the forms of a person's session
	Newest string  // number of the newest entry when the page was read; empty: unknown
	Still  bool    // the page does not follow the log, which its reader may not read
	Data   any     // of the page
}

// May reports whether forms are offered that steer what belongs to an owner: to a person
// of a team what policy lets them. The service decides, whatever is offered.
func (d layoutData) May(owner api.Principal) bool {
	return d.Steer && (!d.Team || d.Person.Operator || d.Person.Principal == owner)
}

// parseTemplates reads layout.html with each page of html/.
func parseTemplates(s *site) (map[string]*template.Template, error) {
	base, err := template.New("layout.html").Funcs(s.functions()).ParseFS(files, "html/layout.html")
	if err != nil {
		return nil, err
	}
	pages, err := fs.Glob(files, "html/*.html")
	all := map[string]*template.Template{}
	for _, file := range pages {
		if file == "html/layout.html" {
			continue
		}
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(files, file)
		}
		if err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(path.Base(file), ".html")] = t
	}
	return all, err
}

// functions are those of templates. None returns HTML: html/template escapes all text.
func (s *site) functions() template.FuncMap {
	return template.FuncMap{
		"ago":     func(at time.Time) string { return ago(s.Now().Sub(at)) },
		"exact":   func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
		"show":    func(s any) string { return Visible(fmt.Sprint(s)) },
		"bytes":   bytesText,
		"bounded": bounded,
		"counted": counted,
		"inc":     func(n int) int { return n + 1 },
		"json":    func(v any) string { return Visible(pretty(v)) },
		"done":    func(r api.Run) int { return r.Counts[api.TaskDone] },
		"key":     rand.Text,
	}
}

// link is an entry of the navigation.
type link struct {
	Path, Title, Key string
	Here             bool // it leads to what is shown, or to what that belongs to
}

// Navigation leads to what the reader may see.
func (d layoutData) Navigation() []link {
	all := []link{
		{Path: "/", Title: "Overview", Key: "o"},
		{Path: "/inbox", Title: "Inbox", Key: "i"},
		{Path: "/sign", Title: "Sign", Key: "g"},
		{Path: "/runs", Title: "Runs", Key: "r"},
		{Path: "/dispatches", Title: "Dispatches", Key: "d"},
		{Path: "/schedules", Title: "Schedules", Key: "s"},
		{Path: "/budgets", Title: "Budgets", Key: "b"},
		{Path: "/log", Title: "Log", Key: "l"},
		{Path: "/catalog", Title: "Catalog", Key: "c"},
		{Path: "/who", Title: "Who", Key: "w"},
	}
	all = slices.DeleteFunc(all, func(l link) bool {
		operators := l.Path == "/schedules" || l.Path == "/log"
		return l.Path == "/sign" && !d.Team || operators && d.Still
	})
	for i := range all {
		all[i].Here = d.Path == all[i].Path || i > 0 && strings.HasPrefix(d.Path, all[i].Path+"/")
	}
	return all
}

// bounded lists the members that a budget bounds.
func bounded(b api.BudgetStatus) (names []string) {
	limit := b.Budget.Limit()
	for _, name := range api.SpendNames() {
		if limit.Member(name) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// ago is a duration in one unit, rounded down.
func ago(d time.Duration) string {
	text, future := "", d < 0
	if d = d.Abs(); d < time.Minute {
		text = fmt.Sprintf("%d s", d/time.Second)
	} else if d < time.Hour {
		text = fmt.Sprintf("%d min", d/time.Minute)
	} else if d < 48*time.Hour {
		text = fmt.Sprintf("%d h", d/time.Hour)
	} else {
		text = fmt.Sprintf("%d d", d/(24*time.Hour))
	}
	if future {
		return "in " + text
	}
	return text + " ago"
}

func bytesText(n int64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + []string{" bytes", " KiB", " MiB", " GiB", " TiB"}[unit]
}

// Visible is text of agents, tools and callers with each character that hides, moves or
// commands something spelled as U+XXXX.
func Visible(text string) string {
	var b strings.Builder
	for _, p := range visibletext.Parts(text) {
		b.WriteString(p.Text)
	}
	return b.String()
}

// render answers with a page.
func (s *site) render(w http.ResponseWriter, r *http.Request, status int, name string, d layoutData) {
	d.Path, d.In, d.Search, d.Steer, d.Signs = r.URL.Path, name != "login" && s.logins.signedIn(r), r.URL.Query().Get("q"), s.Steer, s.signs
	if s.signs {
		d.Sign = "/"
	}
	if s.team != nil {
		s.team.describe(r, &d)
	}
	var b bytes.Buffer
	if err := s.templates[name].Execute(&b, d); err != nil {
		s.Logger.LogAttrs(r.Context(), slog.LevelError, "cannot render a page", slog.String("page", name), slog.Any("err", err))
		http.Error(w, "internal error: this page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser has left
}

// refuse answers with a message of this server.
func (s *site) refuse(w http.ResponseWriter, r *http.Request, status int, message string) {
	s.render(w, r, status, "error", layoutData{Title: http.StatusText(status), Data: &api.Error{Message: message}})
}

// fail answers with an error of the service.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		return // the browser has left
	}
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		e = &api.Error{Code: api.CodeInternal, Message: err.Error()}
	}
	status, ok := api.Table()[e.Code]
	if !ok {
		status.HTTP = http.StatusInternalServerError
	}
	s.render(w, r, status.HTTP, "error", layoutData{Title: http.StatusText(status.HTTP), Data: e})
}
