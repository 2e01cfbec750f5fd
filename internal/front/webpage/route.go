package webpage

import (
	"embed"
	"html/template"
	"net/http"
	"path"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

//go:embed html static
var files embed.FS

// site serves the page.
type site struct {
	Config

	url       string // set once it listens
	sign      string // the URL of the signing page, likewise; empty: it is not served
	signs     bool   // this is the signing page
	hosts     httpguard.HostList
	logins    *logins
	templates map[string]*template.Template // by the name of the page
	mux       *http.ServeMux
	views     viewers
}

// route is a path of the page. Exactly one of its handlers is set.
type route struct {
	pattern string
	page    func(*http.Request) (*view, error)
	live    bool             // the page follows the log
	raw     http.HandlerFunc // of what is no page, such as a file
	post    func(*http.Request) (next string, err error)
}

// view is a page: its template with its title and data.
type view struct {
	template string // html/NAME.html
	title    string
	data     any
}

// routes is every path of the page.
func (s *site) routes() []route {
	all := []route{
		{pattern: "POST /login", raw: s.postLogin},
		{pattern: "POST /logout", raw: s.postLogout},
		{pattern: "GET /static/{file}", raw: s.static},
		{pattern: "GET /{$}", page: s.home, live: true},
		{pattern: "GET /inbox", page: s.inbox, live: true},
		{pattern: "GET /runs", page: s.runs, live: true},
		{pattern: "GET /runs/{id}", page: s.run, live: true},
		{pattern: "GET /dispatches", page: s.dispatches, live: true},
		{pattern: "GET /dispatches/{id}", page: s.dispatch, live: true},
		{pattern: "GET /dispatches/{id}/outputs", page: s.outputs},
		{pattern: "GET /dispatches/{id}/output", raw: s.output},
		{pattern: "GET /dispatches/{id}/tools", page: s.tools},
		{pattern: "GET /dispatches/{id}/network", page: s.network},
		{pattern: "GET /dispatches/{id}/statement", page: s.statement},
		{pattern: "GET /dispatches/{id}/statement.json", raw: s.downloadStatement},
		{pattern: "GET /log", page: s.log},
		{pattern: "GET /log/{seq}", page: s.entry},
		{pattern: "GET /decisions/{number}", page: s.decision},
		{pattern: "GET /catalog", page: s.catalog},
		{pattern: "GET /catalog/{number}", page: s.revision},
		{pattern: "GET /who", page: s.who},
		{pattern: "GET /budgets", page: s.budgets, live: true},
		{pattern: "GET /schedules", page: s.schedules},
		{pattern: "GET /schedules/{name}", page: s.schedule},
		{pattern: "GET /search", page: s.search},
		{pattern: "GET /events", raw: s.events},
	}
	if s.Steer {
		all = append(all, s.steering()...)
	}
	return all
}

func newSite(cfg Config) (*site, error) {
	hosts, err := httpguard.NewHostList(nil)
	if err != nil {
		return nil, err
	}
	s := &site{Config: cfg, hosts: hosts, logins: newLogins(cfg.Now), mux: http.NewServeMux()}
	if s.templates, err = parseTemplates(s); err != nil {
		return nil, err
	}
	s.handle(append(s.routes(), s.viewerRoutes()...))
	return s, nil
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

func (s *site) runtime() client.Runtime   { return s.Conn.Runtime() }
func (s *site) operator() client.Operator { return s.Conn.Operator() }
