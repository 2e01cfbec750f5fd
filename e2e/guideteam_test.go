package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

// teamFlag has the documents of a team executed on this machine, which it changes for good.
var teamFlag = flag.Bool("team", false, "execute docs/guide-team.md and docs/operations-system.md on this machine, with the package of -prebuilt: in the virtual machine of make vm")

// teamGuides are the documents about a machine of a team. The second one continues where
// the first one ends.
func teamGuides() []string { return []string{"../docs/guide-team.md", "../docs/operations-system.md"} }

// teamWorld is a machine of a team and what is around it: a network, an identity provider.
type teamWorld struct {
	*world
	internet *internet
	command  func(ctx context.Context, argv ...string) *exec.Cmd // as root of the machine
}

// Each command of the guide runs as it is written, by root of a machine: in the virtual
// machine of make vm that machine, with systemd, apt and the package; elsewhere one of
// testkit/machine, where e2e/testdata/team has what stands in for them.
func TestTheTeamsGuideRuns(t *testing.T) {
	t.Parallel()
	var all []guideStep
	ends := map[string]int{}
	for _, file := range teamGuides() {
		text, err := os.ReadFile(file)
		must(t, err)
		steps, skipped, err := parseGuide(strings.Split(string(text), "\n"))
		if err != nil || skipped > 0 || len(steps) < 8 {
			t.Fatalf("%s: %d steps, %d left out, %v", file, len(steps), skipped, err)
		}
		all = append(all, steps...)
		ends[file] = len(all)
	}
	w := newTeamWorld(t)
	done := make(chan struct{})
	go w.confirmLogins(all, done)
	outputs := w.shell(all)
	close(done)
	from := 0
	for _, file := range teamGuides() {
		w.compare(file, all[from:ends[file]], outputs[from:ends[file]])
		from = ends[file]
	}
}

// compare reports each command whose output is another one than the document's.
func (w *world) compare(file string, steps []guideStep, outputs [][]string) {
	w.t.Helper()
	for i, s := range steps {
		got := outputs[i]
		if !s.checked && len(got) > 0 && exitStatus(got[len(got)-1]) {
			w.t.Errorf("%s:%d: the block fails:\n%s", file, s.line+1, strings.Join(got, "\n"))
		} else if s.checked && !outputMatches(s.want, got) {
			w.t.Errorf("%s:%d: $ %s\nprints\n%s\nbut the document shows\n%s", file, s.line+1, s.script, strings.Join(got, "\n"), strings.Join(s.want, "\n"))
		}
	}
}

// newTeamWorld makes what the first table of the guide says a reader has.
func newTeamWorld(t *testing.T) *teamWorld {
	t.Helper()
	w := &teamWorld{world: newGuideWorld(t)}
	if *teamFlag {
		w.internet = internetOf(t, mainland(t), "/etc")
		w.command = func(ctx context.Context, argv ...string) *exec.Cmd {
			return exec.CommandContext(ctx, argv[0], argv[1:]...)
		}
		packages, err := filepath.Glob(filepath.Join(prebuilt.Dir(), "dist/*.deb"))
		if err != nil || len(packages) != 1 {
			t.Fatalf("packages %q, %v", packages, err)
		}
		must(t, linkOrCopy(packages[0], w.path("home", filepath.Base(packages[0]))))
	} else {
		m := machine.New(t)
		w.bare(m)
		w.internet = internetOf(t, newIsland(t), m.Path("/etc"))
		w.command = func(ctx context.Context, argv ...string) *exec.Cmd { return m.Command(ctx, machine.Root, argv...) }
		w.write("home/bailiwick_0_amd64.deb", "", 0o644)
	}
	w.net = w.internet.island
	t.Cleanup(func() { w.net = nil })
	w.bash = func(ctx context.Context) *exec.Cmd { return w.command(ctx, "bash", "--noprofile", "--norc") }
	w.env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"),
		"LC_ALL=C.UTF-8", "NO_COLOR=1", "DEBIAN_FRONTEND=noninteractive",
	}

	users, list := []string{`"u1001": {"password": "p", "groups": ["eng"]}`}, ""
	for n := 1; n <= 40; n++ {
		name := fmt.Sprintf("dev%02d", n)
		if n == 40 {
			name = "erin"
		}
		list += fmt.Sprintf("%s,u%d\n", name, 2000+n)
		users = append(users, fmt.Sprintf(`"u%d": {"password": "p", "groups": ["eng"]}`, 2000+n))
	}
	w.write("home/people.csv", list, 0o644)
	w.internet.locate("bailiwick.example.com")
	w.issue("bailiwick.example.com", "home/cert.pem", "home/key.pem")
	w.provide("id.example.com", "{"+strings.Join(users, ", ")+"}")
	return w
}

