package gitexec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repo is a git directory of ours: Create, Open and Foreign.View return one, and
// nothing else does. The zero value is no repository.
type Repo struct {
	dir     string
	objects string // where objects are read and written; empty: in dir
	lent    *lent  // nil: git may read all that its account may
}

// lent is what git may read of another account.
type lent struct {
	owner uint32
	dirs  []string
}

// Confined returns the repository whose git reads, except for itself, its work tree, its index and the system's programs, only
// what lies in dirs. Each belongs to owner when git starts. The kernel holds it to that: a link, or a directory that
// was replaced, leads nowhere else. A missing directory is left out.
func (r Repo) Confined(owner uint32, dirs []string) Repo {
	r.lent = &lent{owner, dirs}
	return r
}

// Dir returns the git directory.
func (r Repo) Dir() string { return r.dir }

const noBranch = "ref: refs/heads/none\n" // of HEAD

const repoConfig = `[core]
	repositoryFormatVersion = 1
	bare = true
	fileMode = true
	symlinks = true
	ignoreCase = false
	protectHFS = true
	protectNTFS = true
	precomposeUnicode = false
	quotePath = true
	autocrlf = false
	safecrlf = false
	fsmonitor = false
	untrackedCache = false
	splitIndex = false
	commitGraph = false
	multiPackIndex = false
	logAllRefUpdates = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	compression = 1
[gc]
	auto = 0
[maintenance]
	auto = false
[protocol]
	allow = never
[merge]
	renames = true
[fastimport]
	unpackLimit = 1
[index]
	version = 2
[extensions]
	objectFormat = %s
`

// Create makes a bare repository at dir, which must not exist. Its objects are its own
// and those of the directories objects, which may belong to anybody: git only reads
// them.
func Create(dir, format string, objects ...string) (Repo, error) {
	r, err := create(dir, format, nil)
	if err != nil || len(objects) == 0 {
		return r, err
	}
	var list strings.Builder
	for _, o := range objects {
		list.WriteString(Quote(o) + "\n")
	}
	return r, os.WriteFile(filepath.Join(r.dir, "objects", "info", "alternates"), []byte(list.String()), 0o600)
}

// create is Create with settings after ours.
func create(dir, format string, settings Config) (Repo, error) {
	if format != "sha1" && format != "sha256" {
		return Repo{}, fmt.Errorf("unknown object format %s", Quote(format))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Repo{}, err
	}
	for _, d := range []string{"", "objects", "objects/info", "objects/pack", "refs", "info"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return Repo{}, fmt.Errorf("git directory: %w", err)
		}
	}
	config := fmt.Appendf(nil, repoConfig, format)
	for _, s := range settings {
		section, name, _ := strings.Cut(s.Key, ".")
		config = fmt.Appendf(config, "[%s]\n\t%s = %s\n", section, name, s.Value)
	}
	for name, content := range map[string][]byte{"HEAD": []byte(noBranch), "config": config} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return Repo{}, fmt.Errorf("git directory: %w", err)
		}
	}
	return Repo{dir: dir}, nil
}

// Open returns a repository that Create made at dir, of the format sha1. Another
// configuration is an error, and so is a file that leads to another directory.
func Open(dir string) (Repo, error) {
	config, err := ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return Repo{}, err
	}
	if !bytes.Equal(config, fmt.Appendf(nil, repoConfig, "sha1")) {
		return Repo{}, fmt.Errorf("%s: its configuration is not ours", dir)
	}
	if head, err := ReadFile(filepath.Join(dir, "HEAD")); err != nil || string(head) != noBranch {
		return Repo{}, errors.Join(fmt.Errorf("%s: its HEAD is not ours", dir), err)
	}
	for _, other := range []string{"commondir", "config.worktree", "objects/info/alternates"} {
		if _, err := os.Lstat(filepath.Join(dir, other)); !errors.Is(err, os.ErrNotExist) {
			return Repo{}, errors.Join(fmt.Errorf("%s: unexpected file %s", dir, other), err)
		}
	}
	gitDir, _, err := Find(dir)
	if err == nil && gitDir != dir {
		err = fmt.Errorf("%s: not a git directory", dir)
	}
	return Repo{dir: dir}, err
}
