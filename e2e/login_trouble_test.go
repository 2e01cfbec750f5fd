package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// A certificate that is replaced by garbage changes nothing for callers, the log and doctor
// say so, and a good one is served without a restart. Control: a client that knows only the
// authority before refuses the new one.
//
// proves R-D8
func TestAReplacedCertificateIsServedOrReported(t *testing.T) {
	t.Parallel()
	w := newOffice(t, "127.0.0.1")
	p := newWorld(t, 0)
	if d := w.login(p, "ann"); d.status != 0 {
		t.Fatalf("login: %s", d)
	}
	w.write("tls.pem", "-----BEGIN CERTIFICATE-----\ngarbage\n", 0o644)
	for late := range polling(time.Minute) {
		p.must("whoami")
		if strings.Contains(w.read("state/bailiwick/service.log"), "the one before stays in use") {
			break
		}
		if late {
			t.Fatalf("the service says nothing about its certificate: %s", w.read("state/bailiwick/service.log"))
		}
	}
	if d := w.fullDoctor(); !strings.Contains(d.stdout+d.stderr, "server.certificate:") {
		t.Errorf("doctor: %s", d)
	}
	w.roots = w.certificate("127.0.0.1", time.Now().Add(time.Hour))
	for late := range polling(time.Minute) {
		c, err := tls.Dial("tcp", strings.TrimPrefix(w.service, "https://"), &tls.Config{RootCAs: w.roots})
		if err == nil {
			_ = c.Close()
			break
		}
		if late {
			t.Fatalf("the new certificate is not served: %v", err)
		}
	}
	if d := p.try("whoami"); d.status == 0 || !strings.Contains(d.stderr, "is not trusted") {
		t.Errorf("a client that knows the old authority: %s", d)
	}
}

// The disk of the state is full: a login with the provider opens no session, and says whose disk is
// full and what to do. Nothing of it opens one later: the log has none, and the next login needs a new token. The controls are
// the logins before and after.
//
// proves R-T4, R-A2
func TestNoSessionOpensOnAFullDisk(t *testing.T) {
	t.Parallel()
	w := newOffice(t, "127.0.0.1")
	w.must("down")
	w.smallState("64m")
	w.upRuns()
	p, q := newWorld(t, 0), newWorld(t, 0)
	if d := w.login(p, "ann"); d.status != 0 {
		t.Fatalf("control: a login before: %s", d)
	}
	opened := func() int {
		return strings.Count(w.must("audit", "list", "--kind", "session.opened"), "logged in by oidc")
	}
	w.fillState()
	if err := os.Remove(w.path("state/bailiwick/reserve")); !errors.Is(err, fs.ErrNotExist) { // otherwise the service gives it up, and has its room
		must(t, err)
	}
	w.fillState()
	for n := 0; w.try("principal", "add", fmt.Sprintf("agent:far-%d", n)).status == 0; n++ { // files of the state have some room
		w.fillState()
		if n == 1000 {
			t.Fatal("control: the full disk takes entries without end")
		}
	}
	const before = 1
	for range 2 { // also when the service has seen it
		d := w.login(q, "ann")
		if d.status == 0 || !strings.Contains(d.stderr, "full disk") || !strings.Contains(d.stderr, "hint: ") {
			t.Errorf("a login: %s", d)
		}
		if d := q.try("--server", w.service, "whoami"); d.status == 0 {
			t.Errorf("after a refused login: %s", d)
		}
	}
	p.must("whoami") // the earlier session still reads
	w.freeState()
	w.awaitReady(true)
	if now := opened(); now != before {
		t.Errorf("the log has %d logins, %d before the disk was full", now, before)
	}
	p.must("whoami")
	if d := q.try("--server", w.service, "whoami"); d.status == 0 {
		t.Errorf("a refused login opened a session by itself: %s", d)
	}
	if d := w.login(q, "ann"); d.status != 0 {
		t.Errorf("control: a login after: %s", d)
	}
	q.must("whoami")
	if now := opened(); now != before+1 {
		t.Errorf("the log has %d logins, want %d", now, before+1)
	}
}
