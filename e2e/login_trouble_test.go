package e2e

import (
	"crypto/tls"
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
