package api

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
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
	// Names returns the names that a path without symbolic links, and what is mounted below it, have by other mounts; nil
	// knows none.
	Names func(string) []string
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
// that is, contains or is below a private place, also by symbolic links, by mounts
// that show a place twice, or in other case, which some file systems ignore.
func (v Private) CheckReadOnly(p string) error {
	if err := CheckHostPath(p); err != nil {
		return err
	}
	for _, form := range v.resolved(p) {
		if err := CheckHostPath(form); err != nil {
			return fmt.Errorf("path %q leads elsewhere: %w", p, err)
		}
	}
	places, homes := v.places(), v.homes()
	for _, form := range v.forms(p) {
		for _, place := range places {
			if covers(place, form) || covers(form, place) {
				return fmt.Errorf("path %q is, contains or is below %s, which no jail may see; name another path", p, place)
			}
		}
		for _, home := range slices.Concat(homes, homeOf(form)) {
			if err := checkHome(p, form, home); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckSocket refuses the path of a socket that a jail must not reach: one of the
// installation, behind which its own account would speak.
func (v Private) CheckSocket(p string) error {
	places := v.everyForm(v.installation())
	for _, form := range v.forms(p) {
		for _, place := range places {
			if covers(place, form) {
				return fmt.Errorf("socket %q is in %s, which is the installation's own", p, place)
			}
		}
	}
	return nil
}

// places returns the places that no jail is shown, in whole or in part.
func (v Private) places() []string {
	own := []string{"/run", "/var/run"} // their own mounts may be views of whole other systems
	return append(own, v.everyForm(append([]string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl/private"}, v.installation()...))...)
}

// installation returns the installation's own places.
func (v Private) installation() []string {
	return append([]string{v.Dirs.State, v.Dirs.Config, v.Dirs.Data, v.Dirs.Runtime, "/etc/bailiwick", "/var/lib/bailiwick", "/var/lib/bailiwick-launch"}, v.Also...)
}

func (v Private) everyForm(paths []string) (all []string) {
	for _, p := range paths {
		if filepath.IsAbs(p) {
			all = append(all, v.forms(p)...)
		}
	}
	return all
}

// homes returns the home directory of the account, unless it has none, and those
// that hold home directories.
func (v Private) homes() (all []string) {
	if filepath.IsAbs(v.Dirs.Home) && path.Clean(v.Dirs.Home) != "/" {
		all = v.forms(path.Clean(v.Dirs.Home))
	}
	for _, parent := range append(homeParents(), "/root") {
		all = append(all, v.forms(parent)...)
	}
	return all
}

// homeParents is where systems put home directories.
func homeParents() []string { return []string{"/home", "/Users", "/var/home"} }

// homeOf returns the home directory that a path is or lies in, by where systems put
// home directories.
func homeOf(p string) []string {
	for _, parent := range homeParents() {
		if covers(parent, p) && len(p) > len(parent) {
			name, _, _ := strings.Cut(p[len(parent)+1:], "/")
			return []string{p[:len(parent)+1+len(name)]}
		}
	}
	return nil
}

func checkHome(p, form, home string) error {
	if covers(form, home) {
		return fmt.Errorf("path %q is or contains the home directory %s; name a path below it", p, home)
	}
	if !covers(home, form) {
		return nil
	}
	rest := form[len(home)+1:]
	for _, name := range credentials() {
		if covers(name, rest) || covers(rest, name) {
			return fmt.Errorf("path %q is, contains or is below %s/%s, where credentials are kept; name another path", p, home, name)
		}
	}
	return nil
}

// forms returns every name of a path that the machine tells.
func (v Private) forms(p string) []string {
	all := v.resolved(p)
	if v.Names != nil {
		all = append(all, v.Names(all[len(all)-1])...)
	}
	return all
}

// resolved returns a path as it is written and, if that differs, without symbolic
// links. Of a path that does not exist its existing parents are resolved.
func (v Private) resolved(p string) []string {
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

// covers is within in any case: some file systems ignore it.
func covers(dir, p string) bool {
	return len(p) >= len(dir) && strings.EqualFold(p[:len(dir)], dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}
