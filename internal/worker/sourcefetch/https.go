package sourcefetch

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// proxy passes the two requests of a fetch over smart HTTP on to one repository, with
// the credential. It does nothing else: no other path, method, host or redirect.
type proxy struct {
	request record.FetchRequest
	to      *url.URL
	server  *http.Server
	client  *http.Client

	mu  sync.Mutex
	err error // the first
}

func newProxy(l net.Listener, dial egress.DialFunc, to *url.URL, req record.FetchRequest) *proxy {
	p := &proxy{request: req, to: to, client: egress.Client(egress.ClientConfig{Dial: dial, Timeout: maxTime, MaxBody: maxBytes})}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = p.server.Serve(l) }() // until close
	return p
}

func (p *proxy) close() { _ = p.server.Close() }

func (p *proxy) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

const service = "git-upload-pack"

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(p.to.Path, "/")
	target := *p.to
	suffix, ok := strings.CutPrefix(r.URL.Path, path)
	switch ok = ok && r.URL.Host == ""; {
	case ok && r.Method == http.MethodGet && suffix == "/info/refs" && r.URL.RawQuery == "service="+service:
		target.Path, target.RawQuery = path+"/info/refs", "service="+service
	case ok && r.Method == http.MethodPost && suffix == "/"+service:
		target.Path = path + "/" + service
	default: // git tries the protocol without a service
		p.fail(fmt.Errorf("%s does not speak git's smart HTTP protocol there", p.to.Host))
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if err := p.pass(w, r, target.String()); err != nil {
		p.fail(err)
		panic(http.ErrAbortHandler) // git sees the answer break off
	}
}

// pass sends a request on and copies the answer as it comes.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request, target string) error {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target, r.Body)
	if err != nil {
		return err
	}
	out.ContentLength = r.ContentLength
	out.Header.Set("User-Agent", "git/bailiwick")
	for _, name := range []string{"Accept", "Content-Type", "Content-Encoding", "Git-Protocol"} {
		if v := r.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	if p.request.Secret != "" {
		out.SetBasicAuth(userOf(p.request.Source), p.request.Secret)
	}
	answer, err := p.client.Do(out) //nolint:gosec // G704: to the URL of the source, by internal/base/egress
	if answer != nil {              // with an error, too, after a redirect
		defer answer.Body.Close() //nolint:errcheck // only read
		if err := p.check(answer); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.to.Host, errors.Unwrap(err)) // without the URL, which is known
	}
	for _, name := range []string{"Content-Type", "Content-Encoding"} {
		if v := answer.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	flush, piece := http.NewResponseController(w), make([]byte, 64<<10)
	for {
		n, err := answer.Body.Read(piece)
		if n > 0 {
			_, gone := w.Write(piece[:n])
			if errors.Join(gone, flush.Flush()) != nil {
				return nil // git has ended, and says why
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the answer of %s breaks off: %w", p.to.Host, err)
		}
	}
}

// check refuses what is not an answer to a fetch, with a reason that helps.
func (p *proxy) check(r *http.Response) error {
	what := fmt.Sprintf("%s answers %d %s", p.to.Host, r.StatusCode, http.StatusText(r.StatusCode))
	switch {
	case r.StatusCode == http.StatusOK:
		return nil
	case r.StatusCode/100 == 3:
		to, err := r.Location()
		if err != nil {
			return errors.New(what)
		}
		to.RawQuery, to.Path = "", strings.TrimSuffix(to.Path, "/info/refs")
		return fmt.Errorf("%s, to %s, which is not followed: write that as repo, if it is the repository", what, capture.Printable(to.Redacted()))
	case p.request.Secret == "" && (r.StatusCode == 401 || r.StatusCode == 403 || r.StatusCode == 404):
		return fmt.Errorf("%s: there is no such repository, or the source needs a secret", what)
	case r.StatusCode == 401 || r.StatusCode == 403:
		return fmt.Errorf("%s: secret %q, with the user %s, may not read it", what, p.request.Source.Secret, userOf(p.request.Source))
	case r.StatusCode == 404:
		return fmt.Errorf("%s: there is no such repository, or secret %q may not read it", what, p.request.Source.Secret)
	}
	return errors.New(what)
}
