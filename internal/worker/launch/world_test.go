package launch

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

const testManifest = `project: test
version: 1
subagents:
  - {name: edit, agent: command, command: ["true"], role: transform, tier: observe, target: local, limits: {timeout: 1m}}
  - {name: ship, agent: command, command: ["true"], role: transform, tier: observe, target: local, effect: write}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
envs:
  - {name: token, secrets: {TOKEN: {secret: key, exposed: true}}, egress: ["api.example.com:443"]}
secrets:
  - {name: key, ref: "file:key"}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [edit, ship], targets: [local], envs: [token], ceiling: reversible, writes: {by: ["human:bob"]}}
`

// world is a service and its catalog. Whatever a launcher starts is a script that prints
// its arguments and secrets.
type world struct {
	t         testing.TB
	dirs      api.Dirs
	root      seal.TrustRoot
	deployKey seal.Signer
	key       seal.Signer // the service's
	now       time.Time
	cfg       Config
	control   string            // socket of the attempt that was made last
	applied   string            // the manifest of the newest revision
	define    deploy.Definer    // asks the servers of tools; nil: for catalogs without them
	files     map[string]string // beside the manifest that is applied
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) seal.Signer {
	t.Helper()
	k, err := seal.NewEphemeral()
	must(t, err)
	return k
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, api.ModeSameUser)
}

func newWorldIn(t testing.TB, mode string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{
		t: t, dirs: api.Dirs{Mode: mode, Data: filepath.Join(dir, "data", "bailiwick"), Config: filepath.Join(dir, "config"), State: filepath.Join(dir, "state", "bailiwick")},
		deployKey: newKey(t), key: newKey(t), now: time.Now(),
	}
	if mode == api.ModeSystem {
		w.dirs.Trust = w.dirs.Data
	}
	w.root = seal.RootOf(seal.KeyOf(w.deployKey, "ann"))
	must(t, seal.CreateTrustRoot(w.dirs.TrustRoot(), w.root))
	must(t, os.MkdirAll(w.dirs.Scratch(), 0o700))
	cat, err := deploy.Create(deploy.Config{Dir: w.dirs.Catalog(), TrustRoot: w.root, Now: time.Now})
	must(t, err)
	must(t, cat.Close())
	w.apply(testManifest)
	program := filepath.Join(t.TempDir(), "worker")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" >&2\ncat <&4 >&2\necho >&2\nif [ -e \"$2/proceed\" ]; then echo proceeded >&5; fi\nif [ -e \"$2/rewrite\" ]; then for fd in 6 7 8 9; do echo x >&$fd; done; fi\ncat /proc/self/uid_map >\"$2/map\"\nwhile [ -e \"$2/stay\" ]; do sleep 0.01; done\n"), 0o755)) //nolint:gosec // G306: a program
	w.cfg = Config{Dirs: w.dirs, Worker: program, Fetcher: program, UID: os.Geteuid(), Now: func() time.Time { return w.now }, Logger: slog.New(slog.DiscardHandler)}
	return w
}

// touch makes the worker of an attempt behave otherwise: proceed, stay, rewrite (what its
// block's file says).
func touch(t testing.TB, a *Attempt, name string) (remove func()) {
	t.Helper()
	path := filepath.Join(a.Dir.Name(), name)
	must(t, os.WriteFile(path, nil, 0o644))
	return func() { _ = os.Remove(path) }
}

func (w *world) launcher() *Launcher {
	w.t.Helper()
	l, err := New(w.cfg)
	must(w.t, err)
	return l
}

