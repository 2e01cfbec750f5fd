package launch

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// A revision that a later one replaced starts nothing once its grace is over, and never what
// humans have withdrawn. The control is the same manifest before.
//
// takeover system, service account: no replay
//
// proves R-B5, R-P4
func TestARollbackOfTheCatalogEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	l := p.given(w.launcher())
	first := w.manifest("edit")
	second, third := first, w.manifest("edit", "token")
	second.ID = api.NewDispatchID(w.now)
	if _, err := w.start(l, w.attempt(first)); err != nil {
		t.Fatalf("control: %v", err)
	}
	w.apply(strings.Replace(testManifest, "api.example.com", "other.example.com", 1))
	if _, err := w.start(l, w.attempt(second)); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	_, err := w.start(l, w.attempt(third))
	refused(t, err, api.CodeIntegrity, `host "api.example.com:443" of revision 1 is not in revision 2 any more`)
	w.cfg.System.Settings.Grace = 0
	l = p.given(w.launcher()) // the mark survives a restart
	second.ID = api.NewDispatchID(w.now)
	_, err = w.start(l, w.attempt(second))
	refused(t, err, api.CodeIntegrity, "revision 1 is below revision 2")
}

// A request reads the clock once it has the marks: one that waited for them while another noted
// a newer revision is not earlier than that, and has its grace. The control is the clock before.
//
// proves R-P4
func TestTheClockIsReadUnderTheMarks(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	var l *Launcher
	clock, free, held := w.cfg.Now, 0, 0
	w.cfg.Now = func() time.Time {
		switch {
		case l == nil:
		case l.sys.marks.mu.TryLock():
			l.sys.marks.mu.Unlock()
			free++
		default:
			held++
		}
		return clock()
	}
	l = p.given(w.launcher())
	if _, err := w.start(l, w.attempt(w.manifest("edit"))); err != nil || free == 0 || held == 0 {
		t.Errorf("%v; the clock was read %d times under the marks, %d times without them", err, held, free)
	}
}

// A launcher serves one service: not another, not one whose keys went back, and not a key
// that was replaced. The control is the service with its keys.
//
// takeover system, service account: no define, replay
//
// proves R-D2, R-P4
func TestAnotherServiceStartsNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	l := p.given(w.launcher())
	if _, err := w.start(l, w.attempt(w.manifest("edit"))); err != nil {
		t.Fatalf("control: %v", err)
	}
	stranger := newKey(t)
	m := w.manifest("edit")
	a := w.attempt(m)
	a.Manifest, a.Keys = w.sign(m, stranger), seal.NewHistory(seal.KeyOf(stranger, ""))
	_, err := w.start(l, a)
	refused(t, err, api.CodeIntegrity, "but this launcher serves")

	rotate := func(to seal.Signer) seal.History {
		h := seal.NewHistory(seal.KeyOf(w.key, ""))
		envelope, err := seal.KeyRotation{V: 1, Log: h.Log, Old: w.key.KeyID(), New: seal.KeyOf(to, ""), Entry: 7, At: w.now.UTC()}.Sign(t.Context(), w.key)
		must(t, err)
		h, err = h.Rotate(envelope)
		must(t, err)
		return h
	}
	next := newKey(t)
	with := func(by seal.Signer, keys seal.History) error {
		m := w.manifest("edit")
		a := w.attempt(m)
		a.Manifest, a.Keys = w.sign(m, by), keys
		_, err := w.start(l, a)
		return err
	}
	keys := rotate(next)
	must(t, with(next, keys))
	must(t, with(w.key, keys)) // signed just before
	refused(t, with(w.key, seal.NewHistory(seal.KeyOf(w.key, ""))), api.CodeIntegrity, "which was seen, is not key 2")
	refused(t, with(stranger, rotate(stranger)), api.CodeIntegrity, "which was seen, is not key 2")
	w.now = w.now.Add(2 * MaxValidity)
	refused(t, with(w.key, keys), api.CodeIntegrity, "has replaced")
	w.now = w.now.Add(-4 * keepStarted) // the clock is set back
	refused(t, with(next, keys), api.CodeIntegrity, "the clock of this machine was set back")
}

