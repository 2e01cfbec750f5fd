package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// terminal runs bailiwick on a pseudo-terminal, types the answers to its
// prompts, and returns its result and the terminal's output.
func (w *world) terminal(types string, args ...string) (done, string) {
	w.t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(w.t, err)
	defer control.Close() //nolint:errcheck // the test's side of the terminal
	must(w.t, unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	must(w.t, err)
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(w.t, err)
	must(w.t, tty.Chown(w.uid, w.uid))
	cmd := w.command(filepath.Join(bin, "bailiwick"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &errs, []*os.File{tty}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 3
	must(w.t, cmd.Start())
	must(w.t, tty.Close()) // it ends when its last process exits
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for prompts := 0; ; {
		n, err := control.Read(buf)
		seen.Write(buf[:n])
		if asked := strings.Count(seen.String(), "assphrase"); asked > prompts && strings.HasSuffix(seen.String(), ": ") {
			prompts = asked
			for echoes(w.t, control) { // the prompt is printed before echo is switched off
			}
			_, err := control.WriteString(types + "\n")
			must(w.t, err)
		}
		if err != nil { // EIO: no process has it open
			break
		}
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}, seen.String()
}

func echoes(t testing.TB, control *os.File) bool {
	st, err := unix.IoctlGetTermios(int(control.Fd()), unix.TCGETS)
	must(t, err)
	return st.Lflag&unix.ECHO != 0
}

const phrase = "correct horse battery"

// A program without a terminal cannot make a decision, whatever its
// environment, standard input or method of calling. The control is a person at
// a terminal.
//
// takeover same-user, MCP program; a person's account; page; root; service account; worker: yes approve
// takeover system, MCP program; a person's account: no approve
//
// proves R-B9, R-T5
func TestDecisionsNeedATerminal(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		first := func() {
			if d, seen := w.terminal(phrase, "init", w.path("project")); d.status != 0 || strings.Contains(seen, phrase) {
				t.Fatalf("%s\n%s", d, seen)
			}
		}
		if w.unit != nil {
			w.unit.beforeSetup(first)
		} else {
			first()
		}
		w.manifest(subagent{name: "edit", script: "echo done > done.txt"})
		if d, seen := w.terminal(phrase, "catalog", "apply", "-f", w.path(manifest)); d.status != 0 {
			t.Fatalf("%s\n%s", d, seen)
		}
		w.up()
		hint := "bailiwick ceiling set " + w.me() + " reversible"
		w.refused(3, []string{"the ceiling of " + w.me() + " is observe", hint}, "dispatch", "run", "edit", "--source", "repo")

		for _, name := range []string{"BAILIWICK_PASSPHRASE", "PASSPHRASE", "AGE_PASSPHRASE", "SSH_ASKPASS", "BAILIWICK_OPERATOR_PASSPHRASE"} {
			w.env = append(w.env, name+"="+phrase)
		}
		undecided := func(d done) {
			t.Helper()
			if d.status != 4 || !strings.Contains(d.stderr, "no terminal to ask for a passphrase on") || d.stdout != "" {
				t.Errorf("a decision without a terminal: %s", d)
			}
		}
		withInput := func(args ...string) done {
			cmd := w.command(filepath.Join(bin, "bailiwick"), args...)
			var out, errs bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Repeat(phrase+"\n", 3)), &out, &errs
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.Setsid = true // without the tests' own terminal
			_ = cmd.Run()
			return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
		}
		w.must("stop", "--principal", w.me()) // a stop needs no terminal
		for _, args := range [][]string{
			{"ceiling", "set", w.me(), "irreversible"}, {"principal", "add", "agent:claude"}, {"stop", "lift", "s-1"},
		} {
			undecided(withInput(args...))
		}
		if n := len(w.entries("--kind", "operator.recorded")); n != 0 {
			t.Errorf("%d decisions are in the log", n)
		}
		// The control: an unencrypted key signs the same way, and says so. That no
		// operator of this service has it refuses the decision.
		if d := w.try("operator", "keygen", "--insecure-unencrypted", "--key", w.path("plain")); d.status != 0 {
			t.Fatal(d)
		}
		if d := withInput("principal", "add", "agent:claude", "--key", w.path("plain")); d.status == 4 || !strings.Contains(d.stderr, "WARNING: It signs this without asking a person") {
			t.Errorf("the control: an unencrypted key without a terminal: %s", d)
		}
		w.refused(3, []string{"emergency stop s-1"}, "dispatch", "run", "edit", "--source", "repo")

		if d, _ := w.terminal("wrong horse battery", "stop", "lift", "s-1"); d.status != 4 || !strings.Contains(d.stderr, "the passphrase is wrong") {
			t.Errorf("a wrong passphrase: %s", d)
		}
		for _, c := range []struct {
			words string
			args  []string
		}{
			{"Lift the emergency stop s-1", []string{"stop", "lift", "s-1"}},
			{"acting up to the tier REVERSIBLE", []string{"ceiling", "set", w.me(), "reversible", "--reason", "ok\nprincipal x"}},
		} {
			d, seen := w.terminal(phrase, c.args...)
			if d.status != 0 || !strings.Contains(seen, c.words) || strings.Contains(seen, phrase) || strings.Contains(seen, "\nprincipal x") {
				t.Errorf("%s\nthe terminal shows %q", d, seen)
			}
		}
		wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	})
}

