package deploycli

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
)

// packages has, for each agent program, the package.json and package-lock.json of npm
// with the pinned versions and the digests of all packages.
//
//go:embed agents
var packages embed.FS

// lockfile is the part of a package-lock.json that is read here.
type lockfile struct {
	Packages map[string]struct {
		Version   string `json:"version"`
		Integrity string `json:"integrity"`
	} `json:"packages"`
}

func parseLock(b []byte) (l lockfile, err error) {
	err = json.Unmarshal(b, &l)
	return l, err
}

// mainPackage is the package of an agent program itself for this machine: the one with
// the last file of its command.
func mainPackage(name string) string {
	command := agent.Command(name)
	parts := strings.Split(command[len(command)-1], "/") // node_modules, a scope, the package
	if strings.HasPrefix(parts[1], "@") {
		return strings.Join(parts[:3], "/")
	}
	return strings.Join(parts[:2], "/")
}

// pinnedVersion is the version that this release installs; empty where it has none for
// this machine.
func pinnedVersion(name string) string {
	b, err := packages.ReadFile(path.Join("agents", name, "package-lock.json"))
	if err != nil {
		return ""
	}
	lock, err := parseLock(b)
	if err != nil {
		return ""
	}
	return plainVersion(lock.Packages[mainPackage(name)].Version)
}

// plainVersion is a version without the platform that a package adds to it.
func plainVersion(v string) string {
	v, _, _ = strings.Cut(v, "-linux-")
	return v
}

// installation installs one agent program.
type installation struct {
	name, version string    // version is empty for the pinned one
	dir           string    // of all versions of the program
	output        io.Writer // of npm
}

// run installs the program unless it is there, and makes it the one that workers use.
// A program is there completely or not at all.
func (in installation) run(ctx context.Context) (place string, s agent.Stamp, made bool, err error) {
	pinned := pinnedVersion(in.name)
	if in.version == pinned {
		in.version = ""
	}
	switch {
	case pinned == "":
		return "", s, false, api.Errorf(api.CodeInvalid, "agent %s has no package for %s/%s", in.name, runtime.GOOS, runtime.GOARCH)
	case in.version != "" && !exactVersion.MatchString(in.version):
		return "", s, false, api.Errorf(api.CodeInvalid, "--version %q: want an exact version, such as %s", in.version, pinned)
	}
	if err := os.MkdirAll(in.dir, 0o755); err != nil { //nolint:gosec // G301: workers of another account read it
		return "", s, false, err
	}
	lock, err := durable.Lock(filepath.Join(in.dir, ".lock"))
	if errors.Is(err, durable.ErrLocked) {
		return "", s, false, api.Errorf(api.CodeConflict, "another command installs agent %s at this moment", in.name)
	}
	if err != nil {
		return "", s, false, err
	}
	defer lock.Close() //nolint:errcheck // nothing is written to it
	version := in.version
	if version == "" {
		version = pinned
	}
	place = filepath.Join(in.dir, version)
	if s, err = agent.ReadStamp(place); err != nil {
		made = true
		s, err = in.fill(ctx, place, version)
	}
	if err == nil {
		err = in.use(version)
	}
	return place, s, made, err
}

// exactVersion has no range and no tag, which could change between two installs.
var exactVersion = regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.-]+)?$`)

// fill puts the program at place.
func (in installation) fill(ctx context.Context, place, version string) (s agent.Stamp, err error) {
	stale, err := filepath.Glob(filepath.Join(in.dir, ".new-*"))
	if err != nil {
		return s, err
	}
	for _, dir := range append(stale, place) { // of interrupted installs
		if err := os.RemoveAll(dir); err != nil {
			return s, err
		}
	}
	work, err := os.MkdirTemp(in.dir, ".new-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }() // nothing, once it is placed
	if err := in.npm(ctx, work); err != nil {
		return s, err
	}
	if s, err = in.stamp(work, version); err != nil {
		return s, err
	}
	doc, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = durable.WriteNew(nil, filepath.Join(work, agent.StampFile), 0o644, func(w io.Writer) error {
			_, err := w.Write(append(doc, '\n'))
			return err
		})
	}
	if err == nil {
		err = readable(work)
	}
	if err == nil {
		err = os.Rename(work, place)
	}
	return s, errors.Join(err, durable.Sync(in.dir))
}

// npm installs the packages into dir.
func (in installation) npm(ctx context.Context, dir string) error {
	verb := "ci"
	for _, file := range []string{"package.json", "package-lock.json"} {
		b, err := packages.ReadFile(path.Join("agents", in.name, file))
		if err != nil {
			return err
		}
		if in.version != "" {
			if verb = "install"; file == "package-lock.json" {
				continue
			}
			b = []byte(strings.ReplaceAll(string(b), pinnedVersion(in.name), in.version))
		}
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			return err
		}
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "agent programs are installed with npm, which is not on the PATH: %w", err).
			WithHint("install Node.js with npm, such as: apt install npm")
	}
	// npm's own configuration names the registry and how to reach it.
	cmd := exec.CommandContext(ctx, npm, verb, "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--logs-max=0", "--loglevel=error") //nolint:gosec // G204: found on the PATH of the person
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, io.Discard, in.output
	if err := cmd.Run(); err != nil {
		return api.Errorf(api.CodeUnavailable, "npm %s of agent %s: %w", verb, in.name, err).WithHint("see the output of npm above; it needs a registry, as npm config get registry says")
	}
	return nil
}

// stamp describes what npm installed, and fails where a part is missing: npm leaves out
// packages for a platform that it cannot get.
func (in installation) stamp(dir, version string) (agent.Stamp, error) {
	s := agent.Stamp{Adapter: in.name, Version: version}
	b, err := os.ReadFile(filepath.Join(dir, "package-lock.json")) //nolint:gosec // G304: just written
	if err != nil {
		return s, err
	}
	lock, err := parseLock(b)
	if err != nil {
		return s, err
	}
	main := lock.Packages[mainPackage(in.name)]
	if s.Integrity = main.Integrity; s.Integrity == "" || plainVersion(main.Version) != version {
		return s, api.Errorf(api.CodeNotFound, "the registry has no agent %s %s for %s/%s", in.name, version, runtime.GOOS, runtime.GOARCH).WithHint("bailiwick agent list, for the pinned version")
	}
	for name, p := range lock.Packages {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil && strings.HasPrefix(path.Base(name), "node-linux-") {
			s.Node = p.Version
		}
	}
	s.Command = agent.Command(in.name)
	if err := s.Check(dir); err != nil {
		return s, api.Errorf(api.CodeIntegrity, "npm left out the package of agent %s %s for %s/%s: the registry does not have it, or has another content than %s", in.name, version, runtime.GOOS, runtime.GOARCH, s.Integrity).
			WithHint("npm config get registry, for the registry that it asked")
	}
	return s, nil
}

// use makes a version the one that workers use.
func (in installation) use(version string) error {
	link := filepath.Join(in.dir, agent.CurrentLink)
	if now, err := os.Readlink(link); err == nil && now == version {
		return nil
	}
	fresh := link + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, link); err != nil {
		return err
	}
	return durable.Sync(in.dir)
}
