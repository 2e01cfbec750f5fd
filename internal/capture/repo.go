package capture

import (
	"context"
	"crypto/sha1" //nolint:gosec // G505: it is git's object format, not our choice of hash
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/gitexec"
)

// Repo is a git directory of ours with its own configuration, no work tree, and
// its own objects beside those borrowed from a source. It is safe for concurrent
// use; captures in one Repo are serialized.
type Repo struct {
	dir    string
	format string

	mu    sync.Mutex
	trees map[string]*tree      // verified listings; guarded by mu
	dirs  map[dirKey][]treeFile // verified directories of an index; guarded by mu

	capture sync.Mutex // held by a capture: index, ref and scratch files
}

// CreateRepo creates a Repo at dir, which must not exist. It borrows the objects of
// the repository at sourceRepo; if that is "", it has only its own objects, and
// the base is the empty tree.
func CreateRepo(ctx context.Context, dir, sourceRepo string) (*Repo, error) {
	s := &Source{format: "sha1"}
	if sourceRepo != "" {
		var err error
		if s, err = OpenSource(ctx, sourceRepo); err != nil {
			return nil, err
		}
	}
	return s.repo(dir)
}

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
[fastimport]
	unpackLimit = 1
[index]
	version = 2
[extensions]
	objectFormat = %s
`

func (s *Source) repo(dir string) (*Repo, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	for _, d := range []string{"objects", "objects/info", "refs"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, d), 0o700)
		}
	}
	files := map[string]string{"HEAD": "ref: refs/heads/none\n", "config": fmt.Sprintf(repoConfig, s.format)}
	if s.objects != "" {
		files["objects/info/alternates"] = gitexec.Quote(s.objects) + "\n"
	}
	for name, content := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("git directory: %w", err)
	}
	return &Repo{dir: dir, format: s.format, trees: map[string]*tree{}}, nil
}

// objectHash returns a hash for the name of an object, fed with its header.
func (r *Repo) objectHash(kind string, size int64) hash.Hash {
	var h hash.Hash
	if r.format == "sha256" {
		h = sha256.New()
	} else {
		h = sha1.New() //nolint:gosec // G401: git's object format
	}
	_, _ = fmt.Fprintf(h, "%s %d\x00", kind, size) // a hash never fails
	return h
}

func (r *Repo) objectID(kind string, content []byte) string {
	h := r.objectHash(kind, int64(len(content)))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

func (r *Repo) emptyTree() string { return r.objectID("tree", nil) }

func (r *Repo) git() gitexec.Git {
	return gitexec.Git{GitDir: r.dir, Env: gitexec.Identity("capture", "capture@invalid", "")}
}
