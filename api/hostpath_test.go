package api

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// proves R-S1
func TestPrivatePlacesAreNotShownReadOnly(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(p string) string { return filepath.Join(base, p) }
	for _, dir := range []string{"account/.ssh", "account/src", "service/state", "opt", "elsewhere"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"opt/keys": "account/.ssh", "opt/all": "account", "opt/src": "account/src", "home": "account"} {
		if err := os.Symlink(at(target), at(link)); err != nil {
			t.Fatal(err)
		}
	}
	v := Private{
		Dirs: Dirs{State: at("service/state"), Config: at("home/.config/bailiwick"), Data: at("data/bailiwick"), Runtime: at("runtime/bailiwick"), Home: at("home")},
		Also: []string{at("sockets/api.sock")}, Resolve: filepath.EvalSymlinks,
	}
	for _, p := range []string{
		"/", "relative", "/opt/../etc", "/proc", "/proc/1", "/sys/fs", "/dev", "/dev/shm", "/run", "/run/user/1000", "/var/run", "/var/run/docker.sock", "/var",
		"/home", "/home/ann", "/home/ann/.ssh", "/home/ann/.ssh/id_ed25519", "/home/ann/.gnupg", "/home/ann/.aws", "/home/ann/.config", "/home/ann/.config/gh", "/home/ann/.cargo",
		"/home/ann/.local", "/home/ann/.local/share", "/home/ann/.netrc", "/root", "/root/.ssh", "/root/.kube/config", "/etc/shadow", "/etc/ssh", "/etc/ssl/private/a.key", "/Users/ann", "/var/home/ann/.docker",
		at("home"), at("account"), base, at("account/.ssh"), at("home/.ssh/id"), at("account/.config"), at("service"), at("service/state"), at("service/state/store"),
		at("data"), at("data/bailiwick/catalog"), at("runtime/bailiwick"), at("sockets/api.sock"), at("sockets"), at("opt/keys"), at("opt/all"), at("opt/all/.ssh/id"), at("opt/all/.aws"),
	} {
		if v.CheckReadOnly(p) == nil {
			t.Errorf("%s is accepted", p)
		}
	}
	for _, p := range []string{
		"/usr/local/go", "/opt", "/srv/cache", "/var/cache/apt", "/var/lib/tools", "/etc/ssl/certs", "/tmp/x", "/home/ann/src", "/home/ann/go/pkg/mod", "/home/ann/.cache/go-build", "/home/ann/.cargo/registry",
		"/home/ann/.sshfs", "/root/go", at("opt/src"), at("opt"), at("account/src"), at("elsewhere"), at("elsewhere/not/yet"), at("service/other"), at("runtime/other"),
	} {
		if err := v.CheckReadOnly(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	// Other names, by mounts: those of the path, of what is mounted below it, and of the places.
	names := map[string][]string{
		"/mnt/a": {at("service")}, "/mnt/b/x": {at("service/state/store")}, "/mnt/c": {"/home/ann/.ssh"}, "/mnt/d": {"/home"}, at("service/state"): {"/mnt/disk/state"},
		"/mnt/e": {"/run/containers"}, at("sockets/api.sock"): {"/mnt/f/socket"}, "/home": {"/mnt/disk/homes"}, "/mnt/ok": {at("opt")},
	}
	v.Names = func(p string) []string { return names[p] }
	for _, p := range []string{
		"/mnt/a", "/mnt/b/x", "/mnt/c", "/mnt/d", "/mnt/disk", "/mnt/disk/state/store", "/mnt/e", "/mnt/f", "/mnt/disk/homes",
		"/home/ann/.SSH", "/HOME/ann/.ssh", "/Root", "/etc/Shadow", at("SERVICE/State"), "/RUN/docker.sock", "/home/ANN",
	} {
		if v.CheckReadOnly(p) == nil {
			t.Errorf("%s is accepted", p)
		}
	}
	for _, p := range []string{"/mnt/ok", "/mnt/b", "/srv"} {
		if err := v.CheckReadOnly(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	homeless := Private{Dirs: Dirs{Home: "/"}, Resolve: func(string) (string, error) { return "", errors.New("none") }}
	if err := homeless.CheckReadOnly("/opt"); err != nil {
		t.Error(err)
	}
}

// A server of tools with the service's own socket would speak for the service's account.
//
// takeover both modes, tool server: no define, widen, replay, start, approve, read work, rewrite the log, forge evidence
//
// proves R-G5
func TestSocketsOfTheInstallationAreNotReached(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(p string) string { return filepath.Join(base, p) }
	if err := os.MkdirAll(at("runtime/bailiwick"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("runtime"), at("link")); err != nil {
		t.Fatal(err)
	}
	v := Private{Dirs: Dirs{State: at("state"), Runtime: at("runtime/bailiwick")}, Also: []string{at("elsewhere/api.sock")}, Resolve: filepath.EvalSymlinks}
	for _, p := range []string{at("runtime/bailiwick/api.sock"), at("link/bailiwick/api.sock"), at("state/attempts/x.sock"), at("elsewhere/api.sock"), "/var/lib/bailiwick/api.sock"} {
		if v.CheckSocket(p) == nil {
			t.Errorf("%s is accepted", p)
		}
	}
	for _, p := range []string{"/run/postgresql/.s.PGSQL.5432", at("runtime/other.sock"), at("elsewhere/other.sock")} {
		if err := v.CheckSocket(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}
