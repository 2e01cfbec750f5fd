package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launchsetting"
)

// serviceUID is the account of the service in tests.
const serviceUID = 54321

// people are the operators of a world in mode system, and what they decided.
type people struct {
	w        *world
	ann, bob seal.Signer
	records  [][]byte
	last     api.Digest
}

// newSystemWorld is a world whose launcher trusts its service in nothing. It needs root.
func newSystemWorld(t testing.TB) (*world, *people) {
	t.Helper()
	w := newWorldIn(t, api.ModeSystem)
	w.cfg.UID = serviceUID
	p := &people{w: w, ann: newKey(t), bob: newKey(t)}
	root := seal.TrustRoot{V: 1, Threshold: 1}
	for owner, k := range map[api.Principal]seal.Signer{"local:ann": p.ann, "human:bob": p.bob} {
		key := seal.KeyOf(k, "key")
		key.Principal = owner
		root.Keys = append(root.Keys, key)
	}
	must(t, seal.CreateTrustRoot(w.dirs.OperatorRoot(), root))
	for _, dir := range []string{w.dirs.LauncherState(), w.dirs.Checkouts()} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, seal.EnsureIdentity(filepath.Join(w.dirs.LauncherState(), Identity), w.dirs.SecretsRecipient()))
	must(t, os.WriteFile(w.dirs.Private(), nil, 0o600))
	must(t, filepath.WalkDir(w.dirs.State, func(path string, _ os.DirEntry, err error) error {
		must(t, err)
		return os.Chown(path, serviceUID, serviceUID)
	}))
	groups, err := account.OpenGroups(fmt.Sprintf("bailiwick-launch-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	must(t, err)
	settings := launchsetting.Default()
	settings.First, settings.Blocks = 0x52000000+os.Getpid()%10000*3000, 4
	w.cfg.System = &System{Settings: settings, Groups: groups, Credentials: t.TempDir()}
	t.Cleanup(func() {
		l := w.launcher()
		list, err := l.sys.blocks.running()
		must(t, err)
		for _, who := range list {
			must(t, l.sys.blocks.end(who))
		}
		names, err := groups.List()
		must(t, err)
		for _, n := range names {
			g, err := groups.Open(n)
			must(t, err)
			must(t, g.Remove())
		}
		must(t, groups.Remove())
	})
	p.decide(p.ann, api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: "human:bob"})
	return w, p
}

// decide adds a signed decision.
func (p *people) decide(by seal.Signer, r api.OperatorRecord) []byte {
	p.w.t.Helper()
	r.V, r.At, r.Service, r.Number, r.Previous = 1, p.w.now.UTC().Truncate(time.Second), string(p.w.key.KeyID()), uint64(len(p.records)+1), p.last
	payload, err := canon.Marshal(r)
	must(p.w.t, err)
	envelope, err := seal.Sign(context.Background(), seal.Operator, payload, by)
	must(p.w.t, err)
	p.records, p.last = append(p.records, envelope), api.DigestOf(payload)
	return envelope
}

// given gives a launcher all decisions that it does not have.
func (p *people) given(l *Launcher) *Launcher {
	p.w.t.Helper()
	keys := seal.NewHistory(seal.KeyOf(p.w.key, ""))
	n, err := l.follow(&Request{Keys: &keys})
	must(p.w.t, err)
	_, err = l.follow(&Request{Keys: &keys, Records: p.records[n:]})
	must(p.w.t, err)
	return l
}

// encrypt returns a value as an operator's program encrypts it.
func (p *people) encrypt(value string) []byte {
	p.w.t.Helper()
	text, err := os.ReadFile(p.w.dirs.SecretsRecipient())
	must(p.w.t, err)
	recipient, err := age.ParseX25519Recipient(strings.TrimSpace(string(text)))
	must(p.w.t, err)
	var b strings.Builder
	to, err := age.Encrypt(&b, recipient)
	must(p.w.t, err)
	_, err = to.Write([]byte(value))
	must(p.w.t, err)
	must(p.w.t, to.Close())
	return []byte(b.String())
}

// asked is what people are asked to approve for m.
func (p *people) asked(m *record.Manifest, change func(a *api.TaskAction)) []byte {
	p.w.t.Helper()
	write := record.WriteAction(m, json.RawMessage("{}"))
	a := record.TaskAction(m.Run, m.Task, m.Principal, api.DigestOf([]byte("plan")), []api.Principal{"human:bob"}, 1)
	a.ID, a.Expires, a.Write = "a-aaaaaaaaaaaa", p.w.now.UTC().Add(time.Hour).Truncate(time.Second), &write
	if change != nil {
		change(&a)
	}
	doc, err := canon.Marshal(a)
	must(p.w.t, err)
	return doc
}

func (p *people) vote(by seal.Signer, who api.Principal, doc []byte, verb api.OperatorVerb) {
	p.w.t.Helper()
	p.decide(by, api.OperatorRecord{Verb: verb, Principal: who, Approval: "a-aaaaaaaaaaaa", Content: api.DigestOf(doc)})
}

