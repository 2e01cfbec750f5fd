package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// reachChecks are doctor's checks of what an agent with a shell as this account
// could use of the operator's power: operator keys and stray tokens (R-B9).
func (t *doctor) reachChecks(ctx context.Context) []check {
	now := t.operatorKeys(ctx)
	out := []check{t.operatorsCheck(now)}
	if _, err := os.Stat(t.Dirs.OperatorKey()); err == nil {
		c := keyCheck(ctx, "operator key", t.Dirs.OperatorKey(), "can raise its own ceiling, create tokens and lift stops", "create one with a passphrase: bailiwick operator keygen --key FILE, and put it in place of this one: bailiwick operators rotate ID FILE.pub")
		out = append(out, retiredCheck(c, t.Dirs.OperatorKey(), now))
	}
	out = append(out, tokenChecks(t.tokenPlaces())...)
	return append(out, ptraceCheck("/proc/sys/kernel/yama/ptrace_scope"))
}

// operatorKeys returns the operator keys that a running service has; nil without one.
func (t *doctor) operatorKeys(ctx context.Context) *api.OperatorKeys {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	conn := client.New(client.Config{Socket: t.socket, Dirs: t.Dirs, UIDs: t.UIDs})
	defer conn.Close()
	keys, err := conn.Operator().Keys(ctx)
	if err != nil {
		return nil
	}
	return &keys
}

// retiredCheck adds to the check of an operator key that it is retired.
func retiredCheck(c check, path string, now *api.OperatorKeys) check {
	key, err := seal.LoadPublic(path)
	if err != nil || now == nil {
		return c
	}
	for _, k := range now.Keys {
		if k.ID == string(key.ID) && k.Retired != nil {
			return check{name: c.name, advice: true, found: fmt.Sprintf("%s is retired since set %d: it signs nothing more", path, k.Retired.Set), fix: "name another with --key, or move another key there; see: bailiwick operators list"}
		}
	}
	return c
}

func signersOf(root seal.TrustRoot) string {
	return record.Signers(int64(root.Threshold), int64(len(root.Keys)), "operator key", root.Assigned())
}

// operatorsCheck checks the operators' trust root, and the set of operator keys in force
// if a service runs.
func (t *doctor) operatorsCheck(now *api.OperatorKeys) check {
	c := check{name: "operators", advice: true}
	root, err := seal.LoadTrustRoot(t.Dirs.OperatorRoot())
	if err != nil {
		c.found, c.fix = err.Error(), "without operators every ceiling stays observe; run: bailiwick init"
		return c
	}
	c.found = fmt.Sprintf("%s: %s must sign", t.Dirs.OperatorRoot(), signersOf(root))
	c.ok = true
	follows := now != nil && now.Set > 1
	if follows {
		if root, err = seal.ParseTrustRoot(now.Root); err != nil {
			c.ok, c.found = false, err.Error()
			return c
		}
		c.found = fmt.Sprintf("set %d in force: %s must sign; %s is set 1, and a service with another one does not start", now.Set, signersOf(root), t.Dirs.OperatorRoot())
	}
	if deploy, err := seal.LoadDeployKeys(t.Dirs); err == nil {
		for _, k := range root.Keys {
			if slices.ContainsFunc(deploy.Keys, func(d seal.Key) bool { return d.ID == k.ID }) {
				c.ok, c.found = false, c.found+fmt.Sprintf("; %s is a deploy key too: its owner can both define workers and raise ceilings", k.ID)
			}
		}
	}
	if !root.Assigned() {
		c.ok, c.found = false, c.found+"; no key has a principal, so nobody can vote about approvals"
		c.fix = "say once whose each key is: bailiwick operators assign KEY=PRINCIPAL ..."
	}
	if f, err := os.OpenFile(t.Dirs.OperatorRoot(), os.O_WRONLY, 0); err == nil {
		if !follows {
			c.ok, c.found = false, c.found+"; every program of this account can add its own key there, until a set follows it"
		}
		if err := f.Close(); err != nil {
			c.found = err.Error()
		}
	}
	return c
}

// maxScan bounds how much of a file is searched for a token, in bytes.
const maxScan = 8 << 20

var tokenPattern = regexp.MustCompile(api.TokenPrefix + `[0-9a-f]{64}`)

// tokenPlaces lists the files where a token may be stored or left by mistake: this
// program's directories, settings of AI clients and shell histories.
func (t *doctor) tokenPlaces() (files []string) {
	for _, dir := range []string{t.Dirs.Config, t.Dirs.Data} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // missing or not readable
		}
		for _, e := range entries {
			if e.Type().IsRegular() {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	home := ""
	for _, kv := range t.Env {
		if v, ok := strings.CutPrefix(kv, "HOME="); ok && filepath.IsAbs(v) {
			home = v
		}
	}
	if home == "" {
		return files
	}
	for _, name := range []string{
		".bash_history", ".zsh_history", ".local/share/fish/fish_history", ".bashrc", ".profile", ".zshrc", ".env",
		".claude.json", ".claude/settings.json", ".codex/config.toml", ".config/opencode/opencode.json", ".gemini/settings.json", ".cursor/mcp.json",
	} {
		files = append(files, filepath.Join(home, name))
	}
	return files
}

// tokenChecks reports which of files hold a token. It never prints the token.
func tokenChecks(files []string) (out []check) {
	for _, path := range files {
		mode, found, err := holdsToken(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || err == nil && !found {
			continue
		}
		c := check{name: "token", advice: true, found: path + " contains a token: every program of this account can read it and act as its principal, up to its ceiling"}
		switch {
		case err != nil:
			c.found = err.Error()
		case mode.Perm()&0o077 != 0:
			c.found, c.fix = path+" contains a token and is readable by other accounts", "run: chmod 600 "+path+"; then run: bailiwick token rotate ID"
		case strings.HasSuffix(path, "history"):
			c.fix = "remove it from there; then run: bailiwick token rotate ID"
		}
		out = append(out, c)
	}
	if out == nil {
		out = append(out, check{name: "tokens", ok: true, found: "none found in bailiwick's directories, settings of AI clients and shell histories"})
	}
	return out
}

func holdsToken(path string) (fs.FileMode, bool, error) {
	f, err := os.Open(path) //nolint:gosec // G304: from tokenPlaces
	if err != nil {
		return 0, false, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, false, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxScan))
	return info.Mode(), tokenPattern.Match(b), err
}

// ptraceCheck reports whether programs of one account can trace each other, and so
// read a passphrase while a person types it. bailiwick-deploy makes itself
// untraceable; shells and terminals do not.
func ptraceCheck(setting string) check {
	c := check{name: "ptrace", advice: true}
	b, err := os.ReadFile(setting) //nolint:gosec // G304: a constant
	switch scope := strings.TrimSpace(string(b)); {
	case err != nil:
		c.found = "not restricted by this kernel: programs of this account can trace each other, such as the terminal where a passphrase is typed"
	case scope == "0":
		c.fix = "run: sysctl kernel.yama.ptrace_scope=1"
		c.found = "kernel.yama.ptrace_scope is 0: programs of this account can trace each other, such as the terminal where a passphrase is typed"
	default:
		c.ok, c.found = true, "kernel.yama.ptrace_scope is "+scope+": programs of this account can trace only their own children"
	}
	return c
}
