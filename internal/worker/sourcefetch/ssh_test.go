package sourcefetch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// sshHost is a real sshd for this account, on loopback.
type sshHost struct {
	dir, address, user string
}

func keygen(t *testing.T, path string, more ...string) string {
	t.Helper()
	if out, err := exec.Command("ssh-keygen", append([]string{"-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path}, more...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return read(t, path+".pub")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func newSSHHost(t *testing.T) *sshHost {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &sshHost{dir: t.TempDir(), user: me.Username}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = free.Addr().String()
	_ = free.Close()
	keygen(t, s.at("host"))
	allowed := keygen(t, s.at("allowed"))
	_, port, _ := net.SplitHostPort(s.address)
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%s\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n",
		port, s.at("host"), s.at("authorized"))
	for name, text := range map[string]string{"config": config, "authorized": allowed + "\n"} {
		if err := os.WriteFile(s.at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", s.at("config"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = c.Close()
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.NewTimer(10 * time.Millisecond).C
	}
}

func (s *sshHost) at(name string) string { return filepath.Join(s.dir, name) }

// proves R-S4, R-T7, R-D8
func TestASourceBySSH(t *testing.T) {
	s, h := newSSHHost(t), newHost(t)
	commit := h.commit("team/app", "one", "1")
	key := read(t, s.at("allowed"))
	hostKey := strings.Join(strings.Fields(read(t, s.at("host.pub")))[:2], " ")
	c := newClient(t, map[string]string{"git.example.com:22": s.address, "git.example.com:2222": s.address})
	source := func(port, known string) api.Source {
		return api.Source{
			Name: "app", Repo: "ssh://git.example.com" + port + h.root + "/team/app", User: s.user, Secret: "key",
			KnownHosts: []string{known},
		}
	}
	good := source("", "git.example.com "+hostKey)
	c.must(good, key, "", commit, map[string]string{"one": "1"})
	next := h.commit("team/app", "two", "2")
	c.must(good, key, "main", next, map[string]string{"one": "1", "two": "2"})
	c = newClient(t, c.places)
	c.must(source(":2222", "[git.example.com]:2222 "+hostKey), key, "", next, map[string]string{"one": "1", "two": "2"})
	c = newClient(t, c.places)
	c.refused(source(":2222", "git.example.com "+hostKey), key, "", `It offers "[git.example.com]:2222 `+hostKey+`"`)
	c.refused(source("", "other.example.com "+hostKey), key, "", `It offers "git.example.com `+hostKey+`". If that is the key that the host publishes`)
	another := strings.Join(strings.Fields(keygen(t, s.at("another")))[:2], " ")
	c.refused(source("", "git.example.com "+another), key, "", "the server has none of the keys in knownHosts")
	c.refused(good, read(t, s.at("another")), "", `does not accept secret "key" as the key of user `+s.user)
	c.refused(good, "this is no key", "", "does not accept secret")
	gone := good
	gone.Repo += "-none"
	c.refused(gone, key, "", "git:")
	// The control: the same client, with the right key.
	c.must(good, key, "", next, map[string]string{"one": "1", "two": "2"})
	if out, err := exec.Command("grep", "-rF", strings.Split(key, "\n")[1], c.dirs.State).CombinedOutput(); err == nil {
		t.Errorf("the key is in the state: %s", out)
	}
	for _, address := range c.dialed {
		if c.places[address] == "" {
			t.Errorf("%s was dialed", address)
		}
	}
}
