package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// takenService is code of an attacker in the place of the service: it has that account, its
// key and its state, and speaks to the launcher.
type takenService struct {
	s    *team
	key  seal.Signer
	keys seal.History
}

// takeService ends the service, and takes its place.
func (s *team) takeService() *takenService {
	s.t.Helper()
	s.service.end()
	dir := s.t.TempDir()
	for _, name := range append(seal.HistoryFiles(s.Path("/var/lib/bailiwick")), s.Path("/var/lib/bailiwick/service.key")) {
		b, err := os.ReadFile(name)
		must(s.t, err)
		must(s.t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o600))
	}
	key, err := seal.OpenServiceKey(dir)
	must(s.t, err)
	keys, err := seal.LoadHistory(dir)
	must(s.t, err)
	return &takenService{s, key, keys}
}

// asAccount calls do on a thread of its own that has an account and nothing of root, for good.
func asAccount(uid int, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends
		id := uintptr(uid)
		for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, id, id, id}, {unix.SYS_SETRESUID, id, id, id}} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				panic(errno)
			}
		}
		do()
	}()
	<-done
}

// dial connects to the launcher as the account of the service.
func (a *takenService) dial() (conn *net.UnixConn) {
	a.s.t.Helper()
	var err error
	asAccount(machine.Service, func() {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: a.s.Path("/run/bailiwick-launch/launch.sock"), Net: "unix"})
	})
	must(a.s.t, err)
	return conn
}

// ask sends a request to the launcher.
func (a *takenService) ask(r launch.Request, files ...*os.File) (answer launch.Answer, handles []*os.File, err error) {
	r.V = launch.Version
	conn := a.dial()
	defer conn.Close()
	sent := unixframe.Write(conn, r, files...)
	if handles, err = unixframe.Read(conn, &answer, time.Minute); err != nil {
		return answer, nil, errors.Join(sent, err)
	}
	if answer.Error != nil {
		err = answer.Error
	}
	return answer, handles, err
}

// file makes a file or a directory of the service.
func (a *takenService) file(path string, flags int, mode os.FileMode) *os.File {
	t := a.s.t
	t.Helper()
	f, err := os.OpenFile(path, flags, mode)
	must(t, err)
	must(t, f.Chown(machine.Service, machine.Service))
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func (a *takenService) sign(m record.Manifest, by seal.Signer) []byte {
	t := a.s.t
	t.Helper()
	doc, err := canon.Marshal(m)
	must(t, err)
	envelope, err := seal.Sign(t.Context(), seal.Manifest, doc, by)
	must(t, err)
	return envelope
}

// offer is what a service sends to start an attempt.
type offer struct {
	r                 launch.Request
	dir, control, log *os.File
}

// offer prepares the attempt of a manifest as the service does.
func (a *takenService) offer(m record.Manifest, change func(*launch.Request)) offer {
	s, t := a.s, a.s.t
	t.Helper()
	dir := a.dir(m)
	if _, err := os.Stat(dir); err != nil {
		name := systemDirs().Dispatch(m.ID, m.Attempt)
		s.MkdirAll(filepath.Dir(name), machine.Service, machine.Service, 0o700)
		s.MkdirAll(name, machine.Service, machine.Service, 0o700)
	}
	o := offer{
		r:   launch.Request{Kind: launch.KindWorker, Manifest: a.sign(m, a.key), Keys: &a.keys},
		dir: a.file(dir, os.O_RDONLY, 0), log: a.file(filepath.Join(dir, record.WorkErrors), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600),
	}
	if change != nil {
		change(&o.r)
	}
	must(t, os.WriteFile(filepath.Join(dir, record.WorkManifest), o.r.Manifest, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, record.WorkInput), []byte("{}"), 0o600))
	for _, name := range []string{record.WorkManifest, record.WorkInput} {
		must(t, os.Chown(filepath.Join(dir, name), machine.Service, machine.Service))
	}
	through := fmt.Sprintf("/proc/self/fd/%d/%s", o.dir.Fd(), record.WorkSocket)
	_ = os.Remove(through)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: through, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	defer l.Close()
	must(t, os.Chown(through, machine.Service, machine.Service))
	o.control, err = l.File()
	must(t, err)
	t.Cleanup(func() { _ = o.control.Close() })
	must(t, unix.Fchown(int(o.control.Fd()), machine.Service, machine.Service)) //nolint:gosec // G115: a descriptor
	return o
}