// Every principal starts at observe until an operator raises it; lowering
// applies at once; both survive a restart.
//
// proves R-T5
func TestDefaultCeilingIsObserve(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.must("init", "--insecure-unencrypted", w.path("project"))
	w.manifest(subagent{name: "edit", script: "echo x > x.txt"}, subagent{name: "look", script: "true", tier: "observe"})
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	edit := func() int { return w.try("dispatch", "run", "edit", "-q", "--source", "repo").status }
	look := func() int { return w.try("dispatch", "run", "look", "-q").status }
	for i, c := range []struct {
		set          string
		edits, looks int
	}{{"", 3, 0}, {"reversible", 0, 0}, {"observe", 3, 0}, {"irreversible", 0, 0}} {
		if c.set != "" {
			w.must("ceiling", "set", w.me(), c.set)
		}
		for range 2 {
			if e, l := edit(), look(); e != c.edits || l != c.looks {
				t.Errorf("step %d: edit %d, look %d", i, e, l)
			}
			w.must("down")
			w.must("up")
		}
	}
	for _, args := range [][]string{{w.me(), "everything"}, {w.me(), "Observe"}, {"me", "observe"}, {"agent:nobody", "observe"}} {
		w.refused(1, nil, append([]string{"ceiling", "set"}, args...)...)
	}
	w.refused(1, []string{"unknown principal agent:nobody", "bailiwick principal add agent:nobody"}, "ceiling", "set", "agent:nobody", "observe")
}

// A removed principal has no identity from then on. A typo or an unset variable
// that would have removed one is refused or reported before anything is signed.
//
// proves R-T4, R-T5
func TestRemovedPrincipalsAndTyposAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	w.must("principal", "add", "agent:claude")
	w.must("ceiling", "set", "agent:claude", "stateful")
	text := strings.TrimSpace(w.must("token", "create", "agent:claude"))
	if s := w.exchange(text); s.Principal != "agent:claude" || s.Ceiling != api.Stateful {
		t.Fatalf("positive control: %+v", s)
	}
	decided := len(w.entries("--kind", "operator.recorded"))
	for _, c := range []struct {
		words string
		args  []string
	}{
		{"to 732d", []string{"token", "create", "agent:claude", "--expires", "733d"}},
		{"--out: want the name", []string{"token", "create", "agent:claude", "--out", ""}},
		{"issuer", []string{"principal", "add", "agent:remote", "--oauth-issuer", "", "--oauth-subject", ""}},
		{"unknown principal", []string{"principal", "remove", "agent:cluade"}},
		{"operating system", []string{"principal", "remove", w.me()}},
	} {
		if d := w.try(c.args...); d.status != 1 || !strings.Contains(d.stderr, c.words) || strings.Contains(d.stderr+d.stdout, "ONE decision") {
			t.Errorf("%q: %s", c.args, d)
		}
	}
	if n := len(w.entries("--kind", "operator.recorded")); n != decided {
		t.Errorf("%d decisions, want %d", n, decided)
	}
	for _, args := range [][]string{{"ceiling", "set", "local:who", "observe"}, {"stop", "--principal", "local:who"}} {
		if d := w.try(args...); d.status != 0 || !strings.Contains(d.stderr, "note: local:who has no grant") {
			t.Errorf("%q: %s", args, d)
		}
	}
	if d := w.try("ceiling", "set", w.me(), "observe"); d.status != 0 || strings.Contains(d.stderr, "note:") {
		t.Errorf("positive control: %s", d)
	}

	if out := w.must("principal", "remove", "agent:claude"); !strings.Contains(out, "bailiwick stop --principal agent:claude") {
		t.Errorf("principal remove prints %q", out)
	}
	for range 2 {
		c := client.New(client.Config{Socket: w.path("run/bailiwick/api.sock"), UIDs: []int{w.serviceUID()}})
		if _, err := c.Exchange(t.Context(), text); api.CodeOf(err) != api.CodeUnauthenticated || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("the token is still valid: %v", err)
		}
		c.Close()
		w.must("principal", "add", "agent:claude") // does not restore the principal's tokens
		var info api.PrincipalInfo
		decode(t, w.must("principal", "show", "agent:claude", "-o", "json"), &info)
		if info.Ceiling != api.Observe || len(info.Tokens) != 1 || info.Tokens[0].State != api.TokenRevoked {
			t.Errorf("the new principal is %+v", info)
		}
		w.must("principal", "remove", "agent:claude")
	}
	if list := w.must("audit", "list", "--kind", "operator.recorded"); !strings.Contains(list, "principal agent:claude removed with its tokens and its ceiling") {
		t.Errorf("the log lacks the removal: %s", list)
	}
}

