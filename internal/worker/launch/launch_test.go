package launch

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

func openStore(t testing.TB, dir string) *blob.Store {
	t.Helper()
	s, err := blob.Open(blob.Config{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The attacker has the service's key. He starts no attempt that exceeds what humans
// defined, in any member of the manifest. The control is the manifest unchanged.
//
// takeover system, service account: no define, widen
//
// proves R-D2, R-B5, R-P4
func TestNoSignedManifestExceedsTheCatalog(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		want   string
		change func(m *record.Manifest)
	}{
		"control":        {"", func(*record.Manifest) {}},
		"another nonce":  {"", func(m *record.Manifest) { m.Nonce = strings.Repeat("1", 32) }},
		"lower limits":   {"", func(m *record.Manifest) { m.Limits.Timeout /= 2 }},
		"expired":        {"expired at", func(m *record.Manifest) { m.Expires = w.now.UTC() }},
		"not yet valid":  {"is not valid before", func(m *record.Manifest) { m.NotBefore = w.now.UTC().Add(time.Second) }},
		"valid too long": {"more than 15m0s from now", func(m *record.Manifest) { m.Expires = w.now.UTC().Add(time.Hour) }},
		"agent":          {"agent or model differs", func(m *record.Manifest) { m.Agent = "codex" }},
		"model":          {"agent or model differs", func(m *record.Manifest) { m.Model = "large" }},
		"role":           {"is not pinned", func(m *record.Manifest) { m.Role = "quality" }},
		"tier":           {"agent or model differs", func(m *record.Manifest) { m.Tier = api.Reversible }},
		"ceiling":        {"is above mode guarded", func(m *record.Manifest) { m.Ceiling = api.Irreversible }},
		"level":          {"isolation", func(m *record.Manifest) { m.Level = "none" }},
		"target":         {"is not pinned", func(m *record.Manifest) { m.Target = "other" }},
		"subagent":       {"is not pinned", func(m *record.Manifest) { m.Subagent = "ship" }},
		"capability":     {"is not pinned", func(m *record.Manifest) { m.Capabilities = []api.Name{"x"} }},
		"timeout":        {"limit timeout", func(m *record.Manifest) { m.Limits.Timeout *= 2 }},
		"memory":         {"limit memory", func(m *record.Manifest) { m.Limits.Memory *= 2 }},
		"verify time":    {"time of verify", func(m *record.Manifest) { m.VerifyTime = 1 }},
		"drain":          {"outstanding answers", func(m *record.Manifest) { m.Drain = 1 }},
		"host":           {"egress", func(m *record.Manifest) { m.Egress = append(m.Egress, "evil.example.com:443") }},
		"no host":        {"egress", func(m *record.Manifest) { m.Egress = []string{} }},
		"endpoint":       {"is not pinned", func(m *record.Manifest) { m.Endpoint = &api.ModelUse{Name: "x", Level: "small", ID: "x"} }},
		"secret's ref":   {"secrets differ", func(m *record.Manifest) { m.Secrets[0].Ref = "file:other" }},
		"secret's use":   {"secrets differ", func(m *record.Manifest) { m.Secrets[0].Use = api.SecretBrokered }},
		"no secret":      {"does not name", func(m *record.Manifest) { m.Secrets = nil }},
		"tool":           {"is not pinned", func(m *record.Manifest) { m.Tools = []api.Name{"db"} }},
		"pin":            {"manifest: pins subagent/edit", func(m *record.Manifest) { m.Artifacts[0].Digest = api.DigestOf(nil) }},
		"revision":       {"is revision 1, not revision 2", func(m *record.Manifest) { m.Revision = 2 }},
		"no revision":    {"blob", func(m *record.Manifest) { m.RevisionDigest = api.DigestOf(nil) }},
		"dispatch":       {"dispatch id", func(m *record.Manifest) { m.ID = "../../etc" }},
	} {
		t.Run(name, func(t *testing.T) {
			m := clonePins(w.manifest("edit", "token"))
			a := w.attempt(m)
			c.change(&m)
			a.Manifest = w.sign(m, w.key)
			said, err := w.start(w.launcher(), a)
			if c.want == "" {
				if want := "--attempt " + w.dirs.Dispatch(m.ID, 1) + " --manifest " + string(api.DigestOf(a.Manifest)) + "\n{}\n"; err != nil || said != want {
					t.Errorf("%q, %v, want %q", said, err, want)
				}
				return
			}
			code := api.CodeIntegrity
			if name == "expired" { // no sign that anybody changed it
				code = api.CodeConflict
			}
			refused(t, err, code, c.want)
			if said, _ := os.ReadFile(a.Log.Name()); len(said) > 0 {
				t.Errorf("the worker was started: %s", said)
			}
		})
	}
}

// takeover system, service account: no define
//
// proves R-D2, R-P4
func TestOnlyTheServicesManifestOfASignedRevisionStarts(t *testing.T) {
	w := newWorld(t)
	l := w.launcher()
	a := w.attempt(w.manifest("edit"))
	if _, err := w.start(l, a); err != nil {
		t.Fatalf("control: %v", err)
	}
	m := w.manifest("edit")
	other := w.attempt(m)
	other.Manifest = w.sign(m, newKey(t))
	_, err := w.start(l, other)
	refused(t, err, api.CodeIntegrity, "not in the trust root")
	other.Manifest = []byte("{}")
	_, err = w.start(l, other)
	refused(t, err, api.CodeIntegrity, "manifest")
	other.Manifest = []byte(strings.Repeat(" ", MaxManifest+1))
	_, err = w.start(l, other)
	refused(t, err, api.CodeIntegrity, "larger than")

	// Another trust root, of the attacker, counts as soon as it is in force: the one kept does not.
	must(t, os.Remove(w.dirs.TrustRoot()))
	must(t, seal.CreateTrustRoot(w.dirs.TrustRoot(), seal.RootOf(seal.KeyOf(newKey(t), "eve"))))
	_, err = w.start(l, w.attempt(w.manifest("edit")))
	refused(t, err, api.CodeIntegrity, "not in the trust root")
}

// An attempt whose worker never began may start again, after a kill at any point; any other
// may not.
//
// takeover system, service account: no replay
//
// proves R-O6, R-P4
func TestAnAttemptRunsOnce(t *testing.T) {
	w := newWorld(t)
	m := w.manifest("edit")
	a := w.attempt(m)
	for range 2 { // it ends without having proceeded
		if _, err := w.start(w.launcher(), a); err != nil {
			t.Fatal(err)
		}
	}
	again := m
	again.Nonce = strings.Repeat("2", 32)
	same := *a
	same.Manifest = w.sign(again, w.key)
	_, err := w.start(w.launcher(), &same)
	refused(t, err, api.CodeIntegrity, "was started with manifest")

	end := touch(t, a, "stay")
	p, err := w.launcher().Worker(t.Context(), a)
	must(t, err)
	_, err = w.start(w.launcher(), a)
	refused(t, err, api.CodeConflict, "its worker runs")
	end()
	must(t, p.Wait())

	touch(t, a, "proceed")
	if _, err := w.start(w.launcher(), a); err != nil {
		t.Fatal(err)
	}
	_, err = w.start(w.launcher(), a)
	refused(t, err, api.CodeIntegrity, "its worker has begun")

	// What a kill within the write leaves is no start.
	file := filepath.Join(w.dirs.LauncherState(), "started", string(m.ID)+"-1")
	must(t, os.WriteFile(file, []byte(api.DigestOf(a.Manifest))[:20], 0o600))
	if _, err := w.start(w.launcher(), a); err != nil {
		t.Errorf("after a torn write: %v", err)
	}
	// It is forgotten once its manifest has long expired.
	w.now = w.now.Add(2 * keepStarted)
	_, err = w.start(w.launcher(), w.attempt(w.manifest("edit")))
	must(t, err)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is remembered: %v", err)
	}
	_, err = w.start(w.launcher(), a)
	refused(t, err, api.CodeConflict, "expired")
}

// Only descriptors of the right kind, of the service's account, are handed to a worker. The
// control is the attempt unchanged.
func TestDescriptorsAreWhatTheyAreToBe(t *testing.T) {
	w := newWorld(t)
	open := func(path string, flags int) *os.File {
		f, err := os.OpenFile(path, flags, 0o600)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	must(t, os.Mkdir(foreign, 0o700))
	must(t, os.Chown(foreign, 12345, 12345))
	for name, c := range map[string]struct {
		want   string
		change func(a *Attempt)
	}{
		"control":                  {"", func(*Attempt) {}},
		"no directory":             {"directory of the attempt: its descriptor is missing", func(a *Attempt) { a.Dir = nil }},
		"directory is a file":      {"want a directory", func(a *Attempt) { a.Dir = a.Log }},
		"directory of another":     {"it belongs to uid 12345", func(a *Attempt) { a.Dir = open(foreign, os.O_RDONLY) }},
		"directory open to others": {"mode 0700", func(a *Attempt) { must(t, a.Dir.Chmod(0o755)) }},
		"socket is a file":         {"control socket of the attempt", func(a *Attempt) { a.Control = a.Log }},
		"socket does not listen":   {"that listens", func(a *Attempt) { a.Control = pair(t) }},
		"log is not appended":      {"for appending", func(a *Attempt) { a.Log = open(a.Log.Name(), os.O_WRONLY) }},
		"log is a device":          {"belongs to|appending", func(a *Attempt) { a.Log = open("/dev/null", os.O_WRONLY|os.O_APPEND) }},
		"log is readable also":     {"for appending", func(a *Attempt) { a.Log = open(a.Log.Name(), os.O_RDWR|os.O_APPEND) }},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.attempt(w.manifest("edit"))
			log := a.Log.Name()
			c.change(a)
			_, err := w.launcher().Worker(t.Context(), a)
			if c.want == "" {
				must(t, err)
				return
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if err != nil && strings.Contains(err.Error(), want) {
					return
				}
			}
			refused(t, err, api.CodeInvalid, c.want)
			if said, _ := os.ReadFile(log); len(said) > 0 { //nolint:gosec // G304: of this test
				t.Errorf("the worker was started: %s", said)
			}
		})
	}
}

// pair returns a connected socket.
func pair(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	defer l.Close() //nolint:errcheck // of a test
	c, err := net.Dial("unix", l.Addr().String())
	must(t, err)
	defer c.Close() //nolint:errcheck // likewise
	f, err := c.(*net.UnixConn).File()
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}
