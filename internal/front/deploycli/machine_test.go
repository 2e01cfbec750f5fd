package deploycli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/packaging"
)

// deployProgram is where a machine of a test has bailiwick-deploy.
const deployProgram = "/usr/local/bin/bailiwick-deploy"

// packaged returns a machine as the package leaves it: with this program, accounts and
// directories to come.
func packaged(t *testing.T) *machine.Machine {
	t.Helper()
	m := machine.New(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	m.MkdirAll("/usr/local/bin", 0, 0, 0o755)
	m.Write(deployProgram, string(b), 0, 0, 0o755)
	for _, kind := range []string{"sysusers", "tmpfiles"} {
		b, err := packaging.Systemd.ReadFile("systemd/" + kind + ".conf")
		if err != nil {
			t.Fatal(err)
		}
		m.MkdirAll("/etc/"+kind+".d", 0, 0, 0o755)
		m.Write("/etc/"+kind+".d/bailiwick.conf", string(b), 0, 0, 0o644)
	}
	m.Write("/etc/shadow", "", 0, 0, 0o600)
	m.Write("/etc/gshadow", "", 0, 0, 0o600)
	for name, uid := range people() {
		for _, verb := range [][]string{{"key", "create"}, {"operator", "keygen"}} {
			if out, err := m.Run(uid, append([]string{deployProgram}, append(verb, "--insecure-unencrypted", "--name", name)...)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	m.Write("/etc/answers.yaml", `version: 1
deploy: {threshold: 2, keys: [/home/alice/.config/bailiwick/deploy.key.pub, /home/bob/.config/bailiwick/deploy.key.pub]}
operators:
  threshold: 2
  keys:
    - {file: /home/alice/.config/bailiwick/operator.key.pub, principal: "local:alice"}
    - {file: /home/bob/.config/bailiwick/operator.key.pub, principal: "local:bob"}
login: {issuer: "https://id.example.com/team", client: bailiwick}
members: [alice, bob]
`, 0, 0, 0o600)
	return m
}

func people() map[string]int { return map[string]int{"alice": machine.Alice, "bob": machine.Bob} }

func setup(m *machine.Machine) (string, error) {
	return m.Run(machine.Root, deployProgram, "setup", "--from", "/etc/answers.yaml", "--yes")
}

// wantSetUp checks what setup leaves.
func wantSetUp(t *testing.T, m *machine.Machine) {
	t.Helper()
	out, err := m.Run(machine.Root, "sh", "-c", `cd /; stat -c '%n %U:%G %a' etc/bailiwick/* var/lib/bailiwick-launch/* var/lib/bailiwick-catalog/* var/lib/bailiwick-catalog/catalog/blobs; id -Gn alice bob 2>&1`)
	const want = `etc/bailiwick/operators.json root:root 644
etc/bailiwick/secrets.pub root:root 644
etc/bailiwick/service.yaml root:root 644
etc/bailiwick/trust.json root:root 644
var/lib/bailiwick-launch/identity root:root 600
var/lib/bailiwick-launch/version root:root 644
var/lib/bailiwick-catalog/catalog root:bailiwick-deploy 2775
var/lib/bailiwick-catalog/catalog.lock root:bailiwick-deploy 660
var/lib/bailiwick-catalog/catalog/blobs root:bailiwick-deploy 2775
`
	if !strings.HasPrefix(out, want) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A machine is set up once, from a file or by questions; then two people of the group
// publish a catalog together, and no one of them alone.
func TestAMachineIsSetUpOnceAndItsPeoplePublish(t *testing.T) {
	m := packaged(t)
	if out, err := m.Run(machine.Alice, deployProgram, "setup", "--from", "/etc/answers.yaml", "--yes"); err == nil || !strings.Contains(out, "sudo") {
		t.Errorf("an account other than root: %v\n%s", err, out)
	}
	out, err := setup(m)
	if err != nil || !strings.Contains(out, "a catalog needs 2 of these signatures:") {
		t.Fatalf("%v\n%s", err, out)
	}
	wantSetUp(t, m)
	if out, err := setup(m); err == nil || !strings.Contains(out, "this machine is set up: /etc/bailiwick/trust.json exists") {
		t.Errorf("a second time: %v\n%s", err, out)
	}
	if out, err := m.Run(machine.Alice, deployProgram, "init", "/home/alice/m", "--insecure-unencrypted"); err != nil || strings.Contains(out, "made    trust root") {
		t.Fatalf("%v\n%s", err, out)
	}
	apply := []string{deployProgram, "catalog", "apply", "--file", "/home/alice/m/bailiwick.yaml", "--reason", "first"}
	if out, err := m.Run(machine.Alice, append([]string{"sh", "-c", `umask 077; exec "$@"`, "sh"}, apply...)...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := m.Run(machine.Bob, "sh", "-c", "umask 077; exec "+deployProgram+" catalog sign"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, uid := range []int{machine.Alice, machine.Service} { // the service reads it
		if out, err := m.Run(uid, deployProgram, "catalog", "verify"); err != nil {
			t.Errorf("uid %d: %v\n%s", uid, err, out)
		}
	}
	// The service's account writes neither catalog nor trust.
	for _, path := range []string{"/var/lib/bailiwick-catalog/catalog/index.json", "/var/lib/bailiwick-catalog/x", "/etc/bailiwick/trust.json", "/etc/bailiwick/x", "/var/lib/bailiwick-launch/x"} {
		if out, err := m.Run(machine.Service, "sh", "-c", "echo x >> "+path); err == nil {
			t.Errorf("the service's account wrote %s: %s", path, out)
		}
	}
	if out, err := m.Run(machine.Service, "sh", "-c", "echo x >> /var/lib/bailiwick/x"); err != nil {
		t.Errorf("positive control: %v %s", err, out)
	}
}

// Root lets keys sign and takes that back, unless the catalog in force needs them.
func TestTheTrustRootOfAMachineChanges(t *testing.T) {
	m := packaged(t)
	if out, err := setup(m); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	id := func(name string) string {
		out, err := m.Run(people()[name], deployProgram, "key", "show", "-o", "name")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(out)
	}
	publish := func(signers ...int) {
		t.Helper()
		argv := []string{deployProgram, "catalog", "apply", "--file", "/home/alice/m/bailiwick.yaml", "--reason", "again", "--replace-proposal"}
		for _, uid := range signers {
			if out, err := m.Run(uid, argv...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			argv = []string{deployProgram, "catalog", "sign"}
		}
	}
	if out, err := m.Run(machine.Alice, deployProgram, "init", "/home/alice/m", "--insecure-unencrypted"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	publish(machine.Alice, machine.Bob)
	root := func(args ...string) (string, error) {
		return m.Run(machine.Root, append([]string{deployProgram, "trust"}, args...)...)
	}
	for want, args := range map[string][]string{
		"threshold 2, want 1 to 1": {"remove", id("bob"), "--yes"},
		"has no key":               {"remove", "ed25519:00", "--yes"},
		"is a duplicate":           {"add", "/home/bob/.config/bailiwick/deploy.key.pub", "--yes"},
		"want the public half":     {"add", "/etc/passwd", "--yes"},
		"nothing was changed":      {"add", "/home/bob/.config/bailiwick/operator.key.pub"},
	} {
		if out, err := root(args...); err == nil || !strings.Contains(out, want) && !strings.Contains(out, "the input ended") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	if out, err := m.Run(machine.Alice, deployProgram, "trust", "add", "/home/bob/.config/bailiwick/operator.key.pub", "--yes"); err == nil || !strings.Contains(out, "sudo") {
		t.Errorf("by alice: %v\n%s", err, out)
	}
	// A third key, and a threshold that the catalog in force does not meet.
	third := "/home/bob/.config/bailiwick/operator.key.pub"
	if out, err := root("add", third, "--threshold", "3", "--yes"); err == nil || !strings.Contains(out, "would not verify") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := root("add", third, "--yes"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := root("remove", id("bob"), "--yes"); err == nil || !strings.Contains(out, "would not verify") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := root("remove", id("bob"), "--threshold", "1", "--yes"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := m.Run(machine.Service, deployProgram, "catalog", "verify"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := m.Run(machine.Bob, deployProgram, "trust", "show", "-o", "name"); err != nil || strings.Contains(out, id("bob")) || !strings.Contains(out, id("alice")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// The holders of the keys change them without root, by the threshold of the set in force. One of
// two changes nothing, nor does a stranger or a changed proposal; root can still replace trust.json.
//
// proves R-B5
func TestHoldersOfDeployKeysChangeThem(t *testing.T) {
	m := packaged(t)
	if out, err := setup(m); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(uid int, want string, args ...string) string {
		t.Helper()
		out, err := m.Run(uid, append([]string{deployProgram, "trust"}, args...)...)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%v, want %q: %v\n%s", args, want, err, out)
		}
		return out
	}
	ids := func(uid int) []string { return strings.Fields(run(uid, "", "show", "-o", "name")) }
	public, err := os.ReadFile(m.Path("/home/bob/.config/bailiwick/operator.key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	m.Write("/etc/third.pub", string(public), 0, 0, 0o644)
	const third, proposal = "/etc/third.pub", "/var/lib/bailiwick-catalog/catalog/deploy-keys.proposal"
	first := ids(machine.Alice)
	run(machine.Alice, "sudo, or with --sign", "add", third)
	if out := run(machine.Alice, "", "add", third, "--sign"); !strings.Contains(out, "signed by 1 of 2") || !strings.Contains(out, "+ ed25519:") {
		t.Error(out)
	}
	if out := run(machine.Alice, "", "sign"); !strings.Contains(out, "signed by 1 of 2") { // the same key counts once
		t.Error(out)
	}
	if now := ids(machine.Alice); len(now) != len(first) {
		t.Errorf("by one of two: %q", now)
	}
	run(machine.Bob, "is not in the set", "sign", "--key", "/home/bob/.config/bailiwick/operator.key")
	good, err := os.ReadFile(m.Path(proposal))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.Path(proposal), bytes.Replace(good, []byte(`"sig":"`), []byte(`"sig":"AAAA`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	run(machine.Bob, "signature", "sign")
	if err := os.WriteFile(m.Path(proposal), good, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run(machine.Bob, "", "sign"); !strings.Contains(out, "set 2 of the deploy keys is in force, signed by 2") {
		t.Error(out)
	}
	if out := run(machine.Service, "", "show"); !strings.Contains(out, "set 2 in force") || !strings.Contains(out, "2 of 3 must sign") {
		t.Error(out)
	}
	run(machine.Bob, "no set of deploy keys is proposed", "sign")
	run(machine.Root, "which set 2 replaced", "remove", slices.DeleteFunc(ids(machine.Alice), func(id string) bool { return slices.Contains(first, id) })[0], "--yes")
	run(machine.Root, "", "remove", first[0], "--yes") // root replaces trust.json, from the set in force
	if out := run(machine.Bob, "", "show"); !strings.Contains(out, "set 1 in force") || !strings.Contains(out, "2 of 2 must sign") {
		t.Error(out)
	}
}

// Questions lead to the same files as a file of answers, and without a yes to none.
func TestSetupAsks(t *testing.T) {
	m := packaged(t)
	ask := func(answers ...string) (string, error) {
		cmd := m.Command(t.Context(), machine.Root, deployProgram, "setup")
		cmd.Stdin = strings.NewReader(strings.Join(answers, "\n") + "\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	key := func(name, kind string) string { return "/home/" + name + "/.config/bailiwick/" + kind + ".key.pub" }
	answers := []string{
		key("alice", "deploy"), "/nowhere.pub", key("bob", "deploy"), "", "9", "2",
		key("alice", "operator"), "alice", key("alice", "operator"), "local:alice", key("bob", "operator"), "local:bob", "", "",
		"https://id.example.com/team", "bailiwick", "alice bob",
	}
	for _, given := range [][]string{append(answers, "no"), answers[:5]} {
		if out, err := ask(given...); err == nil || !strings.Contains(out, "nothing was ") {
			t.Errorf("%v\n%s", err, out)
		}
		if list, err := os.ReadDir(m.Path("/etc/bailiwick")); err != nil || len(list) > 0 {
			t.Errorf("written: %v, %v", list, err)
		}
	}
	out, err := ask(append(answers, "yes")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantSetUp(t, m)
	var root struct {
		Threshold int               `json:"threshold"`
		Keys      []json.RawMessage `json:"keys"`
	}
	b, err := os.ReadFile(m.Path("/etc/bailiwick/operators.json"))
	if err != nil || json.Unmarshal(b, &root) != nil || root.Threshold != 2 || len(root.Keys) != 2 {
		t.Errorf("%v\n%s", err, b)
	}
}

// A setup that is killed at any of its writes is completed by the next one, and the
// machine is no installation before.
//
// proves R-P8
func TestAKilledSetupIsRepeated(t *testing.T) {
	for n, killed := 1, true; killed; n++ {
		if n > 20 {
			t.Fatal("setup writes without end")
		}
		m := packaged(t)
		out, err := m.Run(machine.Root, "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=rename,renameat,renameat2,link,linkat",
			"-e", fmt.Sprintf("inject=rename,renameat,renameat2,link,linkat:signal=KILL:when=%d", n), deployProgram, "setup", "--from", "/etc/answers.yaml", "--yes")
		_, statErr := os.Stat(m.Path("/etc/bailiwick/trust.json"))
		if killed = err != nil; killed && !strings.Contains(err.Error()+out, "killed") && !strings.Contains(err.Error(), "137") {
			t.Fatalf("%d: %v\n%s", n, err, out)
		}
		if statErr != nil {
			if out, err := setup(m); err != nil {
				t.Errorf("killed at %d, then: %v\n%s", n, err, out)
			}
		}
		wantSetUp(t, m)
	}
}

// Where setup cannot write, or another account could change what it writes, it says so
// and leaves no installation; it succeeds once the cause is mended.
func TestSetupInTroubleLeavesNoInstallation(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, mend func(m *machine.Machine) error
		want        string
	}{
		"a full disk": {
			func(m *machine.Machine) error {
				m.Before = "mount -t tmpfs -o size=4k,mode=755 none /etc/bailiwick; echo x > /etc/bailiwick/fill"
				return os.MkdirAll(m.Path("/etc/bailiwick"), 0o755)
			},
			func(m *machine.Machine) error { m.Before = ""; return nil }, "no space left on device",
		},
		"a directory of another account": {
			func(m *machine.Machine) error {
				m.MkdirAll("/etc/bailiwick", machine.Bob, machine.Bob, 0o755)
				m.Before = "chown " + strconv.Itoa(machine.Bob) + " /etc/bailiwick; rm /etc/tmpfiles.d/bailiwick.conf; touch /etc/tmpfiles.d/bailiwick.conf"
				return nil
			},
			func(m *machine.Machine) error { m.Before = ""; return os.Chown(m.Path("/etc/bailiwick"), 0, 0) }, "want a directory of root",
		},
		"too few keys": {
			func(m *machine.Machine) error {
				return replaceIn(m.Path("/etc/answers.yaml"), "threshold: 2", "threshold: 3")
			},
			func(m *machine.Machine) error {
				return replaceIn(m.Path("/etc/answers.yaml"), "threshold: 3", "threshold: 2")
			}, "threshold 3",
		},
		"an unknown key": {
			func(m *machine.Machine) error { return replaceIn(m.Path("/etc/answers.yaml"), "members:", "member:") },
			func(m *machine.Machine) error { return replaceIn(m.Path("/etc/answers.yaml"), "member:", "members:") }, `members`,
		},
		"one key twice": {
			func(m *machine.Machine) error {
				return replaceIn(m.Path("/etc/answers.yaml"), "/home/bob/.config/bailiwick/deploy", "/home/alice/.config/bailiwick/deploy")
			},
			func(m *machine.Machine) error {
				return replaceIn(m.Path("/etc/answers.yaml"), ", /home/alice/.config/bailiwick/deploy", ", /home/bob/.config/bailiwick/deploy")
			}, "duplicate",
		},
		"the service as a member": {
			func(m *machine.Machine) error {
				return replaceIn(m.Path("/etc/answers.yaml"), "[alice, bob]", "[alice, bailiwick]")
			},
			func(m *machine.Machine) error {
				return replaceIn(m.Path("/etc/answers.yaml"), "[alice, bailiwick]", "[alice, bob]")
			}, "want the account of a person",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := packaged(t)
			if err := c.spoil(m); err != nil {
				t.Fatal(err)
			}
			if out, err := setup(m); err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v\n%s", err, out)
			}
			if _, err := os.Lstat(m.Path("/etc/bailiwick/trust.json")); err == nil {
				t.Error("the machine is an installation")
			}
			if err := c.mend(m); err != nil {
				t.Fatal(err)
			}
			if name == "a directory of another account" {
				b, err := packaging.Systemd.ReadFile("systemd/tmpfiles.conf")
				if err != nil {
					t.Fatal(err)
				}
				m.Write("/etc/tmpfiles.d/bailiwick.conf", string(b), 0, 0, 0o644)
			}
			if out, err := setup(m); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			wantSetUp(t, m)
		})
	}
}

func replaceIn(path, old, with string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(path), []byte(strings.ReplaceAll(string(b), old, with)), 0o600)
}