// A token is shown once and never stored; it is invalid once revoked or
// rotated.
//
// proves R-T4
func TestTokenIsShownOnceAndRevocable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	w.refused(1, []string{"unknown principal agent:claude", "bailiwick principal add agent:claude"}, "token", "create", "agent:claude")
	w.refused(1, []string{"the operating system authenticates"}, "token", "create", w.me())
	w.must("principal", "add", "agent:claude")
	w.refused(1, []string{"already exists"}, "principal", "add", "agent:claude")

	d := w.try("token", "create", "agent:claude", "--expires", "30d", "--reason", "the first")
	text := strings.TrimSuffix(d.stdout, "\n")
	if d.status != 0 || api.CheckToken(text) != nil || strings.Contains(d.stderr, text) || !strings.Contains(d.stderr, "printed only once") {
		t.Fatalf("token create: %s", d)
	}
	if s := w.exchange(text); s.Principal != "agent:claude" || s.Ceiling != api.Observe {
		t.Errorf("the session is %+v", s)
	}
	var made struct {
		ID          api.TokenID
		Token, File string
		ExpiresAt   time.Time
	}
	file := w.path("second.token")
	decode(t, w.must("token", "create", "agent:claude", "--out", file, "-o", "json"), &made)
	second, err := os.ReadFile(file)
	must(t, err)
	info, err := os.Stat(file)
	must(t, err)
	if made.Token != "" || made.File != file || info.Mode().Perm() != 0o600 || api.CheckToken(strings.TrimSpace(string(second))) != nil || time.Until(made.ExpiresAt) < 89*24*time.Hour {
		t.Errorf("%+v, mode %v, %q", made, info.Mode(), second)
	}
	w.refused(1, []string{"file exists", "existing files are not overwritten"}, "token", "create", "agent:claude", "--out", file)
	w.refused(1, []string{"want --out", "--out"}[1:], "token", "create", "agent:claude", "-o", "name")
	w.refused(1, []string{"--expires"}, "token", "create", "agent:claude", "--expires", "1s")
	if _, err := os.Stat(w.path("third.token")); w.try("token", "create", "agent:nobody", "--out", w.path("third.token")).status != 1 || !errors.Is(err, fs.ErrNotExist) {
		t.Error("a failed command left a token file")
	}
	for _, dir := range []string{"state", "data", "config", "run", "home", "tmp"} {
		must(t, eachFile(w.path(dir), func(path string, f *os.File) error {
			b, err := io.ReadAll(f)
			if err == nil && (bytes.Contains(b, []byte(text)) || bytes.Contains(b, bytes.TrimSpace(second))) {
				t.Errorf("%s contains a token", path)
			}
			return err
		}))
	}
	if out := w.must("token", "list"); strings.Contains(out, "bwt_") || strings.Count(out, "active") != 2 {
		t.Errorf("the list is %q", out)
	}

	first, _, _ := strings.Cut(strings.TrimPrefix(d.stderr[strings.Index(d.stderr, "token t-"):], "token "), " ")
	rotated := strings.TrimSpace(w.must("token", "rotate", first))
	w.must("token", "revoke", string(made.ID))
	for name, c := range map[string]struct {
		token string
		good  bool
	}{"rotated away": {text, false}, "in its place": {rotated, true}, "revoked": {strings.TrimSpace(string(second)), false}} {
		body, err := json.Marshal(api.SessionRequest{Token: c.token})
		must(t, err)
		status, answer := w.call("POST", "/v1/session", "application/json", bytes.NewReader(body))
		if (status == 200) != c.good || !c.good && status != 401 {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	w.refused(1, []string{"was revoked at"}, "token", "revoke", string(made.ID))
	w.refused(1, []string{"no such token t-aaaaaaaaaaaa"}, "token", "rotate", "t-aaaaaaaaaaaa")
	if d := w.refused(1, []string{"this is a token, which is secret", "bailiwick token list"}, "token", "revoke", rotated); strings.Contains(d.stderr, rotated[:20]) {
		t.Errorf("the refusal shows the token: %s", d)
	}
	if out := w.must("principal", "show", "agent:claude"); !strings.Contains(out, "added by an operator") || !strings.Contains(out, "revoked at") {
		t.Errorf("shown as %q", out)
	}
	if out := w.must("principal", "list", "-o", "name"); out != "agent:claude\n"+w.me()+"\n" {
		t.Errorf("the principals are %q", out)
	}
}