// bare makes a machine of testkit/machine one without people, an installation or systemd.
func (w *teamWorld) bare(m *machine.Machine) {
	w.t.Helper()
	m.Own = []string{"--pid", "--fork", "--kill-child", "--mount-proc"} // so that every unit ends with it
	for _, name := range []string{"login.defs", "pam.d", "security", "sudoers", "sudoers.d", "skel", "default", "profile", "ld.so.cache", "localtime"} {
		if out, err := exec.CommandContext(w.t.Context(), "cp", "-a", "/etc/"+name, m.Path("/etc")).CombinedOutput(); err != nil {
			w.t.Fatalf("cp: %v: %s", err, out)
		}
	}
	for _, home := range []string{"alice", "bob", "carol"} {
		must(w.t, os.Remove(m.Path("/home/"+home)))
	}
	m.Write("/etc/passwd", "root:x:0:0::/root:/bin/bash\n", 0, 0, 0o644)
	m.Write("/etc/group", "root:x:0:\n", 0, 0, 0o644)
	m.Write("/etc/shadow", "root:*:20000:0:99999:7:::\n", 0, 0, 0o600)
	m.Write("/etc/gshadow", "root:*::\n", 0, 0, 0o600)
	m.MkdirAll("/etc/bailiwick", 0, 0, 0o755)
	(&team{Machine: m, t: w.t.(*testing.T)}).uids()
	m.MkdirAll("/run/systemd/system", 0, 0, 0o755)
	m.MkdirAll("/usr/local/sbin", 0, 0, 0o755)
	must(w.t, os.Symlink(bin, m.Path("/usr/local/built")))
	files, err := filepath.Glob("testdata/team/*")
	if err != nil || len(files) < 4 {
		w.t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		m.Write("/usr/local/sbin/"+filepath.Base(file), readText(w.t.(*testing.T), file), 0, 0, 0o755)
	}
}

// issue writes a certificate for a name, and its key.
func (w *teamWorld) issue(name, certificate, key string) {
	w.t.Helper()
	c := w.internet.certificate(name)
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(w.t, err)
	w.write(certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})), 0o644)
	w.write(key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), 0o600)
}

// provide starts the identity provider of the team.
func (w *teamWorld) provide(name, users string) {
	w.t.Helper()
	program := filepath.Join(prebuilt.Dir(), "helpers/oidc-3.52.0-2")
	if prebuilt.Dir() == "" {
		program = succeed(w.t.(*testing.T), oidcProgram)
	}
	w.internet.locate(name)
	w.issue(name, "id.pem", "id.key")
	w.write("users.json", users, 0o644)
	cmd := w.command(w.t.Context(), program, name+":443", w.path("id.pem"), w.path("id.key"), w.path("users.json"))
	cmd.Dir = w.dir
	var said strings.Builder
	cmd.Stderr = &said
	must(w.t, w.net.start(cmd))
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range polling(time.Minute) {
		if resp, err := w.browser().Get("https://" + name + "/.well-known/openid-configuration"); err == nil {
			_ = resp.Body.Close()
			return
		}
	}
	w.t.Fatalf("the identity provider does not answer: %s", said.String())
}

// browser is one on another device.
func (w *teamWorld) browser() *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(w.internet.root)
	transport := w.net.transport()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		host, port, _ := strings.Cut(address, ":")
		return dial(ctx, network, w.internet.locate(host).String()+":"+port)
	}
	transport.TLSClientConfig, transport.DisableKeepAlives = &tls.Config{RootCAs: roots}, true //nolint:gosec // G402: the default minimum
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// confirmLogins is each person with a telephone: they confirm the code that their login prints.
func (w *teamWorld) confirmLogins(steps []guideStep, done <-chan struct{}) {
	confirmed := map[string]bool{}
	for {
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
		for i, s := range steps {
			b, err := os.ReadFile(w.path("out", fmt.Sprint(i)))
			m := userCode.FindSubmatch(b)
			if err != nil || m == nil || confirmed[string(m[1])] {
				continue
			}
			confirmed[string(m[1])] = true
			who := "u1001"
			if strings.Contains(s.script, "erin") {
				who = "u2040"
			}
			resp, err := w.browser().PostForm("https://id.example.com/device", url.Values{"user_code": {string(m[1])}, "username": {who}, "password": {"p"}})
			if err != nil {
				w.t.Errorf("the provider: %v", err)
				continue
			}
			if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
				w.t.Errorf("the provider: %d %s", resp.StatusCode, text)
			}
			_ = resp.Body.Close()
		}
	}
}
