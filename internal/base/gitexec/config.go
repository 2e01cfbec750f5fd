package gitexec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Setting is one value of a configuration. Key is as git prints it: section and name
// in lower case.
type Setting struct{ Key, Value string }

// Config is settings in the order of git, in which later ones count before earlier
// ones.
type Config []Setting

// Get returns the value of a setting, or "".
func (c Config) Get(key string) string {
	for _, s := range slices.Backward(c) {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// True reports whether a setting is a true boolean.
func (c Config) True(key string) bool {
	for _, s := range slices.Backward(c) {
		if s.Key == key {
			n, err := strconv.Atoi(s.Value)
			return slices.Contains([]string{"true", "yes", "on"}, strings.ToLower(s.Value)) || err == nil && n != 0
		}
	}
	return false
}

// Format returns the format of the objects, sha1 or sha256, of the repository with
// this configuration. A repository that stores its refs in another way than as files
// is an error.
func (c Config) Format() (string, error) {
	if refs := c.Get("extensions.refstorage"); refs != "" && refs != "files" {
		return "", fmt.Errorf("refs are stored as %s, which is not supported; git refs migrate --ref-format=files", Quote(refs))
	}
	format := cmp.Or(c.Get("extensions.objectformat"), "sha1")
	if format != "sha1" && format != "sha256" {
		return "", fmt.Errorf("unknown object format %s", Quote(format))
	}
	return format, nil
}

// ParseConfig returns the settings in the text of a configuration file. It follows no
// include.
func ParseConfig(ctx context.Context, text []byte) (Config, error) {
	out, err := Git{Stdin: bytes.NewReader(text)}.Output(ctx, "config", "--file", "-", "--no-includes", "-z", "--list")
	if err != nil {
		return nil, err
	}
	var c Config
	for item := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if key, value, ok := strings.Cut(item, "\n"); key != "" {
			if !ok {
				value = "true" // a name alone is a true boolean
			}
			c = append(c, Setting{key, value})
		}
	}
	return c, nil
}

// reader reads configuration files as data, and what they include.
type reader struct {
	ctx    context.Context
	home   string
	gitDir string // for includeIf; empty: no repository
	files  int    // read so far
}

const (
	maxIncludes = 10 // nested
	maxFiles    = 64 // of a repository or a person; each is parsed by a process
)

// read returns the settings of a file; one that does not exist has none.
func (r *reader) read(path string, depth int) (Config, error) {
	if r.files++; depth > maxIncludes || r.files > maxFiles {
		return nil, fmt.Errorf("%s: more than %d nested includes, or more than %d files", path, maxIncludes, maxFiles)
	}
	text, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || path == os.DevNull {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own, err := ParseConfig(r.ctx, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all Config
	for _, s := range own {
		all = append(all, s)
		condition, isIf := strings.CutPrefix(s.Key, "includeif.")
		condition, named := strings.CutSuffix(condition, ".path")
		if s.Key != "include.path" && (!isIf || !named || !r.met(condition, filepath.Dir(path))) {
			continue
		}
		more, err := r.read(AbsFrom(filepath.Dir(path), r.expand(s.Value)), depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func (r *reader) expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && r.home != "" {
		return filepath.Join(r.home, rest)
	}
	return path
}

// met reports whether the condition of an includeIf in a file of dir holds. Those
// other than the place of the git directory and the branch never do.
func (r *reader) met(condition, dir string) bool {
	kind, pattern, _ := strings.Cut(condition, ":")
	flags := ""
	switch kind {
	case "gitdir/i":
		flags = "(?i)"
	case "gitdir":
	case "onbranch":
		head, _ := firstLine(filepath.Join(r.gitDir, "HEAD"), ReadFile)
		branch, ok := strings.CutPrefix(head, "ref: refs/heads/")
		return ok && r.gitDir != "" && glob("", pattern, branch)
	default:
		return false
	}
	if rest, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = filepath.ToSlash(dir) + "/" + rest
	} else if pattern = filepath.ToSlash(r.expandPattern(pattern)); !strings.HasPrefix(pattern, "/") {
		pattern = "**/" + pattern
	}
	real, err := filepath.EvalSymlinks(r.gitDir)
	return r.gitDir != "" && (glob(flags, pattern, r.gitDir) || err == nil && glob(flags, pattern, real))
}

// expandPattern is expand that keeps the slash at the end, which means all below.
func (r *reader) expandPattern(pattern string) string {
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok && r.home != "" {
		return strings.TrimSuffix(r.home, "/") + "/" + rest
	}
	return pattern
}

// glob matches as git does for includeIf.
func glob(flags, pattern, text string) bool {
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	quoted := regexp.QuoteMeta(pattern)
	for _, r := range [][2]string{{`\*\*/`, `(?:.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`}, {`\?`, `[^/]`}} {
		quoted = strings.ReplaceAll(quoted, r[0], r[1])
	}
	// What a step wrote has no backslash, so no later step changes it.
	re, err := regexp.Compile(flags + "^" + quoted + "$")
	return err == nil && re.MatchString(text)
}

// Personal returns the configuration that git would read for a person outside any
// repository: of the system, of the person and of their environment env. gitDir, which
// may be empty, decides what includeIf includes.
func Personal(ctx context.Context, env []string, gitDir string) (Config, error) {
	of := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		of[name] = value
	}
	r := &reader{ctx: ctx, home: of["HOME"], gitDir: gitDir}
	var files []string
	if !(Config{{"", of["GIT_CONFIG_NOSYSTEM"]}}).True("") {
		files = append(files, cmp.Or(of["GIT_CONFIG_SYSTEM"], "/etc/gitconfig"))
	}
	if global, ok := of["GIT_CONFIG_GLOBAL"]; ok {
		files = append(files, global)
	} else if r.home != "" {
		files = append(files, filepath.Join(cmp.Or(of["XDG_CONFIG_HOME"], filepath.Join(r.home, ".config")), "git", "config"), filepath.Join(r.home, ".gitconfig"))
	}
	var all Config
	for _, file := range files {
		if file == "" {
			continue
		}
		c, err := r.read(file, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	count, _ := strconv.Atoi(of["GIT_CONFIG_COUNT"])
	for i := range min(count, 1000) {
		section, name, _ := strings.Cut(of[fmt.Sprintf("GIT_CONFIG_KEY_%d", i)], ".")
		all = append(all, Setting{strings.ToLower(section) + "." + strings.ToLower(name), of[fmt.Sprintf("GIT_CONFIG_VALUE_%d", i)]})
	}
	return all, nil
}
