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
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// reachChecks say what an agent with a shell as this account could reach of
// the operator's power: who may sign decisions, with what key, and which tokens
// lie about (R-B9).
func (t *tree) reachChecks(ctx context.Context) []check {
	out := []check{t.operatorsCheck()}
	if _, err := os.Stat(t.Dirs.OperatorKey()); err == nil {
		out = append(out, keyCheck(ctx, "operator key", t.Dirs.OperatorKey(), "can raise its own ceiling, make tokens and lift stops", "make one with a passphrase: bailiwick operator keygen --key FILE, and list it in operators.json, in the place of this one if that has signed nothing yet"))
	}
	out = append(out, tokenChecks(t.tokenPlaces())...)
	return append(out, watchCheck("/proc/sys/kernel/yama/ptrace_scope"))
}

// operatorsCheck is about the file that says whose signatures count.
func (t *tree) operatorsCheck() check {
	c := check{name: "operators", advice: true}
	root, err := seal.LoadTrustRoot(t.Dirs.OperatorRoot())
	if err != nil {
		c.found, c.fix = err.Error(), "without it nobody can consent to more than observe; run: bailiwick init"
		return c
	}
	c.found = fmt.Sprintf("%s: %d of %d operator keys must sign", t.Dirs.OperatorRoot(), root.Threshold, len(root.Keys))
	c.ok = true
	if deploy, err := seal.LoadTrustRoot(t.Dirs.TrustRoot()); err == nil {
		for _, k := range root.Keys {
			if slices.ContainsFunc(deploy.Keys, func(d seal.Key) bool { return d.ID == k.ID }) {
				c.ok, c.found = false, c.found+fmt.Sprintf("; %s is a deploy key too: whoever has it says what workers are, and who may use them how far", k.ID)
			}
		}
	}
	if f, err := os.OpenFile(t.Dirs.OperatorRoot(), os.O_WRONLY, 0); err == nil {
		c.ok, c.found = false, c.found+"; every program of this account can list a key of its own there"
		if err := f.Close(); err != nil {
			c.found = err.Error()
		}
	}
	return c
}

// maxScan bounds what is read of a file in search of a token.
const maxScan = 8 << 20

var tokenPattern = regexp.MustCompile(api.TokenPrefix + `[0-9a-f]{64}`)

// tokenPlaces are the files where a token is kept, or is left by mistake: the
// folders of this program, the settings of AI clients, and what shells remember.
func (t *tree) tokenPlaces() (files []string) {
	for _, dir := range []string{t.Dirs.Config, t.Dirs.Data} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // nothing is there, or it is not ours to read
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

// tokenChecks says which of files hold a token, and never the token.
func tokenChecks(files []string) (out []check) {
	for _, path := range files {
		mode, found, err := holdsToken(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || err == nil && !found {
			continue
		}
		c := check{name: "token", advice: true, found: path + " holds a token: every program of this account can read it and act as its principal, up to its ceiling"}
		switch {
		case err != nil:
			c.found = err.Error()
		case mode.Perm()&0o077 != 0:
			c.found, c.fix = path+" holds a token, and other accounts can read it", "run: chmod 600 "+path+"; then: bailiwick token rotate ID"
		case strings.HasSuffix(path, "history"):
			c.fix = "take it out of there; then: bailiwick token rotate ID"
		}
		out = append(out, c)
	}
	if out == nil {
		out = append(out, check{name: "tokens", ok: true, found: "none lies where this looks: its own folders, settings of AI clients, shell histories"})
	}
	return out
}

func holdsToken(path string) (fs.FileMode, bool, error) {
	f, err := os.Open(path) //nolint:gosec // G304: names of this program's list
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

// watchCheck says whether programs of one account can look into each other:
// then one can wait for a person to type a passphrase. bailiwick-deploy keeps
// itself from being looked into; the shell and the terminal do not.
func watchCheck(setting string) check {
	c := check{name: "ptrace", advice: true}
	b, err := os.ReadFile(setting) //nolint:gosec // G304: a constant
	switch scope := strings.TrimSpace(string(b)); {
	case err != nil:
		c.found = "this kernel does not bound it: a program of this account can watch the others, such as the terminal that a passphrase is typed on"
	case scope == "0":
		c.fix = "run: sysctl kernel.yama.ptrace_scope=1"
		c.found = "kernel.yama.ptrace_scope is 0: a program of this account can watch the others, such as the terminal that a passphrase is typed on"
	default:
		c.ok, c.found = true, "kernel.yama.ptrace_scope is "+scope+": a program of this account can watch its own children only"
	}
	return c
}
