package sourcefetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// The files of ssh in the jail.
const (
	keyFile   = ".ssh/key"
	hostsFile = ".ssh/known_hosts"
)

func sshFiles(req record.FetchRequest) []jail.File {
	return []jail.File{
		{Path: keyFile, Content: []byte(strings.TrimRight(req.Secret, "\n") + "\n")},
		{Path: hostsFile, Content: []byte(strings.Join(req.Source.KnownHosts, "\n") + "\n")},
	}
}

// knownAs is the name of a URL's server in known_hosts.
func knownAs(u *url.URL) string {
	if u.Port() != "" && u.Port() != "22" {
		return "[" + u.Hostname() + "]:" + u.Port()
	}
	return u.Hostname()
}

// sshCommand is ssh without configuration, agent, or any key but the one given, and with
// the keys of the server that the source names for host.
func sshCommand(host string) string {
	args := []string{"ssh", "-F", "/dev/null", "-a", "-x", "-i", jail.HomeDir + "/" + keyFile}
	for _, o := range []string{
		"BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "PreferredAuthentications=publickey", "StrictHostKeyChecking=yes",
		"UserKnownHostsFile=" + jail.HomeDir + "/" + hostsFile, "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no", "CheckHostIP=no", "VerifyHostKeyDNS=no",
		"HostKeyAlias=" + host, "ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes", "PermitLocalCommand=no", "LogLevel=ERROR", "ConnectTimeout=30",
	} {
		args = append(args, "-o", "'"+o+"'") // git runs it by a shell; no value has a quote
	}
	return strings.Join(args, " ")
}

// explain says what a failed git or ssh means.
func (s *session) explain(ctx context.Context, said string) error {
	user, secret := userOf(s.request.Source), s.request.Source.Secret
	switch {
	case strings.Contains(said, "Host key verification failed"):
		line := "nothing, so it has no key that ssh knows"
		if offered := s.offeredKey(ctx); offered != "" {
			line = strconv.Quote(offered)
		}
		return fmt.Errorf("the server has none of the keys in knownHosts for %s. It offers %s. If that is the key that the host publishes, add it to knownHosts; otherwise another machine may be impersonating the server", s.host, line)
	case strings.Contains(said, "Permission denied (publickey"):
		return fmt.Errorf("the server does not accept secret %q as the key of user %s", secret, user)
	case strings.Contains(said, "cannot run ssh"):
		return errors.New("the service's machine has no ssh: install openssh-client")
	case strings.Contains(said, "not our ref"), strings.Contains(said, "unadvertised object"):
		return errors.New("the server has no such commit, or gives out branches and tags only")
	}
	return fmt.Errorf("git: %s", said)
}

// offeredKey returns a line of known_hosts for the key that the server has.
func (s *session) offeredKey(ctx context.Context) string {
	out := &cuttext.Head{Most: maxOutput}
	_, err := s.jail.Run(ctx, jail.Command{
		Argv: []string{"ssh-keyscan", "-T", "10", "-t", "ed25519,ecdsa,rsa", "-p", strconv.Itoa(jail.ListenPort), "127.0.0.1"},
		Env:  s.env, Stdout: out,
	})
	if err != nil {
		return ""
	}
	lines := strings.Split(string(out.Bytes()), "\n")
	slices.SortFunc(lines, func(a, b string) int { return len(a) - len(b) }) // the shortest is that of ed25519
	for _, line := range lines {
		if f := strings.Fields(line); len(f) == 3 && f[0][0] == '[' {
			return s.host + " " + f[1] + " " + f[2]
		}
	}
	return ""
}

// maxStreams is how many connections a fetch may make.
const maxStreams = 8

// stream connects what the jail connects to, with one host and port.
type stream struct {
	listener net.Listener
	stop     context.CancelFunc
	all      sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

func newStream(ctx context.Context, l net.Listener, dial egress.DialFunc, to string) *stream {
	ctx, stop := context.WithCancel(ctx)
	s := &stream{listener: l, stop: stop}
	s.all.Go(func() {
		for range maxStreams {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() {
				defer c.Close() //nolint:errcheck // it has ended
				if err := pass(ctx, c, dial, to); err != nil {
					s.fail(err)
				}
			})
		}
		_ = l.Close()
	})
	return s
}

// pass connects c and the server until either closes.
func pass(ctx context.Context, c net.Conn, dial egress.DialFunc, to string) error {
	server, err := dial(ctx, "tcp", to)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _, _ = server.Close(), c.Close() })
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(server, c)
		closeWrite(server)
	}()
	n, _ := io.Copy(c, io.LimitReader(server, maxBytes)) // what breaks off, git reports
	_, _ = server.Close(), c.Close()
	<-sent
	if n == maxBytes {
		return fmt.Errorf("%s sent more than %d bytes", to, int64(maxBytes))
	}
	return nil
}

func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stream) close() {
	s.stop()
	_ = s.listener.Close()
	s.all.Wait()
}
