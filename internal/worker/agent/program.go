package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// StampFile is the file in the directory of an installed program that says what is
// there, and CurrentLink the link to the version that workers use.
const (
	StampFile   = "bailiwick-agent.json"
	CurrentLink = "current"
)

// Stamp says which program a directory has. bailiwick agent install writes it last.
type Stamp struct {
	Adapter   string   `json:"adapter"`
	Version   string   `json:"version"`
	Integrity string   `json:"integrity"`      // of the package, as the registry's client verified it
	Node      string   `json:"node,omitempty"` // version of the Node that it runs with
	Command   []string `json:"command"`        // paths below the directory
}

// ErrNotInstalled says that a program has no directory of its own.
var ErrNotInstalled = errors.New("not installed")

// Installed returns the directory of the version of a program that workers use. dir is
// that of all programs.
func Installed(dir, name string) (string, Stamp, error) {
	place, err := filepath.EvalSymlinks(filepath.Join(dir, name, CurrentLink))
	if errors.Is(err, fs.ErrNotExist) {
		return "", Stamp{}, fmt.Errorf("agent %s: %w", name, ErrNotInstalled)
	}
	if err != nil {
		return "", Stamp{}, err
	}
	s, err := ReadStamp(place)
	if err == nil && s.Adapter != name {
		err = fmt.Errorf("%s has agent %s, not %s", place, s.Adapter, name)
	}
	return place, s, err
}

// ReadStamp reads the stamp of a directory and checks that its program is there.
func ReadStamp(dir string) (Stamp, error) {
	var s Stamp
	b, err := blob.ReadBounded(filepath.Join(dir, StampFile), 64<<10)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(dir, StampFile), err)
	}
	return s, s.Check(dir)
}

// Check refuses a stamp that is incomplete, or whose program is not in its directory.
func (s Stamp) Check(dir string) error {
	if s.Version == "" || len(s.Command) == 0 {
		return fmt.Errorf("%s is incomplete", filepath.Join(dir, StampFile))
	}
	for _, p := range s.Command {
		if !fs.ValidPath(p) {
			return fmt.Errorf("%s: %q is not a path below its directory", StampFile, p)
		}
		if st, err := os.Lstat(filepath.Join(dir, p)); err != nil || !st.Mode().IsRegular() {
			return errors.Join(fmt.Errorf("%s has no program %s", dir, p), err)
		}
	}
	return nil
}

// In returns the command of a program whose directory is at a path of the jail.
func (s Stamp) In(dir string) []string {
	var argv []string
	for _, p := range s.Command {
		argv = append(argv, path.Join(dir, p))
	}
	return argv
}

// Command lists the files that start the installed program of an adapter on this
// machine, below its directory.
func Command(name string) []string {
	x64 := runtime.GOARCH == "amd64"
	arch, vendor := "arm64", "aarch64"
	if x64 {
		arch, vendor = "x64", "x86_64"
	}
	const m = "node_modules/"
	switch name {
	case "claude-code":
		return []string{m + "@anthropic-ai/claude-code-linux-" + arch + "/claude"}
	case "codex":
		return []string{m + "@openai/codex-linux-" + arch + "/vendor/" + vendor + "-unknown-linux-musl/bin/codex"}
	case "opencode":
		return []string{m + "opencode-linux-" + arch + "/bin/opencode"}
	case "gemini":
		return []string{m + "node-linux-" + arch + "/bin/node", m + "@google/gemini-cli/bundle/gemini.js"}
	}
	return nil
}

// version is a version in the output of --version.
var version = regexp.MustCompile(`\b\d+\.\d+\.\d+[0-9A-Za-z.+-]*`)

// ParseVersion finds the version in the output of a program's --version.
func ParseVersion(output string) (string, error) {
	for line := range strings.Lines(cuttext.Text(output, maxSaid)) {
		if v := version.FindString(line); v != "" {
			return cuttext.Text(v, 64), nil
		}
	}
	return "", fmt.Errorf("--version printed no version: %s", oneLine(output))
}

// Known reports whether name is an agent program that can be installed.
func Known(name string) bool { return name != "command" && slices.Contains(Names(), name) }
