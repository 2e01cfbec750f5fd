package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

const (
	// These bound what other local accounts can use up on a loopback port.
	maxConnections = 16
	maxHeader      = 8 << 10
	requestTime    = 10 * time.Second
)

// web serves metrics and health.
type web struct {
	http *http.Server
	file string      // the socket, removed by close
	made fs.FileInfo // of that file
	done chan struct{}
}

// Serve starts to serve /metrics, /livez and /readyz at a and returns the actual
// address. Call it once.
func (t *Telemetry) Serve(a Address) (Address, error) {
	var l net.Listener
	var err error
	if a.network == "unix" {
		l, err = t.cfg.Listen(a.where)
	} else {
		l, err = net.Listen("tcp", a.where) //nolint:noctx // does not block
	}
	if err != nil {
		return Address{}, fmt.Errorf("metrics: %s: %w", a, err)
	}
	if a.network == "unix" {
		if t.web.made, err = os.Lstat(a.where); err != nil {
			return Address{}, errors.Join(err, l.Close())
		}
		t.web.file = a.where
	} else {
		a.where = l.Addr().String() // replaces port 0
	}
	t.web.http = &http.Server{
		Handler: t.handler(a.network == "tcp"), ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: requestTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(t.cfg.Logger.Handler(), slog.LevelDebug),
	}
	t.web.done = make(chan struct{})
	go func() {
		defer close(t.web.done)
		if err := t.web.http.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			t.cfg.Logger.ErrorContext(context.Background(), "metrics server failed", slog.Any("err", err))
		}
	}()
	return a, nil
}

func (w *web) close(ctx context.Context) error {
	if w.http == nil {
		return nil
	}
	err := w.http.Shutdown(ctx)
	if err != nil {
		err = w.http.Close()
	}
	<-w.done
	// The next service may have replaced the socket by now.
	if now, statErr := os.Lstat(w.file); statErr == nil && w.made != nil && os.SameFile(now, w.made) {
		err = errors.Join(err, os.Remove(w.file))
	}
	return err
}

// handler serves the pages. On a loopback port it checks the Host header against
// DNS rebinding of a browser.
func (t *Telemetry) handler(loopbackOnly bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxConnections, ErrorLog: slog.NewLogLogger(t.cfg.Logger.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { t.ready(w, r) })
	if !loopbackOnly {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackHost(r.Host) {
			http.Error(w, "metrics are served under a loopback address only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (t *Telemetry) ready(w http.ResponseWriter, r *http.Request) {
	s := t.watched.state(r.Context())
	status, text := http.StatusOK, ""
	for _, c := range s.Checks {
		word := "ok"
		if !c.OK {
			word = "NOT READY"
		}
		text += word + " " + c.Name + "\n"
	}
	if !s.Ready() {
		status = http.StatusServiceUnavailable
	}
	if len(s.Checks) == 0 {
		text = "NOT READY starting\n"
	}
	say(w, status, text)
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the caller may be gone
}