// start asks for the worker of a manifest as the service does, after a change of the request.
func (a *takenService) start(m record.Manifest, change func(*launch.Request)) (launch.Answer, *os.File, error) {
	o := a.offer(m, change)
	return a.send(o.r, o.dir, o.control, o.log)
}

// send asks for a worker with descriptors.
func (a *takenService) send(r launch.Request, files ...*os.File) (launch.Answer, *os.File, error) {
	answer, handles, err := a.ask(r, files...)
	if err != nil {
		return answer, nil, err
	}
	a.s.t.Cleanup(func() { _ = handles[0].Close() })
	return answer, handles[0], nil
}

func systemDirs() api.Dirs { return api.SystemDirs(func(string) string { return "/" }) }

// dir is where the directory of an attempt is for the test.
func (a *takenService) dir(m record.Manifest) string {
	return a.s.Path(systemDirs().Dispatch(m.ID, m.Attempt))
}

// stored returns the manifest of a dispatch as the service kept it.
func (a *takenService) stored(digest api.Digest) (m record.Manifest) {
	t := a.s.t
	t.Helper()
	envelope, err := os.ReadFile(a.s.Path("/var/lib/bailiwick/blobs/blobs/sha256/" + digest.Hex()))
	must(t, err)
	payload, err := seal.Payload(envelope, seal.Manifest)
	must(t, err)
	must(t, canon.DecodeExact(payload, &m))
	return m
}

// next returns a genuine manifest for a new dispatch.
func next(genuine record.Manifest) record.Manifest {
	m := genuine
	m.Artifacts, m.Secrets, m.Egress = slices.Clone(m.Artifacts), slices.Clone(m.Secrets), slices.Clone(m.Egress)
	now := time.Now().UTC()
	m.ID, m.NotBefore, m.Expires = api.NewDispatchID(now), now.Add(-time.Second).Truncate(time.Second), now.Add(5*time.Minute).Truncate(time.Second)
	return m
}

// end ends an attempt.
func (a *takenService) end(m record.Manifest) {
	a.s.t.Helper()
	_, _, err := a.ask(launch.Request{Kind: launch.KindEnd, Attempt: &launch.Running{Dispatch: m.ID, Attempt: m.Attempt}})
	must(a.s.t, err)
}

