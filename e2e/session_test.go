package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// exchange presents a token as a client does, for a handle bound to this
// process.
func (w *world) exchange(token string) api.Session {
	w.t.Helper()
	s, err := w.conn().Exchange(w.t.Context(), token)
	must(w.t, err)
	return s
}

// withHandle calls the service with a handle and returns the status and the
// error, if any.
func (w *world) withHandle(handle, method, path, body string) (int, api.Error) {
	w.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		asUser(w.uid, func() {
			var d net.Dialer
			conn, err = d.DialContext(ctx, "unix", w.path("run/bailiwick/api.sock"))
		})
		return conn, err
	}}}
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://x"+path, strings.NewReader(body))
	must(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(api.SessionHeader, handle)
	resp, err := c.Do(req)
	must(w.t, err)
	defer resp.Body.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(resp.Body)
	must(w.t, err)
	var e api.Error
	if resp.StatusCode >= http.StatusBadRequest {
		must(w.t, json.Unmarshal(b, &e))
	}
	return resp.StatusCode, e
}
