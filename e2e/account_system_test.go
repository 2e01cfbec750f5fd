package e2e

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// Accounts of a machine share the socket of its service, and policy decides for each: the
// holder of an operator key is an operator, another account is not. A client sends nothing
// to a socket of an account that is not the service's.
//
// proves R-T4, R-S2
func TestEachAccountOfAMachineIsItsOwnPrincipal(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	for _, who := range []struct {
		uid      int
		name     string
		operator bool
	}{{machine.Alice, "alice", true}, {machine.Bob, "bob", false}} {
		out := s.ok(who.uid, "bailiwick whoami")
		if !strings.Contains(out, "local:"+who.name+", established by the account") || strings.Contains(out, "\noperator ") != who.operator {
			t.Errorf("%s: %s", who.name, out)
		}
		for _, verb := range []string{"dispatch list", "run list", "subagent list", "session list", "approval list"} {
			s.ok(who.uid, "bailiwick "+verb)
		}
		for _, verb := range []string{"audit list", "principal list", "operators list", "token list", "secret list"} {
			if out, err := s.sh(who.uid, "bailiwick "+verb); (err == nil) != who.operator {
				t.Errorf("%s: %s: %v %s", who.name, verb, err, out)
			}
		}
	}
	t.Log("a token is of a program, whatever account presents it")
	s.ok(machine.Alice, "bailiwick principal add agent:ci && bailiwick token create agent:ci --out ~/ci.token")
	s.ok(machine.Root, "install -o bob -m 600 /home/alice/ci.token /home/bob/ci.token")
	if out, err := s.sh(machine.Bob, `printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}' '{"jsonrpc":"2.0","method":"notifications/initialized"}' '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bailiwick_subagents_list","arguments":{}}}' | bailiwick-mcp --principal-token-file ~/ci.token`); err != nil || !strings.Contains(out, `"id":2`) || strings.Contains(out, `"isError":true`) {
		t.Errorf("bob with a token: %v %s", err, out)
	}
	t.Log("a socket of another account gets no request")
	s.MkdirAll("/run/bob", machine.Bob, machine.Bob, 0o755)
	listen := `perl -MSocket -e 'unlink "/run/bob/fake.sock"; socket(S, AF_UNIX, SOCK_STREAM, 0) or die; bind(S, sockaddr_un("/run/bob/fake.sock")) or die; chmod 0666, "/run/bob/fake.sock"; listen(S, 5) or die; open(R, ">", "/run/bob/fake.ready"); close R; $SIG{ALRM} = sub { exit 0 }; alarm 8; accept(C, S) or die; sysread(C, $b, 100); print length $b'`
	heard := make(chan string, 1)
	go func() {
		out, _ := s.sh(machine.Bob, listen)
		heard <- out
	}()
	out, err := s.sh(machine.Alice, "until [ -e /run/bob/fake.ready ]; do sleep 0.05; done; bailiwick --socket /run/bob/fake.sock whoami")
	if err == nil || !strings.Contains(out, "another account") {
		t.Errorf("a socket of bob: %v %s", err, out)
	}
	if got := strings.TrimSpace(<-heard); got != "0" {
		t.Errorf("bob heard %q bytes", got)
	}
}