// proceed lets a worker have its effect, as the service does once the start is in its log.
func (a *takenService) proceed(m record.Manifest) net.Conn {
	t := a.s.t
	t.Helper()
	at, err := os.Open(a.dir(m))
	must(t, err)
	defer at.Close()
	var conn net.Conn
	asAccount(machine.Service, func() {
		conn, err = net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), record.WorkSocket))
	})
	must(t, err)
	_, err = conn.Write([]byte("{\"proceed\":true}\n"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// An attacker has the account of the service, its key and all of its state, and speaks to
// the launcher in its place. He starts what people signed, and nothing else.
//
// takeover system, service account: no define, widen, replay, read a secret
// takeover system, service account: yes start, read work
//
// proves R-B5, R-D2, R-D8, R-S2
func TestATakenOverServiceStartsOnlyWhatPeopleSigned(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	w := s.world(machine.Alice)
	const value = "correct-horse-battery-staple"
	w.manifest(
		subagent{name: "work", script: "echo \"$TOKEN\" | tr a-z b-za > .seen; echo begun; until [ -e never ]; do sleep 1; done"},
		subagent{name: "other", script: "echo other"},
	)
	w.replace(manifest, "envs:\n", "secrets:\n  - {name: token, ref: \"file:token\"}\n  - {name: second, ref: \"file:second\"}\nenvs:\n  - {name: tokens, secrets: {TOKEN: {secret: token, exposed: true}}, egress: [\"api.example.com:443\"]}\n")
	w.replace(manifest, "envs: [colours]", "envs: [colours, tokens]")
	w.publish("reversible")
	for name, v := range map[string]string{"token": value, "second": "another-value-of-bob"} {
		if d := w.setSecret(name, v); d.status != 0 {
			t.Fatal(d)
		}
	}
	id := w.detached("work", "--env", "tokens")
	w.awaitLog(id, "begun")
	w.must("dispatch", "cancel", id)
	w.awaitEnd(id)
	stored := w.show(id).Manifest

	a := s.takeService()
	genuine := a.stored(stored)
	files, err := filepath.Glob(s.Path("/var/lib/bailiwick/secrets/*.age"))
	if err != nil || len(files) != 2 {
		t.Fatalf("sealed values: %q, %v", files, err)
	}
	var values [2][]byte // the first becomes the one of secret token
	for i := range files {
		values[i], err = os.ReadFile(files[i])
		must(t, err)
	}
	next := func() record.Manifest { return next(genuine) }
	give := func(r *launch.Request) { r.Sealed = map[api.Name][]byte{"token": values[0]} }
	refused := func(what, want string, m record.Manifest, change func(*launch.Request)) {
		t.Helper()
		_, _, err := a.start(m, func(r *launch.Request) {
			give(r)
			if change != nil {
				change(r)
			}
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}

	stranger, err := seal.NewEphemeral()
	must(t, err)
	t.Log("define")
	for what, c := range map[string]struct {
		want   string
		change func(m *record.Manifest)
	}{
		"an unsigned revision":    {"blob", func(m *record.Manifest) { m.RevisionDigest = api.DigestOf([]byte("mine")) }},
		"another number":          {"is revision", func(m *record.Manifest) { m.Revision++ }},
		"another script":          {"pins", func(m *record.Manifest) { m.Artifacts[0].Digest = api.DigestOf([]byte("mine")) }},
		"another subagent's name": {"", func(m *record.Manifest) { m.Subagent = "mine" }},
		"another agent":           {"agent or model differs", func(m *record.Manifest) { m.Agent = "codex" }},
		"another capability":      {"is not pinned", func(m *record.Manifest) { m.Capabilities = []api.Name{"other"} }},
		// widen
		"memory":            {"limit memory", func(m *record.Manifest) { m.Limits.Memory *= 2 }},
		"time":              {"limit timeout", func(m *record.Manifest) { m.Limits.Timeout *= 2 }},
		"processes":         {"limit processes", func(m *record.Manifest) { m.Limits.Processes *= 2 }},
		"a host":            {"egress", func(m *record.Manifest) { m.Egress = append(m.Egress, "evil.example.com:443") }},
		"a tool server":     {"is not pinned", func(m *record.Manifest) { m.Tools = []api.Name{"warehouse"} }},
		"another reference": {"secrets differ", func(m *record.Manifest) { m.Secrets[0].Ref = "file:second" }},
		"another use":       {"secrets differ", func(m *record.Manifest) { m.Secrets[0].Use = api.SecretBrokered }},
		"an env":            {"is not pinned", func(m *record.Manifest) { m.Envs = append(m.Envs, "colours") }},
		"a tier":            {"agent or model differs", func(m *record.Manifest) { m.Tier = api.Observe }},
		"a ceiling":         {"is above mode guarded", func(m *record.Manifest) { m.Ceiling = api.Irreversible }},
		"no jail":           {"isolation", func(m *record.Manifest) { m.Level = "none" }},
		"another target":    {"is not pinned", func(m *record.Manifest) { m.Target = "looking" }},
	} {
		m := next()
		c.change(&m)
		refused(what, c.want, m, nil)
	}
	refused("the attacker's own key", "not in the trust root", next(), func(r *launch.Request) {
		m := next()
		r.Manifest = a.sign(m, stranger)
	})
	refused("the attacker's own service", "but this launcher serves", next(), func(r *launch.Request) {
		m, own := next(), seal.NewHistory(seal.KeyOf(stranger, ""))
		r.Manifest, r.Keys = a.sign(m, stranger), &own
	})

	t.Log("read a secret: values go to the worker alone, and only those that operators set")
	first := next()
	if _, _, err := a.start(first, give); err == nil {
		a.end(first)
		values[0], values[1] = values[1], values[0]
	}
	refused("the value of another secret", "operators set", next(), nil)
	values[0], values[1] = values[1], values[0]
	refused("a value of its own", "operators set", next(), func(r *launch.Request) { r.Sealed["token"] = []byte("mine") })
	for what, script := range map[string]string{
		"the identity":              "cat /var/lib/bailiwick-launch/identity",
		"the launcher's memory":     "cat /proc/" + strconv.Itoa(s.launcher.cmd.Process.Pid) + "/environ",
		"scratch of workers":        "ls /var/lib/bailiwick-launch/scratch",
		"the launcher's set":        "touch /var/lib/bailiwick-launch/started/x",
		"a worker of its own":       filepath.Join(bin, "bailiwick-launch"),
		"another account, by a uid": "setpriv --reuid 0 true",
	} {
		if out, err := s.sh(machine.Service, script); err == nil {
			t.Errorf("%s: %s", what, out)
		}
	}

	t.Log("start: the control of all, what people signed")
	m := next()
	answer, handle, err := a.start(m, give)
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	conn := a.proceed(m)
	for lines := json.NewDecoder(conn); ; {
		var event record.WorkerMessage
		if err := lines.Decode(&event); err != nil {
			said, _ := os.ReadFile(filepath.Join(a.dir(m), record.WorkErrors))
			t.Fatalf("it began nothing: %v\n%s", err, said)
		}
		if event.Event == "log" {
			break
		}
	}
	t.Log("read a secret: nothing of the running worker gives its value, with its pidfd in hand")
	pid := strconv.Itoa(answer.PID)
	attacks := map[string]func() error{
		"its memory":      func() error { _, err := os.ReadFile("/proc/" + pid + "/auxv"); return err },
		"its environment": func() error { _, err := os.ReadFile("/proc/" + pid + "/environ"); return err },
		"its descriptors": func() error { _, err := os.ReadDir("/proc/" + pid + "/fd"); return err },
		"its root":        func() error { _, err := os.ReadDir("/proc/" + pid + "/root/run"); return err },
		"tracing":         func() error { return unix.PtraceSeize(answer.PID) },
		"a descriptor":    func() error { _, err := unix.PidfdGetfd(int(handle.Fd()), 5, 0); return err }, //nolint:gosec // G115: a descriptor
		"its namespaces":  func() error { return unix.Setns(int(handle.Fd()), unix.CLONE_NEWUSER) },       //nolint:gosec // G115: likewise
		"a signal for a core": func() error {
			return unix.PidfdSendSignal(int(handle.Fd()), unix.SIGABRT, nil, 0) //nolint:gosec // G115: likewise
		},
	}
	for what, attack := range attacks {
		var err error
		asAccount(machine.Service, func() { err = attack() })
		if err == nil {
			t.Errorf("%s: the service's account has it", what)
		}
	}
	for _, what := range []string{"its memory", "its environment", "its descriptors", "its root"} {
		if err := attacks[what](); err != nil {
			t.Errorf("control: root: %s: %v", what, err)
		}
	}
	if limits, err := os.ReadFile("/proc/" + pid + "/limits"); err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
		t.Errorf("a worker dumps core: %v\n%s", err, limits)
	}
	out := s.ok(machine.Service, "cat $(find /var/lib/bailiwick -type f) | tr -d '\\0'")
	if strings.Contains(out, value) {
		t.Error("the value is in a file of the service")
	}
	if !strings.Contains(out, "begun") { // it reads the work
		t.Error("control: the log of the worker is not there")
	}

	t.Log("replay")
	refused("while it runs", "its worker has begun", m, func(r *launch.Request) { r.Manifest = a.sign(m, a.key) })
	again := m
	again.Nonce = strings.Repeat("2", 32)
	a.end(m)
	refused("a second time", "its worker has begun", m, nil)
	refused("with another nonce", "was started with manifest", again, nil)
	s.restartLauncher()
	refused("after a restart of the launcher", "its worker has begun", m, nil)
	must(t, os.RemoveAll(a.dir(m))) // as a restored backup lacks it
	refused("after a restore of the state", "its worker has begun", m, nil)
	refused("what the service signed long ago", "expired at", genuineAt(genuine), nil)
	late := next()
	late.Expires = late.Expires.Add(time.Hour)
	refused("valid for long", "more than 15m0s from now", late, nil)
	second := next()
	second.Attempt = 2
	refused("another attempt", "does not resume", second, nil)

	s.startService()
	w.replace(manifest, `egress: ["api.example.com:443"]`, `egress: ["other.example.com:443"]`)
	w.must("catalog", "apply", "-f", w.path(manifest))
	a = s.takeService()
	refused("a revision whose hosts people withdrew", "api.example.com:443", next(), nil)
}

// genuineAt is a manifest as it was stored, which has expired.
func genuineAt(m record.Manifest) record.Manifest {
	m.Expires = m.NotBefore
	return m
}

// An attacker in the place of the service signs decisions of operators: its own key, a vote
// in the name of a person, one that it saw before. The launcher takes none. Control: the
// same decisions, signed by alice.
//
// takeover system, service account: no approve
//
// proves R-B9, R-P1
func TestATakenOverServiceApprovesNothing(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	lie := s.between()
	var records [][]byte // what operators decided
	lie.set(func(r *launch.Request) { records = append(records, r.Records...) })
	w := s.world(machine.Alice)
	w.manifest(subagent{name: "work", script: "echo done"})
	w.publish("reversible")
	wantEnd(t, w.dispatch("work"), api.EventFinished, "")
	lie.set(nil)
	a := s.takeService()
	if len(records) == 0 {
		t.Fatal("the launcher was given no decisions")
	}
	alice, err := seal.OpenSigner(t.Context(), s.copied("/home/alice/.config/bailiwick/operator.key"), nil)
	must(t, err)
	stranger, err := seal.NewEphemeral()
	must(t, err)

	genuine := len(records)
	last := func() (r api.OperatorRecord, digest api.Digest) {
		payload, err := seal.Payload(records[len(records)-1], seal.Operator)
		must(t, err)
		must(t, canon.DecodeExact(payload, &r))
		return r, api.DigestOf(payload)
	}
	decide := func(by seal.Signer, r api.OperatorRecord) error {
		t.Helper()
		before, digest := last()
		r.V, r.At, r.Service, r.Number, r.Previous = 1, before.At, before.Service, before.Number+1, digest
		payload, err := canon.Marshal(r)
		must(t, err)
		envelope, err := seal.Sign(t.Context(), seal.Operator, payload, by)
		must(t, err)
		if _, _, err = a.ask(launch.Request{Kind: launch.KindRecords, Keys: &a.keys, Records: [][]byte{envelope}}); err == nil {
			records = append(records, envelope)
		}
		return err
	}
	vote := api.OperatorRecord{Verb: api.VerbApprove, Principal: "local:alice", Approval: "a-aaaaaaaaaaaa", Content: api.DigestOf([]byte("what is asked"))}
	root, err := seal.LoadTrustRoot(s.Path("/etc/bailiwick/operators.json"))
	must(t, err)
	was, err := canon.Marshal(root)
	must(t, err)
	own := seal.KeyOf(stranger, "mine")
	own.Principal = "human:mine"
	root.Keys = append(root.Keys, own)
	more, err := canon.Marshal(root)
	must(t, err)
	add := api.OperatorRecord{Verb: api.VerbOperatorSet, Set: &api.OperatorSet{Number: 2, Previous: api.DigestOf(was), Root: more}}
	person := api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: "human:mine"}
	for what, by := range map[string]seal.Signer{"a key of its own": stranger, "the service's key": a.key} {
		for _, r := range []api.OperatorRecord{vote, add, person} {
			if err := decide(by, r); err == nil || !strings.Contains(err.Error(), "not in the trust root") {
				t.Errorf("%s with %s: %v", r.Verb, what, err)
			}
		}
	}
	replayed := func(what string, envelope []byte) {
		t.Helper()
		if _, _, err := a.ask(launch.Request{Kind: launch.KindRecords, Keys: &a.keys, Records: [][]byte{envelope}}); err == nil || !strings.Contains(err.Error(), "does not follow") {
			t.Errorf("%s: %v", what, err)
		}
	}
	replayed("an earlier decision", records[genuine-1])
	must(t, decide(alice, vote)) // control
	replayed("her vote once more", records[len(records)-1])
	if err := decide(alice, vote); err == nil || !strings.Contains(err.Error(), "voted about approval") {
		t.Errorf("a second vote: %v", err)
	}
	must(t, decide(alice, add)) // control: now it is an operator's key
	must(t, decide(alice, person))
	s.restartLauncher()
	replayed("after a restart of the launcher", records[genuine-1])
	must(t, decide(stranger, api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: "human:other"}))
}

// copied returns a copy of a file of the machine, which belongs to this process.
func (s *team) copied(path string) string {
	s.t.Helper()
	b, err := os.ReadFile(s.Path(path))
	must(s.t, err)
	to := filepath.Join(s.t.TempDir(), filepath.Base(path))
	must(s.t, os.WriteFile(to, b, 0o600))
	return to
}
