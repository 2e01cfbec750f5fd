package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// bench starts workers directly, with manifests that the service did not make.
type bench struct {
	w        *world
	key      seal.Signer // the service's key
	manifest record.Manifest
	envelope []byte // the genuine manifest
	n        int
}

const agentRan = "THE AGENT RAN"

// newBench has the service make a genuine dispatch and keeps its manifest.
func newBench(t *testing.T) *bench {
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.manifest(
		subagent{name: "edit", script: "echo " + agentRan + "; cat inputs/input.json; cat inputs/part 2>/dev/null; true", more: "    limits: {timeout: 1m, memory: 256MiB}\n"},
		subagent{name: "other", script: "echo OTHER; " + "echo " + agentRan, role: "quality", tier: "observe"},
	)
	w.replace(manifest, "subagents: [edit,other]", "subagents: [edit,other], capabilities: [other]")
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: guarded}", "{name: local, executor: jail, level: full, mode: guarded, limits: {processes: 100}}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	d := w.dispatch("edit", "--source", "repo", "--set", "n=1", "--env", "colours")
	wantEnd(t, d, api.EventFinished, "")
	b := &bench{w: w}
	key, err := seal.OpenServiceKey(w.path("state/bailiwick"))
	must(t, err)
	b.key = key
	b.envelope, err = os.ReadFile(w.path("state/bailiwick/blobs/blobs/sha256", d.Manifest.Hex()))
	must(t, err)
	payload, err := seal.Payload(b.envelope, seal.Manifest)
	must(t, err)
	must(t, canon.Decode(payload, &b.manifest))
	return b
}

// sign signs a manifest like a service, or an attacker who controls one.
func (b *bench) sign(m record.Manifest, key seal.Signer) []byte {
	b.w.t.Helper()
	doc, err := canon.Marshal(m)
	must(b.w.t, err)
	envelope, err := seal.Sign(b.w.t.Context(), seal.Manifest, doc, key)
	must(b.w.t, err)
	return envelope
}

// Worker starts the worker of any manifest, as nothing that is shipped does.
func (b *bench) Worker(_ context.Context, a *launch.Attempt) (*launch.Process, error) {
	began, err := os.CreateTemp(b.w.t.TempDir(), "began")
	if err != nil {
		return nil, err
	}
	defer began.Close() //nolint:errcheck // the worker has its own copy
	b.w.write("no-secrets", "{}", 0o600)
	secrets, err := os.Open(b.w.path("no-secrets"))
	if err != nil {
		return nil, err
	}
	defer secrets.Close()                                                                                                                  //nolint:errcheck // likewise
	cmd := exec.Command(filepath.Join(bin, "bailiwick-worker"), "--attempt", a.Dir.Name(), "--manifest", string(api.DigestOf(a.Manifest))) //nolint:noctx // it outlives the call
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = b.w.env, "/", a.Log, a.Log
	cmd.ExtraFiles = []*os.File{a.Control, secrets, began}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &launch.Process{PID: cmd.Process.Pid, Wait: cmd.Wait, Kill: cmd.Process.Kill}, nil
}

// Find implements executor.Launcher.
func (b *bench) Find(context.Context, launch.Running) (*launch.Process, error) {
	return nil, launch.ErrNoWorker
}

// Fetch implements executor.Launcher.
func (b *bench) Fetch(context.Context, launch.Order, string, string) (record.FetchResult, error) {
	return record.FetchResult{}, errors.New("no fetch")
}

// ending holds the members of a result that a worker can always set: one that
// could not read its manifest does not know its dispatch.
type ending struct {
	Outcome api.Event  `json:"outcome"`
	Reason  api.Reason `json:"reason"`
	Message string     `json:"message"`
	Fence   uint64     `json:"fence"`
}

func jobOf(dir string, manifest []byte, input string) executor.Job {
	return executor.Job{Dir: dir, Files: map[string]executor.Content{record.WorkManifest: content(manifest), record.WorkInput: content([]byte(input))}}
}

