package signin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inDesktop makes this program the command of a person in a desktop session.
const inDesktop = "BAILIWICK_TEST_DESKTOP"

func TestMain(m *testing.M) {
	if path := os.Getenv(inDesktop); path != "" {
		os.Exit(desktopSession(path))
	}
	os.Exit(m.Run())
}

const desktopURL = "https://bailiwick.example:7717"

// desktopSession keeps, reads and forgets a login.
func desktopSession(path string) int {
	s := Store{Path: path, Now: time.Now, Keyring: Desktop(os.LookupEnv)}
	if s.Keyring == nil {
		return 3
	}
	k := kept{V: 1, Servers: map[string]login{}}
	if err := s.put(&k, desktopURL, login{Token: "bwt_first"}); err != nil || !k.Servers[desktopURL].Keyring {
		return 4
	}
	if err := s.put(&k, desktopURL, login{Token: "bwt_second"}); err != nil || k.Servers[desktopURL].Token != "" {
		return 5
	}
	if l, ok, err := s.of(k, desktopURL); err != nil || !ok || l.Token != "bwt_second" {
		return 6
	}
	for range 2 {
		if s.Keyring.Delete(desktopURL) != nil {
			return 7
		}
	}
	if _, _, err := s.of(k, desktopURL); err == nil {
		return 8
	}
	return 0
}

// The Secret Service of a desktop, gnome-keyring, keeps a login. Control: without a session
// bus there is no keyring, and on a bus without a keyring the file keeps it.
//
// proves R-D8
func TestTheSecretServiceKeepsALogin(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) (string, int) {
		t.Helper()
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "dbus-run-session", "--", "sh", "-c", script)
		if script == "" {
			cmd = exec.CommandContext(t.Context(), self)
		}
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "XDG_DATA_HOME=" + home, "XDG_DATA_DIRS=" + home, inDesktop + "=" + filepath.Join(home, "logins.json"), "SELF=" + self}
		out, _ := cmd.CombinedOutput() // the status says it
		return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
	}
	const unlocked = `
printf 'a password' | gnome-keyring-daemon --foreground --unlock --components=secrets > /dev/null 2>&1 &
ring=$!
until dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner string:org.freedesktop.secrets | grep -q true; do sleep 0.02; done
"$SELF"; status=$?
kill $ring; wait $ring
exit $status
`
	if out, status := run(unlocked); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
	if out, status := run(`exec "$SELF"`); status != 4 {
		t.Errorf("on a bus without a keyring: status %d: %s", status, out)
	}
	if out, status := run(""); status != 3 {
		t.Errorf("without a bus: status %d: %s", status, out)
	}
}
