package webpage

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

const (
	// codeTime is how long a code is valid.
	codeTime = time.Minute
	// codeTries is how many wrong codes end the one that is valid.
	codeTries = 5
	// sessionTime is how long a browser stays signed in after its last request.
	sessionTime = 12 * time.Hour
	// maxSessions bounds the browsers that are signed in.
	maxSessions = 16
	cookieName  = "__Host-bailiwick"
)

// Invitation is what bailiwick web open prints.
type Invitation struct {
	URL  string `json:"url"`
	Sign string `json:"sign,omitempty"` // URL of the signing page; empty: it is not served
	Code string `json:"code"`           // valid once, for a minute, at either
}

// logins are the code that is valid and the sessions that codes were exchanged for.
// They end with the process.
type logins struct {
	now func() time.Time

	mu       sync.Mutex
	code     string                  // valid until until, empty: none; guarded by mu
	until    time.Time               // guarded by mu
	wrong    int                     // codes since code was made; guarded by mu
	sessions map[[32]byte]*time.Time // last use by the hash of the cookie; guarded by mu
}

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, sessions: map[[32]byte]*time.Time{}}
}

// newCode returns a code of 40 bits. An earlier one ends.
func (l *logins) newCode() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	code := base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").EncodeToString(b[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.code, l.until, l.wrong = code, l.now().Add(codeTime), 0
	return code[:4] + "-" + code[4:]
}

// exchange returns a new session for the valid code, which ends.
func (l *logins) exchange(typed string) (cookie string, ok bool) {
	typed = strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(typed))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.code == "" || l.now().After(l.until) || subtle.ConstantTimeCompare([]byte(typed), []byte(l.code)) == 0 {
		if l.wrong++; l.wrong >= codeTries {
			l.code = ""
		}
		return "", false
	}
	l.code = ""
	l.sweep()
	cookie, used := rand.Text()+rand.Text(), l.now()
	l.sessions[sha256.Sum256([]byte(cookie))] = &used
	return cookie, true
}

// sweep makes room for a session: it ends those that expired, then the one that was not
// used for longest. The caller holds mu.
func (l *logins) sweep() {
	var oldest [32]byte
	for id, used := range l.sessions {
		if l.now().Sub(*used) > sessionTime {
			delete(l.sessions, id)
		} else if first := l.sessions[oldest]; first == nil || used.Before(*first) {
			oldest = id
		}
	}
	if len(l.sessions) >= maxSessions {
		delete(l.sessions, oldest)
	}
}

// signedIn reports whether a request has the cookie of a session, and renews it.
func (l *logins) signedIn(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.sessions[sha256.Sum256([]byte(cookie.Value))]
	if used == nil || l.now().Sub(*used) > sessionTime {
		return false
	}
	*used = l.now()
	return true
}

// end ends the session of a request.
func (l *logins) end(r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sessions, sha256.Sum256([]byte(cookie.Value)))
	}
}

// sessionCookie is the cookie of a session; an empty value removes it. Browsers treat
// loopback as secure, so Secure and the __Host- prefix hold there without TLS.
func sessionCookie(value string) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// postLogin exchanges a code for a session, and leads back to where the browser wanted
// to go.
func (s *site) postLogin(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.PostFormValue("next"))
	cookie, ok := s.logins.exchange(r.PostFormValue("code"))
	if !ok {
		s.login(w, r, next, true)
		return
	}
	http.SetCookie(w, sessionCookie(cookie))
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // G710: localPath leads nowhere else
}

func (s *site) postLogout(w http.ResponseWriter, r *http.Request) {
	s.logins.end(r)
	http.SetCookie(w, sessionCookie(""))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// login asks for a code.
func (s *site) login(w http.ResponseWriter, r *http.Request, next string, wrong bool) {
	s.render(w, r, http.StatusUnauthorized, "login", layoutData{Title: "Sign in", Data: struct {
		Next  string
		Wrong bool
	}{next, wrong}})
}

// localPath is a path of this page with its query, or / if text is anything else.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(text, `\`) {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
}

// invite makes a code.
func (s *site) invite() Invitation {
	return Invitation{URL: s.url, Sign: s.sign, Code: s.logins.newCode()}
}

// giveCodes answers each connection to the unix socket, which only this account can
// open, with an Invitation.
func (s *site) giveCodes(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		err = conn.SetDeadline(s.Now().Add(bodyTime))
		if err == nil {
			_ = json.NewEncoder(conn).Encode(s.invite()) // a reader that has left needs no code
		}
		_ = conn.Close() // likewise
	}
}

// Open returns a code of the page that is being served with the control socket.
func Open(ctx context.Context, control string) (Invitation, error) {
	var i Invitation
	conn, err := egress.Unix(control).DialContext(ctx, "unix", control)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return i, api.Errorf(api.CodeUnavailable, "no page is being served").WithHint("serve it: bailiwick web serve")
	}
	if err != nil {
		return i, err
	}
	defer conn.Close() //nolint:errcheck // only read
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&i); err != nil {
		return i, fmt.Errorf("%s: %w", control, err)
	}
	return i, nil
}