// What writes starts once people approved exactly it. The attacker has the service's key and
// all that the service keeps.
//
// takeover system, service account: no approve
//
// proves R-P6
func TestWhatPeopleApproveIsVerifiedByTheLauncher(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	l := w.launcher()
	run := func() record.Manifest {
		m := w.manifest("ship")
		m.Run, m.Task, m.Fence = api.NewRunID(w.now), "t", 1
		return m
	}
	try := func(m record.Manifest, doc []byte) error {
		a := w.attempt(m)
		a.Approval = doc
		_, err := w.start(p.given(l), a)
		return err
	}
	m := run()
	doc := p.asked(&m, nil)
	refused(t, try(m, nil), api.CodeDenied, "no approval is given")
	refused(t, try(m, doc), api.CodeDenied, "0 of 1 people approved it")
	p.vote(p.ann, "local:ann", doc, api.VerbApprove) // who submitted it
	refused(t, try(m, doc), api.CodeDenied, "0 of 1 people approved it")

	forged := newKey(t) // the attacker signs a vote for Bob
	keys := seal.NewHistory(seal.KeyOf(w.key, ""))
	records, last := p.records, p.last
	p.vote(forged, "human:bob", doc, api.VerbApprove)
	_, err := l.follow(&Request{Keys: &keys, Records: p.records[len(records):]})
	refused(t, err, api.CodeIntegrity, "not in the trust root")
	p.records, p.last = records, last

	p.vote(p.bob, "human:bob", doc, api.VerbApprove)
	other := run()
	refused(t, try(other, doc), api.CodeDenied, "people approved something else")
	refused(t, try(m, p.asked(&m, func(a *api.TaskAction) { a.By = []api.Principal{"local:eve"} })), api.CodeDenied, "other people than those")
	long := p.asked(&m, func(a *api.TaskAction) { a.Expires = a.Expires.Add(1000 * time.Hour) })
	refused(t, try(m, long), api.CodeDenied, "valid for longer")
	must(t, try(m, doc)) // control
	m.Attempt, m.Resume = 3, &record.Resume{Attempt: 2, Answer: api.DigestOf(nil)}
	refused(t, try(m, doc), api.CodeIntegrity, "an approval counts once, and attempt 1 began")

	// Another launcher process has what this one was given; the old dispatch is not started again.
	w.now = w.now.Add(30 * time.Minute)
	m.Attempt, m.Resume, m.NotBefore, m.Expires = 1, nil, w.now.UTC(), w.now.UTC().Add(time.Minute)
	must(t, os.RemoveAll(filepath.Join(w.dirs.LauncherState(), "started"))) // as if it was forgotten
	a := w.attempt(m)
	a.Approval = doc
	_, err = w.start(w.launcher(), a)
	refused(t, err, api.CodeIntegrity, "an approval counts once")
}

// A value is the one that operators set, encrypted to this machine. The control is in
// TestAWorkerRunsUnderItsOwnUids.
//
// takeover system, service account: no read a secret
//
// proves R-D8, R-P5
func TestAServiceSwapsNoSecret(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	mine, theirs := p.encrypt("of the attacker"), p.encrypt("hunter2hunter2")
	start := func(content []byte) error {
		a := w.attempt(w.manifest("edit", "token"))
		a.Sealed = map[api.Name][]byte{"key": content}
		_, err := w.start(p.given(w.launcher()), a)
		return err
	}
	refused(t, start(mine), api.CodeInvalid, "no operator has set it")
	p.decide(p.ann, api.OperatorRecord{Verb: api.VerbSecretSet, Secret: "key", Content: api.DigestOf(theirs)})
	refused(t, start(mine), api.CodeInvalid, "operators set")
	must(t, start(theirs))
	l := w.launcher()
	for ref, want := range map[string]string{"env:HOME": "use file:NAME", "exec:pass": "use file:NAME", "credential:x": "no credential x"} {
		place, err := api.ParseSecretRef(ref)
		must(t, err)
		if _, err := l.sys.value(w.key.KeyID(), place, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(w.cfg.System.Credentials, "x"), []byte("value\n"), 0o600))
	if v, err := l.sys.value(w.key.KeyID(), api.SecretPlace{Source: api.SecretCredential, Name: "x"}, nil); v != "value" || err != nil {
		t.Errorf("credential: %q, %v", v, err)
	}
}

// serve serves the launcher of w, and returns its socket.
func (w *world) serve(t *testing.T, l *Launcher) string {
	t.Helper()
	path := filepath.Join(w.t.TempDir(), "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	must(t, os.Chmod(path, 0o666)) //nolint:gosec // G302: other accounts try
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(l, time.Hour).Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
	})
	return path
}

