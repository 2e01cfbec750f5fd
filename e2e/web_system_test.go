package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// In mode system the page runs under an account of its own. Two people enrol, sign in and
// decide together what takes two. The account of the page may nothing by itself, and a
// session that is stolen from a browser is of no use over the socket to another account.
// Controls: the same requests of people's accounts; the session in the browser.
//
// proves R-S2, R-B9
func TestTheTeamsPageHasAnAccountOfItsOwn(t *testing.T) {
	t.Parallel()
	cert, key, pin := teamCertificate(t)
	port := teamFree(t)
	origin := fmt.Sprintf("https://%s:%d", teamHost, port)
	s := newTeam(t, func(s *team) {
		s.MkdirAll("/etc/bailiwick/tls", 0, 0, 0o755)
		s.Write("/etc/bailiwick/tls/cert.pem", string(cert), 0, 0, 0o644)
		s.Write("/etc/bailiwick/tls/key.pem", string(key), 0, machine.Page, 0o640)
		s.Write("/etc/bailiwick/service.yaml", fmt.Sprintf("version: 1\nweb: {origin: %q, listen: \"127.0.0.1:%d\", certificate: /etc/bailiwick/tls/cert.pem, key: /etc/bailiwick/tls/key.pem}\n", origin, port), 0, 0, 0o644)
	})
	run := func(args ...string) string {
		var quotedArgs []string
		for _, a := range args {
			quotedArgs = append(quotedArgs, "'"+a+"'")
		}
		return s.ok(machine.Alice, "bailiwick "+strings.Join(quotedArgs, " "))
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // it ends after the browser
	t.Cleanup(stop)
	p := &teamPage{t: t, run: run, origin: origin, pin: pin, command: func() *exec.Cmd { return s.Command(ctx, machine.Page, filepath.Join(bin, "bailiwick-web"), "team") }}
	p.serve()

	for _, args := range []string{"whoami", "status", "run list", "operators list", "audit list", "decision list", "stop --all", "principal add human:eve"} {
		if out, err := s.sh(machine.Page, "bailiwick "+args); err == nil || !strings.Contains(out, "is the account of the page") {
			t.Errorf("the page itself: %s: %v %s", args, err, out)
		}
	}
	if out, err := s.sh(machine.Bob, "bailiwick whoami"); err != nil || !strings.Contains(out, "local:bob") {
		t.Errorf("control: %v %s", err, out)
	}

	run("principal", "add", "human:alice")
	run("principal", "add", "human:bob")
	alice, bob := p.device(), p.device()
	for who, tab := range map[string]*tab{"human:alice": alice, "human:bob": bob} {
		run("operators", "admit", who, p.enrolled(tab, p.invite(who), who))
		p.signIn(tab, who)
	}
	run("operators", "threshold", "2", "--key", "/home/alice/.config/bailiwick/operator.key")

	submitted := make(chan string, 1)
	go func() {
		out, err := s.sh(machine.Alice, "bailiwick ceiling set local:bob stateful --passkey")
		submitted <- fmt.Sprint(out, " ", err)
	}()
	var pending api.PendingDecision
	for late := range polling(patience) {
		var list []api.PendingDecision
		must(t, json.Unmarshal([]byte(run("decision", "list", "-o", "json")), &list))
		if len(list) > 0 {
			pending = list[0]
			break
		}
		if late {
			t.Fatalf("no decision is pending: %s", <-submitted)
		}
	}
	for n, tab := range []*tab{alice, bob} {
		if status := tab.visit(origin + "/sign/" + string(pending.ID)); status != http.StatusOK || !strings.Contains(tab.text("dl"), fmt.Sprintf("%d of 2", n)) {
			t.Fatalf("status %d: %s", status, tab.text("main"))
		}
		tab.loads("the signature", func() { tab.click("#sign") })
	}
	bob.awaitText("#receipt", "log entry")
	if said := <-submitted; !strings.Contains(said, "decision") || !strings.HasSuffix(said, "<nil>") {
		t.Errorf("ceiling set: %s", said)
	}

	var jar struct {
		Cookies []struct{ Name, Value string }
	}
	alice.must("Network.getCookies", nil, &jar)
	if len(jar.Cookies) != 1 || jar.Cookies[0].Name != "__Host-bailiwick-session" {
		t.Fatalf("cookies %+v", jar.Cookies)
	}
	get := func(uid int) string {
		out, err := s.sh(uid, `perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un("/run/bailiwick/api.sock")) or die "$!"; select(S); $| = 1; print "GET /v1/runtime/who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n`+api.SessionHeader+`: `+jar.Cookies[0].Value+`\r\n\r\n"; print STDOUT <S>'`)
		if err != nil {
			t.Fatalf("uid %d: %v %s", uid, err, out)
		}
		return out
	}
	for _, uid := range []int{machine.Alice, machine.Bob, machine.Service} {
		if out := get(uid); !strings.Contains(out, "401 Unauthorized") || strings.Contains(out, "human:alice") {
			t.Errorf("a stolen session with uid %d: %s", uid, out)
		}
	}
	if out := get(machine.Page); !strings.Contains(out, "human:alice") { // what a taken-over page may
		t.Errorf("control: the page: %s", out)
	}
}
