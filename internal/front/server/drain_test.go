package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// A request that arrives on an accepted connection while the server ends has an answer. The control is
// [http.Server.Shutdown].
func TestALateRequestIsAnsweredWhileTheServerEnds(t *testing.T) {
	for name, drained := range map[string]bool{"drain": true, "control": false} {
		accepted, entered := make(chan struct{}, 1), make(chan struct{})
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") }), ReadHeaderTimeout: headerTimeout}
		d := newDrain(web)
		note := web.ConnState
		web.ConnState = func(c net.Conn, state http.ConnState) {
			note(c, state)
			if state == http.StateNew {
				accepted <- struct{}{}
			}
		}
		web.RegisterOnShutdown(func() { close(entered) })
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		serving, ended := make(chan error, 1), make(chan error, 1)
		go func() { serving <- d.serve(l) }()
		c, err := net.Dial("unix", l.Addr().String()) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		<-accepted
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if drained {
			go func() { ended <- d.end(ctx) }()
			err = <-serving // accepts no more
		} else {
			go func() { ended <- web.Shutdown(ctx) }()
			<-entered
		}
		if err != nil {
			t.Errorf("%s: serve: %v", name, err)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_ = r.Body.Close()
		}
		if (err == nil) != drained {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: end: %v", name, err)
		}
		cancel()
		_ = c.Close()
	}
}