// A frame that is not exactly one request is refused whole, and the launcher serves the next.
func TestFramesAreRefusedWhole(t *testing.T) {
	w := newWorld(t)
	w.cfg.UID = os.Geteuid()
	path := w.serve(t, w.launcher())
	frame := func(doc string) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(doc))), doc...) }
	for name, c := range map[string]struct{ sent, want string }{
		"nothing":         {"", ""},
		"no length":       {"\x00\x00", "no length"},
		"no bytes":        {"\x00\x00\x00\x00", "want 1 to"},
		"too many":        {"\xff\xff\xff\xff", "want 1 to"},
		"cut off":         {"\x00\x00\x00\x09{}", "EOF"},
		"no JSON":         {string(frame("x")), "frame"},
		"not canonical":   {string(frame(`{"v":1, "kind":"list"}`)), "frame"},
		"unknown member":  {string(frame(`{"kind":"list","path":"/etc","v":1}`)), "path"},
		"unknown kind":    {string(frame(`{"kind":"shell","v":1}`)), "unknown kind"},
		"another version": {string(frame(`{"kind":"list","v":2}`)), "request"},
		"no descriptors":  {string(frame(`{"keys":{"keys":[],"log":"","rotations":[],"statements":[],"v":1},"kind":"worker","v":1}`)), "0 descriptors"},
		"members of more": {string(frame(`{"attempt":{"attempt":1,"dispatch":"d-1234"},"kind":"list","v":1}`)), "has not"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", path)
			must(t, err)
			defer conn.Close() //nolint:errcheck // of a test
			_, err = conn.Write([]byte(c.sent))
			must(t, err)
			must(t, conn.(*net.UnixConn).CloseWrite())
			var a Answer
			if _, err := unixframe.Read(conn.(*net.UnixConn), &a, time.Minute); err != nil || a.Error == nil || !strings.Contains(a.Error.Message, c.want) {
				t.Errorf("%+v, %v, want %q", a.Error, err, c.want)
			}
		})
	}
}

// Only the account of the service is answered. The control is that account.
//
// proves R-P4
func TestOnlyTheServicesAccountIsServed(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes another account
	}
	w, p := newSystemWorld(t)
	path := w.serve(t, p.given(w.launcher()))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755)) //nolint:gosec // G302: other accounts try
	must(t, os.Chmod(filepath.Dir(path), 0o755))               //nolint:gosec // G302: likewise
	if os.Getenv("LAUNCH_TEST_SOCKET") != "" {
		return
	}
	for uid, want := range map[uint32]string{serviceUID: "{\"v\":1}", 54322: "is not the account of the service", 0: "is not the account of the service"} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=TestAsAnotherAccount", "-test.v")
		cmd.Env = []string{"LAUNCH_TEST_SOCKET=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("uid %d: %v\n%s", uid, err, out)
		}
	}
}

// TestAsAnotherAccount is a client under another account.
func TestAsAnotherAccount(t *testing.T) {
	path := os.Getenv("LAUNCH_TEST_SOCKET")
	if path == "" {
		return // TestOnlyTheServicesAccountIsServed runs it
	}
	conn, err := net.Dial("unix", path)
	must(t, err)
	_ = unixframe.Write(conn.(*net.UnixConn), Request{V: Version, Kind: KindList}) // another account is refused before it is read
	var a Answer
	_, err = unixframe.Read(conn.(*net.UnixConn), &a, time.Minute)
	must(t, err)
	doc, err := canon.Marshal(a)
	must(t, err)
	fmt.Println(string(doc))
}

// Ten thousand requests at once are answered or refused by the kernel's queue, and the
// launcher serves the next.
func TestManyRequestsAtOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	w.cfg.UID = 0
	path := w.serve(t, p.given(w.launcher()))
	var answered, refused, broken atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 100 {
				conn, err := net.Dial("unix", path)
				if err != nil {
					refused.Add(1)
					continue
				}
				var a Answer
				err = unixframe.Write(conn.(*net.UnixConn), Request{V: Version, Kind: KindList})
				if err == nil {
					_, err = unixframe.Read(conn.(*net.UnixConn), &a, time.Minute)
				}
				if _ = conn.Close(); err != nil || a.Error != nil {
					broken.Add(1)
				} else {
					answered.Add(1)
				}
			}
		})
	}
	all.Wait()
	if broken.Load() > 0 || answered.Load() == 0 || answered.Load()+refused.Load() != 10_000 {
		t.Errorf("%d answered, %d refused, %d broken", answered.Load(), refused.Load(), broken.Load())
	}
}

// FuzzFrame reads frames that anybody wrote. What is accepted is a request in its one form.
func FuzzFrame(f *testing.F) {
	for _, doc := range []string{`{"kind":"list","v":1}`, `{"attempt":{"attempt":1,"dispatch":"d-1234"},"kind":"end","v":1}`} {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(doc))), doc...))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		must(t, err)
		ends := [2]*net.UnixConn{}
		for i, fd := range fds {
			file := os.NewFile(uintptr(fd), "pair")
			c, err := net.FileConn(file)
			must(t, err)
			_ = file.Close()
			ends[i] = c.(*net.UnixConn)
			defer c.Close() //nolint:errcheck // of a test
		}
		go func() {
			_, _ = ends[0].Write(sent)
			_ = ends[0].CloseWrite()
		}()
		var r Request
		if _, err := unixframe.Read(ends[1], &r, time.Minute); err != nil || r.check(0) != nil {
			return
		}
		doc, err := canon.Marshal(r)
		if err != nil || len(sent) < 4+len(doc) || string(sent[4:4+len(doc)]) != string(doc) {
			t.Errorf("%q is read as %s, %v", sent, doc, err)
		}
	})
}
