package webpage

import (
	"net/http"
	"strings"
)

// policy is the content security policy of every answer: only what this server serves,
// no inline script or style, no frames, and no HTML made from strings.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// maxForm bounds the body of a request, in bytes.
const maxForm = 128 << 10

// setHeaders sets the headers of every answer, also of a refusal.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// ServeHTTP checks, in this order: Host, how the browser came to send the request, the
// form's size, and the session.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.without != guardHeaders {
		setHeaders(w.Header())
		if s.team != nil {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
	}
	switch {
	case s.without != guardHost && !s.hosts.Allows(r.Host):
		s.refuse(w, r, http.StatusMisdirectedRequest, "this server has no such host: "+s.addressHint())
		return
	case s.without != guardFetch && !ownRequest(r, s.scheme()):
		s.refuse(w, r, http.StatusForbidden, "the request was made by another site")
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	if s.team != nil {
		s.servePerson(w, r)
		return
	}
	if open := strings.HasPrefix(r.URL.Path, "/static/") || r.URL.Path == "/login"; !open && s.without != guardSession && !s.logins.signedIn(r) {
		if r.Method == http.MethodGet {
			s.login(w, r, localPath(r.URL.RequestURI()), false)
		} else {
			s.refuse(w, r, http.StatusUnauthorized, "not signed in: run bailiwick web open")
		}
		return
	}
	s.mux.ServeHTTP(w, r)
}

// addressHint says where the page is.
func (s *site) addressHint() string {
	if s.team != nil {
		return "use " + s.team.Origin
	}
	return "use the address that bailiwick web open prints"
}

// scheme returns the scheme of the page's origin.
func (s *site) scheme() string {
	if s.team != nil {
		return "https://"
	}
	return "http://"
}

// ownRequest reports whether a request comes from this page, from the user (an address
// typed or bookmarked), or is a link of another site to here. Other ports of this
// machine are the same site for a browser, and get its cookies, so the cookie alone
// does not say that.
func ownRequest(r *http.Request, scheme string) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		return site == "" || site == "same-origin" || site == "none" || link
	}
	// A browser without Sec-Fetch-Site sends Origin with a form.
	return http.NewCrossOriginProtection().Check(r) == nil && (site == "same-origin" || site == "" && r.Header.Get("Origin") == scheme+r.Host)
}
