package webpage

import (
	"context"
	"embed"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

//go:embed html static
var files embed.FS

// site serves the page.
type site struct {
	Config

	url    string // set once it listens
	sign   string // the URL of the signing page, likewise; empty: it is not served
	signs  bool   // this is the signing page
	hosts  httpguard.HostList
	logins *logins
	team   *team // the page is for several people; nil: for this account

	templates map[string]*template.Template // by the name of the page
	mux       *http.ServeMux
}

// route is a path of the page. Exactly one of its handlers is set.
type route struct {
	pattern string
	page    func(*http.Request) (*view, error)
	live    bool                                           // the page follows the log
	raw     http.HandlerFunc                               // of what is no page, such as a file
	data    func(http.ResponseWriter, *http.Request) error // of what the service gave; its error becomes a page
	post    func(*http.Request) (next string, err error)
}

// view is a page: its template with its title and data.
type view struct {
	template string // html/NAME.html
	title    string
	data     any
}

// source is what pages read: the service, as who made a request, and the time.
type source struct {
	conn func(context.Context) *client.Conn
	now  func() time.Time
}

func (s source) runtime(ctx context.Context) client.Runtime   { return s.conn(ctx).Runtime() }
func (s source) operator(ctx context.Context) client.Operator { return s.conn(ctx).Operator() }

// source returns what pages read: as the local account, or as the person of a request.
func (s *site) source() source {
	if s.team != nil {
		return source{s.team.conn, s.Now}
	}
	return source{func(context.Context) *client.Conn { return s.Conn }, s.Now}
}

// sessionRoutes is the paths of the page and of the signing page.
func (s *site) sessionRoutes() []route {
	return []route{
		{pattern: "POST /login", raw: s.postLogin},
		{pattern: "POST /logout", raw: s.postLogout},
		{pattern: "GET /static/{file}", raw: s.static},
	}
}

// pages is every path that shows something.
func (s *site) pages() []route {
	from := s.source()
	home, log, catalog := homePages{from}, logPages{from}, catalogPages{from}
	runs, dispatches := &runPages{source: from}, &dispatchPages{source: from}
	return []route{
		{pattern: "GET /{$}", page: home.home, live: true},
		{pattern: "GET /inbox", page: home.inbox, live: true},
		{pattern: "GET /search", page: home.search},
		{pattern: "GET /runs", page: runs.runs, live: true},
		{pattern: "GET /runs/{id}", page: runs.run, live: true},
		{pattern: "GET /runs/{id}/graph", page: runs.graph, live: true},
		{pattern: "GET /dispatches", page: dispatches.dispatches, live: true},
		{pattern: "GET /dispatches/{id}", page: dispatches.dispatch, live: true},
		{pattern: "GET /dispatches/{id}/outputs", page: dispatches.outputs},
		{pattern: "GET /dispatches/{id}/output", data: dispatches.output},
		{pattern: "GET /dispatches/{id}/tools", page: dispatches.tools},
		{pattern: "GET /dispatches/{id}/network", page: dispatches.network},
		{pattern: "GET /dispatches/{id}/statement", page: dispatches.statement},
		{pattern: "GET /dispatches/{id}/statement.json", data: dispatches.downloadStatement},
		{pattern: "GET /dispatches/{id}/log", page: dispatches.logOf},
		{pattern: "GET /dispatches/{id}/log/lines", data: dispatches.logLines},
		{pattern: "GET /dispatches/{id}/log/raw", data: dispatches.rawLogOf},
		{pattern: "GET /dispatches/{id}/patch", page: dispatches.patchOf},
		{pattern: "GET /dispatches/{id}/patch/raw", data: dispatches.rawPatch},
		{pattern: "GET /log", page: log.log},
		{pattern: "GET /log/{seq}", page: log.entry},
		{pattern: "GET /decisions/{number}", page: log.decision},
		{pattern: "GET /events", data: log.events},
		{pattern: "GET /catalog", page: catalog.catalog},
		{pattern: "GET /catalog/{number}", page: catalog.revision},
		{pattern: "GET /who", page: catalog.who},
		{pattern: "GET /budgets", page: catalog.budgets, live: true},
		{pattern: "GET /schedules", page: catalog.schedules},
		{pattern: "GET /schedules/{name}", page: catalog.schedule},
	}
}

// routes is every path of the page.
func (s *site) routes() []route {
	all := append(s.sessionRoutes(), s.pages()...)
	if s.Steer {
		all = append(all, steering{s.source()}.routes()...)
	}
	return all
}

func newSite(cfg Config) (*site, error) {
	s, err := emptySite(cfg)
	if err == nil {
		s.handle(s.routes())
	}
	return s, err
}

// emptySite is a site without paths.
func emptySite(cfg Config) (*site, error) {
	hosts, err := httpguard.NewHostList(nil)
	if err != nil {
		return nil, err
	}
	s := &site{Config: cfg, hosts: hosts, logins: newLogins(cfg.Now), mux: http.NewServeMux()}
	s.templates, err = parseTemplates(s)
	return s, err
}

// handle serves routes, and refuses every other path.
func (s *site) handle(routes []route) {
	for _, rt := range routes {
		s.mux.HandleFunc(rt.pattern, s.handler(rt))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusNotFound, "the page has no such path")
	})
}

func (s *site) handler(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case rt.raw != nil:
			rt.raw(w, r)
		case rt.data != nil:
			if err := rt.data(w, r); err != nil {
				s.fail(w, r, err)
			}
		case rt.post != nil:
			next, err := rt.post(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			http.Redirect(w, r, next, http.StatusSeeOther)
		default:
			newest := ""
			if rt.live {
				newest = s.newest(r) // before the page is read: it shows at least that entry
			}
			v, err := rt.page(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			s.render(w, r, http.StatusOK, v.template, layoutData{Title: v.title, Newest: newest, Data: v.data})
		}
	}
}

// pathNumber reads the number of what a path is about. The first is number least.
func pathNumber(r *http.Request, name, what string, least uint64) (uint64, error) {
	n, err := strconv.ParseUint(r.PathValue(name), 10, 53)
	if err != nil || n < least {
		return 0, api.Errorf(api.CodeInvalid, "%s %.40q: want its number, from %d", what, r.PathValue(name), least)
	}
	return n, nil
}

// static serves a file of the page: its style, a script or its icon.
func (s *site) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := files.ReadFile("static/" + name)
	if err != nil {
		s.refuse(w, r, http.StatusNotFound, "the page has no such file")
		return
	}
	w.Header().Set("Content-Type", map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)])
	_, _ = w.Write(b) //nolint:gosec // G705: a file of this program; an error: the browser has left
}
