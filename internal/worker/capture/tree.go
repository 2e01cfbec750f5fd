package capture

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tree is the complete, verified listing of a tree.
type tree struct {
	id       string
	files    []treeFile // in git's order
	byPath   map[string]treeFile
	gitlinks []string
}

type treeFile struct {
	path string
	mode uint32 // modeFile, modeExec, modeLink, modeGitlink
	id   string
}

const (
	maxTreeFiles = 2_000_000
	maxTreePath  = 4000
	maxTreeDepth = 500
)

// tree lists the files of a commit or tree and verifies the objects of its
// directories. "" is the empty tree. It refuses a tree with a path that git would
// refuse to check out, which is an attack.
func (r *Repo) tree(ctx context.Context, name string) (*tree, error) {
	if t, err := r.knownTree(name); t != nil || err != nil {
		return t, err
	}
	o, err := r.openObjects(ctx)
	if err != nil {
		return nil, err
	}
	defer o.close()
	return o.tree(name)
}

// knownTree returns a cached listing, or nil.
func (r *Repo) knownTree(name string) (*tree, error) {
	if name == "" || name == r.emptyTree() {
		return &tree{id: r.emptyTree()}, nil
	}
	if !fullObject.MatchString(name) {
		return nil, fmt.Errorf("tree %s: not a full object name", Printable(name))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trees[name], nil
}

func (o *objects) tree(name string) (*tree, error) {
	r := o.repo
	if t, err := r.knownTree(name); t != nil || err != nil {
		return t, err
	}
	_, root, err := o.peel(name)
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("%w: %w", ErrNoCommit, err)
	}
	if err != nil {
		return nil, fmt.Errorf("tree of %s: %w", name, err)
	}
	t := &tree{id: root, byPath: map[string]treeFile{}}
	if err := t.read(o, root, "", 0); err != nil {
		return nil, fmt.Errorf("tree of %s: %w", name, err)
	}
	slices.Sort(t.gitlinks)
	r.mu.Lock()
	r.trees[name], r.trees[root] = t, t
	r.mu.Unlock()
	return t, nil
}

func (t *tree) read(o *objects, id, prefix string, depth int) error {
	if depth > maxTreeDepth {
		return fmt.Errorf("deeper than %d directories", maxTreeDepth)
	}
	if t.known(o.repo, id, prefix) {
		return nil
	}
	_, kind, content, err := o.get(id)
	if err != nil {
		return o.repo.incomplete(err)
	}
	if kind != "tree" {
		return fmt.Errorf("object %s: is a %s, want a tree", id, Printable(kind))
	}
	entries, err := parseTree(content, len(o.repo.emptyTree())/2)
	if err != nil {
		return fmt.Errorf("object %s: %w", id, err)
	}
	for _, e := range entries {
		e.path = prefix + e.path
		if len(e.path) > maxTreePath {
			return fmt.Errorf("path of more than %d bytes", maxTreePath)
		}
		if why := pathProblem(e.path, e.mode); why != "" {
			return fmt.Errorf("path %s: %s", Printable(e.path), why)
		}
		if e.mode == modeDir {
			if err := t.read(o, e.id, e.path+"/", depth+1); err != nil {
				return err
			}
			continue
		}
		if len(t.files) >= maxTreeFiles {
			return fmt.Errorf("more than %d files", maxTreeFiles)
		}
		t.add(e)
	}
	return nil
}

func (t *tree) add(f treeFile) {
	t.files = append(t.files, f)
	t.byPath[f.path] = f
	if f.mode == modeGitlink {
		t.gitlinks = append(t.gitlinks, f.path)
	}
}

// known adds the files of a directory from the index, if it has the same there.
func (t *tree) known(r *Repo, id, prefix string) bool {
	r.mu.Lock()
	files, ok := r.dirs[dirKey{prefix, id}]
	r.mu.Unlock()
	for _, f := range files {
		t.add(f)
	}
	return ok
}

// parseTree parses a tree object: "<octal mode> <name>\0<raw object name>",
// repeated. It refuses duplicate names, names with a slash and unknown modes, and
// normalizes modes as git does.
func parseTree(b []byte, rawLen int) ([]treeFile, error) {
	var list []treeFile
	seen := map[string]bool{}
	for len(b) > 0 {
		head, rest, ok := bytes.Cut(b, []byte{0})
		mode, name, ok2 := strings.Cut(string(head), " ")
		if !ok || !ok2 || len(rest) < rawLen {
			return nil, errors.New("malformed tree")
		}
		if name == "" || strings.Contains(name, "/") || seen[name] {
			return nil, fmt.Errorf("malformed tree: name %s", Printable(name))
		}
		seen[name] = true
		m, err := treeMode(mode)
		if err != nil {
			return nil, err
		}
		list = append(list, treeFile{path: name, mode: m, id: hex.EncodeToString(rest[:rawLen])})
		b = rest[rawLen:]
	}
	return list, nil
}

func treeMode(s string) (uint32, error) {
	m, err := strconv.ParseUint(s, 8, 32)
	if err != nil {
		return 0, fmt.Errorf("malformed tree: mode %s", Printable(s))
	}
	switch m & 0o170000 {
	case 0o100000:
		if m&0o100 != 0 {
			return modeExec, nil
		}
		return modeFile, nil
	case modeLink, modeGitlink, modeDir:
		return uint32(m) & 0o170000, nil
	}
	return 0, fmt.Errorf("malformed tree: mode %s", Printable(s))
}

// under returns the files at or below p.
func (t *tree) under(p string) []string {
	var out []string
	for _, f := range t.files {
		if below(f.path, p) {
			out = append(out, f.path)
		}
	}
	return out
}