// apply publishes the next revision.
func (w *world) apply(manifest string) {
	w.t.Helper()
	w.applied = manifest
	cat, err := deploy.Open(deploy.Config{Dir: w.dirs.Catalog(), TrustRoot: w.root, Now: time.Now, Define: w.define})
	must(w.t, err)
	file := filepath.Join(w.t.TempDir(), "bailiwick.yaml")
	must(w.t, os.WriteFile(file, []byte(manifest), 0o600))
	for name, content := range w.files {
		path := filepath.Join(filepath.Dir(file), name)
		must(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(w.t, os.WriteFile(path, []byte(content), 0o755)) //nolint:gosec // G306: some are programs
	}
	m, err := deploy.Load(context.Background(), file)
	must(w.t, err)
	plan, err := cat.Plan(context.Background(), m, deploy.Options{SourcesElsewhere: true})
	must(w.t, err)
	_, err = cat.Apply(context.Background(), plan, deploy.Approval{Author: "ann", Signers: []deploy.Signer{w.deployKey}})
	must(w.t, err)
	must(w.t, cat.Close())
}

// manifest returns the manifest of a new dispatch, as the service makes it.
func (w *world) manifest(of api.Name, envs ...api.Name) record.Manifest {
	w.t.Helper()
	cat, err := catalog.Open(openStore(w.t, w.dirs.Catalog()), w.root)
	must(w.t, err)
	rev, err := cat.Current(context.Background())
	must(w.t, err)
	sub, _, err := rev.Subagent(of)
	must(w.t, err)
	target, _, err := rev.Target(sub.Target)
	must(w.t, err)
	access, err := rev.Access(sub, target, envs)
	must(w.t, err)

	m := record.Manifest{
		V: 1, ID: api.NewDispatchID(w.now), Attempt: 1, Principal: "local:ann", Policies: []string{"grant:1"}, Revision: rev.Number(), RevisionDigest: rev.Digest(),
		Subagent: sub.Name, Capabilities: sub.Capabilities, Agent: sub.Agent, Role: sub.Role, Tier: sub.Tier, Ceiling: api.Reversible, Target: target.Name, Level: target.Level, Envs: envs,
		Limits: sub.Limits.Or(api.DefaultLimits()).Least(target.Limits), Egress: access.Egress, Secrets: access.Secrets, Tools: rev.ToolServers(sub.Role),
		Input: api.DigestOf([]byte("{}")), NotBefore: w.now.UTC().Add(-time.Second), Expires: w.now.UTC().Add(5 * time.Minute), Nonce: strings.Repeat("0", 32),
	}
	for _, ref := range m.Refs() {
		k, n, err := ref.Split()
		must(w.t, err)
		e, err := rev.Entry(k, n)
		must(w.t, err)
		m.Artifacts = append(m.Artifacts, record.Pin{Ref: ref, Digest: e.Digest})
	}
	return m
}

func (w *world) sign(m record.Manifest, by seal.Signer) []byte {
	w.t.Helper()
	doc, err := canon.Marshal(m)
	must(w.t, err)
	envelope, err := seal.Sign(context.Background(), seal.Manifest, doc, by)
	must(w.t, err)
	return envelope
}

// attempt returns what a service hands over to start m.
func (w *world) attempt(m record.Manifest) *Attempt {
	w.t.Helper()
	dir := w.dirs.Dispatch(m.ID, m.Attempt)
	must(w.t, os.MkdirAll(dir, 0o700))
	a := &Attempt{Manifest: w.sign(m, w.key), Keys: seal.NewHistory(seal.KeyOf(w.key, ""))}
	var err error
	a.Dir, err = os.Open(dir)
	must(w.t, err)
	a.Log, err = os.OpenFile(filepath.Join(dir, record.WorkErrors), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(w.t, err)
	w.control = filepath.Join(w.t.TempDir(), "s")
	l, err := net.Listen("unix", w.control)
	must(w.t, err)
	a.Control, err = l.(*net.UnixListener).File()
	must(w.t, err)
	for _, f := range []*os.File{a.Dir, a.Log} {
		must(w.t, f.Chown(w.cfg.UID, w.cfg.UID))
	}
	raw, err := a.Control.SyscallConn()
	must(w.t, err)
	must(w.t, raw.Control(func(fd uintptr) { err = os.Chown(fmt.Sprintf("/proc/self/fd/%d", fd), w.cfg.UID, w.cfg.UID) }))
	must(w.t, err)
	w.t.Cleanup(func() {
		for _, f := range []*os.File{a.Dir, a.Log, a.Control} {
			if f != nil {
				_ = f.Close()
			}
		}
		_ = l.Close()
	})
	return a
}

// start starts an attempt, waits for its worker, and returns what that printed.
func (w *world) start(l *Launcher, a *Attempt) (string, error) {
	w.t.Helper()
	p, err := l.Worker(context.Background(), a)
	if err != nil {
		return "", err
	}
	must(w.t, p.Wait())
	said, err := os.ReadFile(a.Log.Name())
	must(w.t, err)
	return string(said), nil
}

// refused fails unless err is a refusal that says want, with a code.
func refused(t *testing.T, err error, code api.Code, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || api.CodeOf(err) != code {
		t.Errorf("%v (%s), want %q (%s)", err, api.CodeOf(err), want, code)
	}
}

func clonePins(m record.Manifest) record.Manifest {
	m.Artifacts, m.Secrets = slices.Clone(m.Artifacts), slices.Clone(m.Secrets)
	return m
}

func ownerOf(st os.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Uid) }