func content(b []byte) executor.Content {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// fire starts a worker as the service does, lets it proceed and returns its
// sealed result and its jail's output.
func (b *bench) fire(envelope []byte, input string, spoil func(dir string)) (ending, string) {
	b.w.t.Helper()
	return b.run(jobOf(b.dir(1), envelope, input), spoil)
}

// dir creates the directory of an attempt.
func (b *bench) dir(attempt int) string {
	b.n++
	return b.w.path("bench", strconv.Itoa(b.n), string(b.manifest.ID), strconv.Itoa(attempt))
}

func (b *bench) run(job executor.Job, spoil func(dir string)) (ending, string) {
	t := b.w.t
	t.Helper()
	dir := job.Dir
	must(t, os.MkdirAll(dir, 0o700))
	local := executor.Local{Launcher: b, Logger: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	worker, err := local.Start(ctx, job)
	must(t, err)
	var public string
	for m := range worker.Events() {
		if m.Event == "ready" {
			public = m.Key
			if spoil != nil {
				spoil(dir)
			}
			// A worker that has refused already does not listen.
			_ = worker.Proceed()
		}
	}
	<-worker.Exited()
	sealed, err := os.ReadFile(filepath.Join(dir, record.WorkResult))
	if err != nil {
		out, _ := os.ReadFile(filepath.Join(dir, record.WorkErrors))
		t.Fatalf("no result: %v\n%s", err, out)
	}
	payload, err := seal.Payload(sealed, seal.Result)
	if public != "" { // a worker that refused at once may have exited before
		raw, decodeErr := base64.StdEncoding.DecodeString(public)
		must(t, decodeErr)
		payload, _, err = seal.Verify(sealed, seal.Result, seal.RootOf(seal.Key{ID: seal.IDOf(raw), Public: raw}))
	}
	must(t, err)
	var r ending
	must(t, json.Unmarshal(payload, &r))
	log, err := os.ReadFile(filepath.Join(dir, record.WorkLog, record.LogFile(api.LogPart{})))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return r, string(log)
}

// A worker trusts neither the service that starts it nor the store that it
// reads: content without a human's signature does not run.
//
// takeover both modes, backup: no start
// takeover system, service account: no define
//
// proves R-B5, R-D2
func TestWorkerVerifiesOnItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const input = `{"n":"1"}`
	stranger, err := seal.NewEphemeral()
	must(t, err)
	genuine := func() {
		t.Helper()
		r, log := b.fire(b.envelope, input, nil)
		if r.Outcome != api.EventFinished || !strings.Contains(log, agentRan) {
			t.Fatalf("the genuine manifest: %s %s %s; log %q", r.Outcome, r.Reason, r.Message, log)
		}
	}
	refuses := func(name string, envelope []byte, in string, spoil func(dir string), words ...string) {
		t.Helper()
		r, log := b.fire(envelope, in, spoil)
		if r.Outcome != api.EventFailed || r.Reason != api.ReasonIntegrity || strings.Contains(log, agentRan) {
			t.Errorf("%s: %s %s %q; log %q", name, r.Outcome, r.Reason, r.Message, log)
		}
		for _, word := range words {
			if !strings.Contains(r.Message, word) {
				t.Errorf("%s: the message lacks %q: %s", name, word, r.Message)
			}
		}
	}
	genuine()
	altered := func(change func(m *record.Manifest)) []byte {
		m := b.manifest
		m.Artifacts = append([]record.Pin(nil), m.Artifacts...)
		change(&m)
		return b.sign(m, b.key)
	}
	// The control: a re-signed but unchanged manifest is accepted, so each
	// refusal below is for its alteration.
	if r, log := b.fire(altered(func(m *record.Manifest) { m.Nonce = strings.Repeat("0", 32) }), input, nil); r.Outcome != api.EventFinished || !strings.Contains(log, agentRan) {
		t.Errorf("a re-signed manifest: %s %s; log %q", r.Outcome, r.Message, log)
	}

	refuses("no manifest", nil, input, nil)
	refuses("not an envelope", []byte("{}"), input, nil)
	refuses("an altered payload", []byte(strings.Replace(string(b.envelope), `"payload":"`, `"payload":"AAAA`, 1)), input, nil)
	refuses("signed by a stranger", b.sign(b.manifest, stranger), input, nil, "manifest")
	wrong, err := seal.Sign(t.Context(), seal.Result, mustMarshal(t, b.manifest), b.key)
	must(t, err)
	refuses("signed as another kind of document", wrong, input, nil)
	refuses("not canonical", func() []byte {
		e, err := seal.Sign(t.Context(), seal.Manifest, append(mustMarshal(t, b.manifest), ' '), b.key)
		must(t, err)
		return e
	}(), input, nil, "canonical")
	refuses("changed after it was read", b.envelope, input, func(dir string) {
		must(t, os.WriteFile(filepath.Join(dir, record.WorkManifest), b.sign(b.manifest, stranger), 0o600))
	}, "manifest")
	refuses("another input", b.envelope, `{"n":"2"}`, nil, "input", "digest")
	for _, c := range []struct {
		name   string
		change func(m *record.Manifest)
		words  string
	}{
		{"expired", func(m *record.Manifest) { m.Expires = time.Now().Add(-time.Second) }, "expired"},
		{"not valid yet", func(m *record.Manifest) {
			m.NotBefore = time.Now().Add(time.Hour)
			m.Expires = m.NotBefore.Add(time.Hour)
		}, "not valid before"},
		{"a different format", func(m *record.Manifest) { m.V = 2 }, "format 2"},
		{"of a different dispatch", func(m *record.Manifest) { m.ID = "somebody-elses" }, "somebody-elses"},
		{"of a different attempt", func(m *record.Manifest) { m.Attempt = 2 }, "attempt 2"},
		{"pins a different digest", func(m *record.Manifest) { m.Artifacts[0].Digest = api.DigestOf(nil) }, "pins"},
		{"pins fewer artifacts", func(m *record.Manifest) { m.Artifacts = m.Artifacts[1:] }, "not pinned"},
		{"a different revision", func(m *record.Manifest) { m.RevisionDigest = api.DigestOf(nil) }, "revision"},
		{"a different revision number", func(m *record.Manifest) { m.Revision = 7 }, "revision"},
		{"a different role", func(m *record.Manifest) { m.Role = "quality" }, "role"},
		{"a different tier", func(m *record.Manifest) { m.Tier = api.Observe }, "tier"},
		{"a different agent", func(m *record.Manifest) { m.Agent = "other" }, "agent"},
		{"a different model", func(m *record.Manifest) { m.Model = "max" }, "model"},
		{"a different ceiling", func(m *record.Manifest) { m.Ceiling = api.Irreversible }, "ceiling"},
		{"a different level", func(m *record.Manifest) { m.Level = "none" }, "isolation"},
		{"more memory", func(m *record.Manifest) { m.Limits.Memory = 8 << 30 }, "memory"},
		{"more time", func(m *record.Manifest) { m.Limits.Timeout = api.Duration(time.Hour) }, "timeout"},
		{"more processes than the target allows", func(m *record.Manifest) { m.Limits.Processes = 500 }, "processes"},
		{"no limit", func(m *record.Manifest) { m.Limits.Disk = 0 }, "limit"},
		{"an open network", func(m *record.Manifest) { m.Egress = []string{"example.com"} }, "egress"},
		{"no capabilities", func(m *record.Manifest) { m.Capabilities = nil }, "does not name"},
		{"unpinned capabilities", func(m *record.Manifest) { m.Capabilities = append(m.Capabilities, "other") }, "not pinned"},
		{"unpinned envs", func(m *record.Manifest) { m.Envs = append(m.Envs, "nope") }, "not pinned"},
		{"an unpinned source", func(m *record.Manifest) { m.Source = &api.PinnedSource{Name: "nope", Commit: m.Source.Commit} }, "not pinned"},
	} {
		refuses(c.name, altered(c.change), input, nil, c.words)
	}

	// The store: an unsigned script under the name of a signed one.
	store := b.w.path("data/bailiwick/catalog")
	kept := t.TempDir()
	copyTree(t, store, kept)
	planted := func(name string, plant func()) {
		t.Helper()
		plant()
		refuses(name, b.envelope, input, nil)
		copyTree(t, kept, store)
	}
	digest, script := blobWith(t, store, "cat inputs/input.json")
	planted("a script in the place of another", func() {
		must(t, os.WriteFile(filepath.Join(store, "blobs/sha256", digest.Hex()), []byte(strings.Replace(string(script), "cat inputs", "cat /input", 1)), 0o644))
	})
	planted("a script and all references to it", func() { substitute(t, store, digest, []byte("#!/bin/sh\necho "+agentRan+"\n")) })
	planted("a link to a script elsewhere", func() {
		must(t, os.Remove(filepath.Join(store, "blobs/sha256", digest.Hex())))
		b.w.write("elsewhere", "#!/bin/sh\necho "+agentRan+"\n", 0o755)
		must(t, os.Symlink(b.w.path("elsewhere"), filepath.Join(store, "blobs/sha256", digest.Hex())))
	})
	planted("no signature", func() { stripSignatures(t, store) })
	planted("no store", func() { must(t, os.RemoveAll(store)) })
	trust := b.w.read("data/bailiwick/trust.json")
	b.w.write("data/bailiwick/trust.json", strings.Replace(trust, `"threshold":1`, `"threshold":2`, 1), 0o644)
	refuses("a trust root that asks for more", b.envelope, input, nil)
	b.w.write("data/bailiwick/trust.json", trust, 0o644)
	genuine()
}

// A resumed attempt restores what its manifest names, or does not run.
//
// proves R-D2, R-D6
func TestWorkerResumesFromExactlyTheManifest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const answer = `{"answer":"yes","attempt":1,"question":"continue?"}`
	const patch = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+half\n"
	try := func(answer, patch string, change func(m *record.Manifest, files map[string]executor.Content)) (ending, string) {
		t.Helper()
		m := b.manifest
		m.Attempt, m.Resume = 2, &record.Resume{Attempt: 1, Answer: api.DigestOf([]byte(answer)), Patch: api.DigestOf([]byte(patch))}
		job := jobOf(b.dir(2), nil, `{"n":"1"}`)
		job.Files[record.WorkResume], job.Files[record.WorkPatch] = content([]byte(answer)), content([]byte(patch))
		if change != nil {
			change(&m, job.Files)
		}
		job.Files[record.WorkManifest] = content(b.sign(m, b.key))
		return b.run(job, nil)
	}
	if r, log := try(answer, patch, nil); r.Outcome != api.EventFinished || !strings.Contains(log, agentRan) {
		t.Fatalf("the genuine attempt: %s %s; log %q", r.Outcome, r.Message, log)
	}
	refuses := func(name string, r ending, log string) {
		t.Helper()
		if r.Outcome != api.EventFailed || r.Reason != api.ReasonIntegrity || strings.Contains(log, agentRan) {
			t.Errorf("%s: %s %s %q; log %q", name, r.Outcome, r.Reason, r.Message, log)
		}
	}
	for name, change := range map[string]func(m *record.Manifest, files map[string]executor.Content){
		"another answer": func(_ *record.Manifest, f map[string]executor.Content) { f[record.WorkResume] = content([]byte(`{}`)) },
		"no answer":      func(_ *record.Manifest, f map[string]executor.Content) { delete(f, record.WorkResume) },
		"another patch": func(_ *record.Manifest, f map[string]executor.Content) {
			f[record.WorkPatch] = content([]byte(strings.Replace(patch, "half", "evil", 1)))
		},
		"no patch":                 func(_ *record.Manifest, f map[string]executor.Content) { delete(f, record.WorkPatch) },
		"continues from itself":    func(m *record.Manifest, _ map[string]executor.Content) { m.Resume.Attempt = 2 },
		"continues from nothing":   func(m *record.Manifest, _ map[string]executor.Content) { m.Resume = nil },
		"the first one that does":  func(m *record.Manifest, _ map[string]executor.Content) { m.Attempt = 1 },
		"an answer without a name": func(m *record.Manifest, _ map[string]executor.Content) { m.Resume.Answer = "" },
	} {
		r, log := try(answer, patch, change)
		refuses(name, r, log)
	}
	for name, patch := range map[string]string{
		"a patch that does not apply":   strings.Replace(patch, "-one", "-two", 1),
		"a patch that leaves the tree":  strings.ReplaceAll(patch, "a.txt", "../../out.txt"),
		"a patch into git's own folder": strings.ReplaceAll(strings.Replace(patch, "--- a/a.txt", "new file mode 100644\n--- /dev/null", 1), "a.txt", ".git/config"),
		"no patch at all":               "nothing\n",
	} {
		r, log := try(answer, patch, nil)
		refuses(name, r, log)
	}
}

func mustMarshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := canon.Marshal(v)
	must(t, err)
	return b
}

// Nothing runs before the service has confirmed that the start is durable.
//
// proves R-A2, R-D2
func TestWorkerWaitsForProceed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.manifest
	m.Expires = time.Now().Add(time.Second)
	dir := b.w.path("bench/never", string(m.ID), "1")
	local := executor.Local{Launcher: b, Logger: slog.New(slog.DiscardHandler)}
	worker, err := local.Start(t.Context(), jobOf(dir, b.sign(m, b.key), `{"n":"1"}`))
	must(t, err)
	for e := range worker.Events() {
		if e.Event == "log" {
			t.Errorf("its jail prints: %+v", e)
		}
	}
	<-worker.Exited()
	sealed, err := os.ReadFile(filepath.Join(dir, record.WorkResult))
	must(t, err)
	payload, err := seal.Payload(sealed, seal.Result)
	must(t, err)
	var r record.Result
	must(t, canon.Decode(payload, &r))
	if r.Outcome != api.EventFailed || r.Reason != api.ReasonIntegrity || !strings.Contains(r.Message, "expired") {
		t.Errorf("result %+v", r)
	}
	for _, f := range []string{record.WorkLog, "base", "overlay"} {
		if _, err := os.Lstat(filepath.Join(dir, f)); err == nil {
			t.Errorf("%s was created", f)
		}
	}
}