// A worker of mode system runs under uids of its own, with the values that the launcher
// decrypted, and an ended attempt gives its block back.
//
// takeover system, service account: no read a secret
//
// proves R-S2, R-D8, R-P3
func TestAWorkerRunsUnderItsOwnUids(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	content := p.encrypt("hunter2hunter2")
	p.decide(p.ann, api.OperatorRecord{Verb: api.VerbSecretSet, Secret: "key", Content: api.DigestOf(content)})
	l := p.given(w.launcher())
	m := w.manifest("edit", "token")
	a := w.attempt(m)
	a.Sealed = map[api.Name][]byte{"key": content}
	end := touch(t, a, "stay")
	proc, err := l.Worker(t.Context(), a)
	must(t, err)
	if list, err := l.sys.blocks.running(); err != nil || len(list) != 1 || list[0] != (Running{m.ID, 1}) {
		t.Errorf("running: %v, %v", list, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", proc.PID))
	must(t, err)
	if first := fmt.Sprint(w.cfg.System.Settings.First); !strings.Contains(string(status), "Uid:\t"+first+"\t"+first) {
		t.Errorf("the worker runs as another account than %s:\n%s", first, status)
	}
	end()
	must(t, proc.Wait())
	said, err := os.ReadFile(a.Log.Name())
	must(t, err)
	if !strings.Contains(string(said), `{"key":"hunter2hunter2"}`) {
		t.Errorf("the worker said %s", said)
	}
	ids, err := os.ReadFile(filepath.Join(a.Dir.Name(), "map"))
	if err != nil || strings.Join(strings.Fields(string(ids)), " ") != fmt.Sprintf("0 %d 3", w.cfg.System.Settings.First) {
		t.Errorf("uid map %q, %v", ids, err)
	}
	st, err := os.Stat(filepath.Join(a.Dir.Name(), "map"))
	must(t, err)
	if owner := ownerOf(st); owner != serviceUID {
		t.Errorf("what it wrote belongs to uid %d, want the service's", owner)
	}
	if list, err := l.sys.blocks.running(); err != nil || len(list) > 0 {
		t.Errorf("running after its end: %v, %v", list, err)
	}
}

// A worker that was taken over does not change what its block is used by, so that its end
// reaches it. The control is the record of the start, which it may write.
//
// proves R-S2
func TestAWorkerDoesNotHideItsBlock(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	l := p.given(w.launcher())
	m := w.manifest("edit")
	a := w.attempt(m)
	for _, name := range []string{"stay", "rewrite", "proceed"} {
		touch(t, a, name)
	}
	proc, err := l.Worker(t.Context(), a)
	must(t, err)
	for range polling(t) {
		if b, err := os.ReadFile(filepath.Join(a.Dir.Name(), "map")); err == nil && len(b) > 0 { // it has written
			break
		}
	}
	if b, err := os.ReadFile(filepath.Join(w.dirs.LauncherState(), "started", string(m.ID)+"-1.began")); err != nil || !strings.Contains(string(b), "proceeded") {
		t.Errorf("control: %q, %v", b, err)
	}
	if list, err := l.sys.blocks.running(); err != nil || len(list) != 1 || list[0] != (Running{m.ID, 1}) {
		t.Errorf("running: %v, %v", list, err)
	}
	must(t, l.sys.blocks.end(Running{m.ID, 1}))
	ended := make(chan error, 1)
	go func() { ended <- proc.Wait() }()
	select {
	case err := <-ended:
		t.Logf("its end: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("its end does not reach it")
	}
}

// polling yields until a minute has passed.
func polling(t *testing.T) func(func(int) bool) {
	return func(yield func(int) bool) {
		t.Helper()
		for i := range 6000 {
			if !yield(i) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("it does not come")
	}
}

// proves R-S2
func TestAFullRangeIsARefusalAndEndFreesABlock(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	w.cfg.System.Settings.Blocks = 2
	l := p.given(w.launcher())
	var held []*Process
	var ids []Running
	for range 2 {
		m := w.manifest("edit")
		a := w.attempt(m)
		touch(t, a, "stay")
		proc, err := l.Worker(t.Context(), a)
		must(t, err)
		held, ids = append(held, proc), append(ids, Running{m.ID, 1})
	}
	_, err := w.start(l, w.attempt(w.manifest("edit")))
	refused(t, err, api.CodeThrottled, "all 2 uid blocks")
	_, err = w.start(p.given(w.launcher()), w.attempt(w.manifest("edit"))) // and after a restart
	refused(t, err, api.CodeThrottled, "all 2 uid blocks")
	must(t, p.given(w.launcher()).sys.blocks.end(ids[0]))
	must(t, held[0].Wait())
	if _, err := w.start(l, w.attempt(w.manifest("edit"))); err != nil {
		t.Errorf("after an end: %v", err)
	}
	must(t, l.sys.blocks.end(ids[1]))
	must(t, held[1].Wait())
}
