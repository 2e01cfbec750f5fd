package e2e

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// shows replaces the read-only paths of target local.
func (w *world) shows(paths ...string) {
	w.t.Helper()
	w.manifest(subagent{name: "connects", script: connects, tier: "observe"})
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: guarded}", "{name: local, executor: jail, level: full, mode: guarded, readOnly: ["+strings.Join(paths, ", ")+"]}")
}

// connects lists the sockets of a directory and connects to each.
const connects = `perl -MIO::Socket::UNIX -e 'for my $s (glob("$ARGV[0]/*.sock")) { print "$s ", IO::Socket::UNIX->new(Peer => $s) ? "open" : "$!", "\n" }' "$1"`

// proves R-S1, R-S2
func TestReadOnlyPathReachesNoSocketOfTheHost(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		must(t, os.Chmod(w.dir, 0o755))
		w.mkdir("shown")
		at := w.path("shown/host.sock")
		listener, err := net.Listen("unix", at)
		must(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		must(t, os.Chmod(at, 0o777))
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.coldInit()
		w.shows(w.path("shown"))
		w.replace(manifest, "command: [./connects.sh]\n", "command: [./connects.sh, "+w.path("shown")+"]\n")
		w.must("catalog", "apply", "-f", w.path(manifest))
		w.up()
		d := w.dispatch("connects")
		wantEnd(t, d, api.EventFinished, "")
		if got := w.must("dispatch", "logs", string(d.ID)); got != at+" Connection refused\n" {
			t.Errorf("in the jail: %s", got)
		}
		if got := w.exec("perl", "-MIO::Socket::UNIX", "-e", "print IO::Socket::UNIX->new(Peer => '"+at+"') ? 'open' : $!"); got.stdout != "open" {
			t.Errorf("control on the host: %s", got)
		}
		if !slices.ContainsFunc(d.Outcome.Isolation.Layers, func(s string) bool { return strings.HasPrefix(s, "host files by overlay") }) {
			t.Errorf("layers %v", d.Outcome.Isolation.Layers)
		}
	})
}

// proves R-S1
func TestPrivatePlacesAreRefusedReadOnly(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		must(t, os.Chmod(w.dir, 0o755))
		w.mkdir("shown")
		w.mkdir("home/.ssh")
		w.coldInit()
		must(t, os.Symlink(w.path("home/.ssh"), w.path("shown/link")))
		for _, p := range []string{
			w.dir, w.path("state"), w.path("state/bailiwick/store"), w.path("run/bailiwick"), w.path("config"), w.path("home"), w.path("home/.ssh"), w.path("home/.aws"),
			w.path("shown/link"), "/run", "/var/run/dbus", "/proc", "/dev/shm", "/home/somebody/.gnupg", "/root",
		} {
			w.shows("/usr/share", p)
			w.refused(1, []string{"bailiwick.yaml:", "readOnly[1]", "path \"" + p + "\""}, "catalog", "plan", "-f", w.path(manifest))
		}
		// What humans signed elsewhere is refused where it is used.
		w.shows(w.path("state/bailiwick"))
		if w.unit != nil { // a machine has no other state
			w.refused(1, []string{"which no jail may see"}, "catalog", "apply", "-f", w.path(manifest))
			return
		}
		elsewhere := *w
		elsewhere.env = append(slices.Clone(w.env), "XDG_STATE_HOME="+w.path("tmp"))
		elsewhere.must("catalog", "apply", "-f", w.path(manifest))
		w.up()
		d := w.dispatch("connects")
		wantEnd(t, d, api.EventFailed, api.ReasonSetup)
		if want := `target "local": readOnly[0]: path "` + w.path("state/bailiwick") + `" is, contains or is below`; !strings.Contains(d.Message, want) {
			t.Errorf("message %q lacks %q", d.Message, want)
		}
		// So is a link that was a directory when it was signed.
		w.shows(w.path("shown"))
		w.must("catalog", "apply", "-f", w.path(manifest))
		must(t, os.RemoveAll(w.path("shown")))
		must(t, os.Symlink(w.path("state"), w.path("shown")))
		d = w.dispatch("connects")
		wantEnd(t, d, api.EventFailed, api.ReasonSetup)
		if !strings.Contains(d.Message, w.path("state/bailiwick")) {
			t.Errorf("message %q", d.Message)
		}
		// So is a directory where the state was mounted since.
		w.mkdir("tools/below")
		w.shows(w.path("tools"))
		w.must("catalog", "apply", "-f", w.path(manifest))
		d = w.dispatch("connects")
		wantEnd(t, d, api.EventFinished, "")
		must(t, unix.Mount(w.path("state/bailiwick/store"), w.path("tools/below"), "", unix.MS_BIND, ""))
		t.Cleanup(func() { _ = unix.Unmount(w.path("tools/below"), unix.MNT_DETACH) })
		for _, p := range []string{w.path("tools"), w.path("tools/below")} {
			w.shows("/usr/share", p)
			w.refused(1, []string{"bailiwick.yaml:", "readOnly[1]", "path \"" + p + "\""}, "catalog", "plan", "-f", w.path(manifest))
		}
		d = w.dispatch("connects")
		wantEnd(t, d, api.EventFailed, api.ReasonSetup)
		if !strings.Contains(d.Message, `readOnly[0]: path "`+w.path("tools")+`" is, contains or is below `+w.path("state/bailiwick")) {
			t.Errorf("message %q", d.Message)
		}
	})
}
