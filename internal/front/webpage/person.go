package webpage

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

const (
	// personCookie has the handle of a person's session. The page keeps none: the service
	// knows which are open, and a restart of the page ends none.
	personCookie = "__Host-bailiwick-session"
	// tokenField and tokenHeader have the token of the forms of a session.
	tokenField  = "csrf"
	tokenHeader = "X-Csrf-Token" //nolint:gosec // G101: a name
	maxHandle   = 200
)

// person is who makes a request, with their session.
type person struct {
	conn  *client.Conn // every call is made with the session
	who   api.Who
	token string // of its forms
}

type personKey struct{}

func personOf(ctx context.Context) *person {
	p, _ := ctx.Value(personKey{}).(*person)
	return p
}

// conn returns the connection of the person of a request. Without one it has a handle that
// the service refuses: the page never calls with its own authority.
func (t *team) conn(ctx context.Context) *client.Conn {
	if p := personOf(ctx); p != nil {
		return p.conn
	}
	return t.service.As("none")
}

// login makes the calls of a browser that is not signed in, and passes its address on for
// the log.
func (t *team) login(r *http.Request) client.Login {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = ""
	}
	return t.service.Login().From(host)
}

// describe adds what the layout shows of the person.
func (t *team) describe(r *http.Request, d *layoutData) {
	d.Team, d.Steer = true, true
	if p := personOf(r.Context()); p != nil {
		d.In, d.Person, d.Token, d.Sign = true, p.who, p.token, "/sign/"
		d.Still = !reads(r.Context())
	}
}

// reads reports whether who makes a request may read what only operators may: the log,
// decisions, and how the service is. Else a page does not ask, since each denial is an
// entry of the log.
func reads(ctx context.Context) bool {
	p := personOf(ctx)
	return p == nil || p.who.Operator
}

// public reports whether a path is for people who are not signed in.
func public(path string) bool {
	return strings.HasPrefix(path, "/static/") || path == "/login" || strings.HasPrefix(path, "/login/") || path == "/enrol"
}

// servePerson finds out whose session a request has, and checks the token of a form.
func (s *site) servePerson(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		// An error: the connection has no deadlines, in tests alone.
		_ = http.NewResponseController(w).SetReadDeadline(s.Now().Add(bodyTime))
	}
	if public(r.URL.Path) {
		if !strings.HasPrefix(r.URL.Path, "/static/") && !s.team.limit.allow(r.RemoteAddr) {
			s.refuse(w, r, http.StatusTooManyRequests, "too many attempts from this address: wait a minute, then try again")
			return
		}
		s.mux.ServeHTTP(w, r)
		return
	}
	p, err := s.team.find(r)
	switch {
	case err == nil:
	case api.CodeOf(err) == api.CodeUnauthenticated:
		if _, had := handleOf(r); had {
			http.SetCookie(w, teamCookie(personCookie, "", time.Time{}))
		}
		if r.Method == http.MethodGet {
			s.signIn(w, r, localPath(r.URL.RequestURI()), api.Errorf(api.CodeUnauthenticated, "%s", notSignedIn(r)))
		} else {
			s.refuse(w, r, http.StatusUnauthorized, notSignedIn(r)+": sign in, and send it again")
		}
		return
	default:
		s.fail(w, r, err)
		return
	}
	if r.Method == http.MethodPost && s.without != guardToken && !p.owns(r) {
		s.refuse(w, r, http.StatusForbidden, "the form does not belong to your session: open the page again, and send it once more")
		return
	}
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, p)))
}

func notSignedIn(r *http.Request) string {
	if _, had := handleOf(r); had {
		return "your session has ended"
	}
	return "you are not signed in"
}

// find returns who a request is of, as the service says; an unauthenticated error without
// an open session of a person.
func (t *team) find(r *http.Request) (*person, error) {
	handle, ok := handleOf(r)
	if !ok {
		return nil, api.Errorf(api.CodeUnauthenticated, "no session")
	}
	p := &person{conn: t.service.As(handle), token: tokenOf(handle)}
	var err error
	if p.who, err = p.conn.Runtime().Who(r.Context()); err != nil {
		return nil, err
	}
	if p.who.Auth != api.AuthSession { // a token's handle, or no handle at all
		return nil, api.Errorf(api.CodeUnauthenticated, "no session of a person")
	}
	return p, nil
}

// owns reports whether a form, or a script, sent the token of the session.
func (p *person) owns(r *http.Request) bool {
	given := r.Header.Get(tokenHeader)
	if given == "" {
		given = r.PostFormValue(tokenField)
	}
	return hmac.Equal([]byte(given), []byte(p.token))
}

// tokenOf returns the token of the forms of a session. It reveals nothing of the handle.
func tokenOf(handle string) string {
	m := hmac.New(sha256.New, []byte(handle))
	m.Write([]byte("bailiwick form"))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// handleOf returns the handle in the cookie of a request.
func handleOf(r *http.Request) (string, bool) {
	c, err := r.Cookie(personCookie)
	if err != nil || c.Value == "" || len(c.Value) > maxHandle || strings.Trim(c.Value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
		return "", false
	}
	return c.Value, true
}

// teamCookie is a cookie of this host alone, until a time; an empty value removes it.
func teamCookie(name, value string, until time.Time) *http.Cookie {
	c := &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, Expires: until}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// sessions lists the open sessions of the person; to an operator all.
func (s *site) sessions(r *http.Request) (*view, error) {
	list, err := s.team.conn(r.Context()).Sessions().List(r.Context())
	return &view{"sessions", "Sessions", list}, err
}

// endSession ends one of them.
func (s *site) endSession(r *http.Request) (string, error) {
	return "/sessions", s.team.conn(r.Context()).Sessions().End(r.Context(), r.PathValue("id"))
}

// endOwnSession signs out: the session ends at the service, not only in this browser.
func (s *site) endOwnSession(w http.ResponseWriter, r *http.Request) {
	calls := s.team.conn(r.Context()).Sessions()
	list, err := calls.List(r.Context())
	for i := range list {
		if err == nil && list[i].Current {
			err = calls.End(r.Context(), list[i].ID)
		}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, teamCookie(personCookie, "", time.Time{}))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
