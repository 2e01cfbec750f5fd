package api

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// CheckHostPath refuses host paths that a target cannot show in a jail: those not
// absolute and clean, and those that the jail provides itself.
func CheckHostPath(p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.ContainsAny(p, ":\n\x00") {
		return fmt.Errorf("path %q: want an absolute, clean path without a colon", p)
	}
	for _, own := range []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/workspace", "/home/agent"} {
		if p == "/" || within(p, own) || within(own, p) && p != "/var" {
			return fmt.Errorf("path %q: the jail has its own %s; name another path", p, own)
		}
	}
	if p == "/etc" || p == "/tmp" {
		return fmt.Errorf("path %q: the jail has its own; name a path below it", p)
	}
	return nil
}

// Private are the places of a machine that no jail is shown, beside those that
// CheckHostPath refuses: the installation's own, those with passwords and keys of
// the machine, and home directories with the credentials in them.
type Private struct {
	Dirs Dirs
	Also []string // further places of the installation, such as a socket or a key
	// Resolve is filepath.EvalSymlinks; nil compares paths as they are written.
	Resolve func(string) (string, error)
}

// credentials are the names in a home directory that hold keys, tokens and
// histories, and settings that programs run.
func credentials() []string {
	return []string{
		".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".netrc", ".git-credentials", ".gitconfig", ".npmrc", ".pypirc", ".pgpass",
		".my.cnf", ".vault-token", ".password-store", ".age", ".terraform.d", ".terraformrc", ".boto", ".s3cfg", ".oci", ".m2/settings.xml", ".m2/settings-security.xml",
		".gradle/gradle.properties", ".gem/credentials", ".bundle/config", ".nuget/NuGet", ".cargo/credentials", ".cargo/credentials.toml", ".claude", ".claude.json", ".codex", ".gemini",
		".local/share/opencode", ".local/share/keyrings", ".local/share/kwalletd", ".local/state", ".mozilla", ".thunderbird", ".electrum", ".bitcoin",
		".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history", ".Xauthority", ".ICEauthority", ".pki",
	}
}

// CheckReadOnly refuses a host path that a jail must not be shown read-only: one
// that is, contains or lies in a private place, also by symbolic links.
func (v Private) CheckReadOnly(p string) error {
	if err := CheckHostPath(p); err != nil {
		return err
	}
	forms := v.forms(p)
	for _, form := range forms {
		if err := CheckHostPath(form); err != nil {
			return fmt.Errorf("path %q leads elsewhere: %w", p, err)
		}
		for _, place := range v.places() {
			if within(form, place) || within(place, form) {
				return fmt.Errorf("path %q is, contains or lies in %s, which jails are not shown; name another path", p, place)
			}
		}
		for _, home := range append(v.homes(), homeOf(form)...) {
			if err := checkHome(p, form, home); err != nil {
				return err
			}
		}
	}
	return nil
}

// places returns the places that no jail is shown, in whole or in part.
func (v Private) places() (all []string) {
	for _, p := range append([]string{
		v.Dirs.State, v.Dirs.Config, v.Dirs.Data, v.Dirs.Runtime, "/var/run", "/etc/bailiwick", "/var/lib/bailiwick",
		"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl/private",
	}, v.Also...) {
		if filepath.IsAbs(p) {
			all = append(all, v.forms(p)...)
		}
	}
	return all
}

// homes returns the home directory of the account, unless it has none.
func (v Private) homes() []string {
	if !filepath.IsAbs(v.Dirs.Home) || path.Clean(v.Dirs.Home) == "/" {
		return nil
	}
	return v.forms(path.Clean(v.Dirs.Home))
}

// homeOf returns the home directory that a path is, contains or lies in, by where
// systems put home directories.
func homeOf(p string) []string {
	for _, parent := range []string{"/home", "/Users", "/var/home"} {
		if within(parent, p) {
			return []string{parent}
		}
		if within(p, parent) {
			name, _, _ := strings.Cut(strings.TrimPrefix(p, parent+"/"), "/")
			return []string{parent + "/" + name}
		}
	}
	return []string{"/root"}
}

func checkHome(p, form, home string) error {
	if within(home, form) {
		return fmt.Errorf("path %q is or contains the home directory %s; name a path below it", p, home)
	}
	rest, ok := strings.CutPrefix(form, home+"/")
	for _, name := range credentials() {
		if ok && (within(rest, name) || within(name, rest)) {
			return fmt.Errorf("path %q is, contains or lies in %s/%s, where credentials are kept; name another path", p, home, name)
		}
	}
	return nil
}

// forms returns a path as it is written and, if that differs, without symbolic
// links. Of a path that does not exist its existing parents are resolved.
func (v Private) forms(p string) []string {
	if v.Resolve == nil {
		return []string{p}
	}
	rest := ""
	for dir := p; ; dir = filepath.Dir(dir) {
		if real, err := v.Resolve(dir); err == nil {
			if real = filepath.Join(real, rest); real != p {
				return []string{p, real}
			}
			return []string{p}
		}
		if dir == "/" || dir == "." {
			return []string{p}
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// within reports whether a path is dir or lies in it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
