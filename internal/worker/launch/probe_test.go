package launch

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// asked sends a request to a socket and returns the answer.
func asked(t *testing.T, path string, r Request) (a Answer) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close() //nolint:errcheck // of a test
	r.V = Version
	must(t, unixframe.Write(conn.(*net.UnixConn), r))
	_, err = unixframe.Read(conn.(*net.UnixConn), &a, time.Minute)
	must(t, err)
	return a
}

// A trial runs as a worker does: the real program, under a block, whose jail then has every
// layer. The controls are a program that refuses, and one limit that nothing holds.
//
// proves R-S2
func TestAProbeTriesAJailAsAWorkerHasIt(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755)) //nolint:gosec // G302: the block runs a program of it
	}
	w.cfg.Worker, w.cfg.UID = filepath.Join(dir, "bailiwick-worker"), 0
	must(t, prebuilt.Program(w.cfg.Worker, "../../../cmd/bailiwick-worker"))
	path := w.serve(t, p.given(w.launcher()))
	a := asked(t, path, Request{Kind: KindProbe})
	if report := string(a.Report); a.Error != nil || !strings.Contains(report, `"full":true`) || !strings.Contains(report, `"limit memory"`) || !strings.Contains(report, "seccomp") {
		t.Errorf("%+v: %s", a.Error, a.Report)
	}
	t.Logf("%s, lacks %q", a.Report, a.Lacks)
	if list := asked(t, path, Request{Kind: KindList}); len(list.Running) > 0 {
		t.Errorf("left behind: %+v", list.Running)
	}

	w.cfg.System.Groups = &account.Groups{} // of a machine without control groups
	a = asked(t, w.serve(t, w.launcher()), Request{Kind: KindProbe})
	if a.Error == nil || a.Error.Code != api.CodeNotConfigured || !strings.Contains(a.Error.Message, "can limit memory") || !strings.Contains(a.Error.Hint, "unheld") {
		t.Errorf("without control groups: %+v, %q", a.Error, a.Lacks)
	}
	w.cfg.System.Settings.Held = nil // as root allows it
	a = asked(t, w.serve(t, w.launcher()), Request{Kind: KindProbe})
	if a.Error != nil || !strings.Contains(strings.Join(a.Lacks, "\n"), "memory: ") {
		t.Errorf("control: %+v, %q", a.Error, a.Lacks)
	}
	must(t, os.WriteFile(w.cfg.Worker, []byte("#!/bin/sh\necho no jail here >&2\nexit 1\n"), 0o755)) //nolint:gosec // G306: a program
	if a = asked(t, path, Request{Kind: KindProbe}); a.Error == nil || !strings.Contains(a.Error.Message, "no jail here") {
		t.Errorf("control: %+v", a)
	}
}

// The launcher says whether a worker could have a value, and nothing of the value.
//
// takeover system, service account: no read a secret
//
// proves R-D8, R-P5
func TestACheckOfASecretHasNothingOfTheValue(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	w.cfg.UID = 0
	const value = "hunt\n2r"
	set, other := p.encrypt(value), p.encrypt("of the attacker")
	path := w.serve(t, p.given(w.launcher()))
	check := func(ref string, content []byte, uses ...api.SecretKind) Answer {
		return asked(t, path, Request{Kind: KindSecret, Check: &SecretCheck{Ref: ref, Uses: uses}, Sealed: map[api.Name][]byte{"key": content}})
	}
	for _, c := range []struct {
		name, want string
		answer     func() Answer
	}{
		{"not set", "no operator has set it", func() Answer { return check("file:key", set) }},
		{"control: set", "", func() Answer {
			p.decide(p.ann, api.OperatorRecord{Verb: api.VerbSecretSet, Secret: "key", Content: api.DigestOf(set)})
			path = w.serve(t, p.given(w.launcher()))
			return check("file:key", set)
		}},
		{"another value", "operators set", func() Answer { return check("file:key", other) }},
		{"of the service", "use file:NAME", func() Answer { return check("env:HOME", set) }},
		{"no reference", "want file:NAME", func() Answer { return check("../identity", set) }},
		{"too short", "shorter than", func() Answer { return check("file:key", set, api.SecretExposed) }},
		{"a line break", "control character", func() Answer { return check("file:key", set, api.SecretModel) }},
		{"no credential", "no credential x", func() Answer { return check("credential:x", nil) }},
	} {
		a := c.answer()
		message := ""
		if a.Error != nil {
			message = a.Error.Message + a.Error.Hint
		}
		if (c.want == "") != (message == "") || !strings.Contains(message, c.want) || strings.Contains(message, "hunt") {
			t.Errorf("%s: %q, want %q", c.name, message, c.want)
		}
	}
}
