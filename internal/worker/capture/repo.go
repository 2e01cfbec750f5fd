package capture

import (
	"context"
	"crypto/sha1" //nolint:gosec // G505: it is git's object format, not our choice of hash
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// Repo is a git directory of ours with its own configuration, no work tree, and
// its own objects beside those borrowed from a source. It is safe for concurrent
// use; captures in one Repo are serialized.
type Repo struct {
	own    gitexec.Repo
	source *Source // whose objects it borrows
	dir    string  // of own
	format string

	// MaxCheckout bounds the bytes that Checkout and Layer write; zero: no bound. A
	// larger one is a *TooLargeError before anything is written.
	MaxCheckout int64

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
	return s.CreateRepo(dir)
}

// CreateRepo is CreateRepo for a source that is open.
func (s *Source) CreateRepo(dir string) (*Repo, error) {
	var borrowed []string
	if s.objects != "" {
		borrowed = []string{s.objects}
	}
	own, err := gitexec.Create(dir, s.format, borrowed...)
	if err != nil {
		return nil, err
	}
	if borrowed != nil && int(s.owner) != os.Geteuid() {
		own = own.Confined(s.owner, s.lent)
	}
	return &Repo{own: own, source: s, dir: own.Dir(), format: s.format, trees: map[string]*tree{}}, nil
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
	return gitexec.Git{Repo: r.own, Identity: gitexec.Identity("capture", "capture@invalid", "")}
}
