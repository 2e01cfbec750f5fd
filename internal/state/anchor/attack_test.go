package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// refused returns the mismatch in err, and checks that it says all this.
func refused(t testing.TB, err error, says ...string) *MismatchError {
	t.Helper()
	wrong, ok := errors.AsType[*MismatchError](err)
	if !ok {
		t.Fatalf("not refused: %v", err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("does not say %q: %v", text, err)
		}
	}
	return wrong
}

func refuses(t testing.TB, err error, says ...string) {
	t.Helper()
	_ = refused(t, err, says...)
}

// attack is a state whose log was anchored at 5 and at 9 entries, and a copy of
// the state of then.
type attack struct {
	dir, copied string
	old         []byte // the checkpoint of then
}

func newAttack(t *testing.T, anchors ...Anchor) attack {
	t.Helper()
	s := newState(t)
	at := func(count int) []byte {
		n := s.grow(t, count, "shared")
		must(t, s.open(t, anchors...))
		for _, a := range anchors {
			s.anchored(t, a.ID().Name, n)
		}
		signed, _ := s.tree.Latest()
		s.close()
		return signed
	}
	w := attack{dir: s.dir}
	w.old = at(5)
	w.copied = s.snapshot(t)
	s = openState(t, s.dir)
	at(4)
	return w
}

// restored opens the older state.
func (w attack) restored(t *testing.T, anchors ...Anchor) error {
	t.Helper()
	return start(t, w.copied, anchors...)
}

// genuine opens the newest state.
func (w attack) genuine(t *testing.T, anchors ...Anchor) error {
	t.Helper()
	return start(t, w.dir, anchors...)
}

func start(t *testing.T, dir string, anchors ...Anchor) error {
	t.Helper()
	s := openState(t, dir)
	defer s.close()
	s.unsent = true
	return s.open(t, anchors...)
}

// hides is the control of an attack: what the anchor shows first agrees with the
// older log.
func (w attack) hides(t *testing.T, shown []byte) {
	t.Helper()
	if string(shown) != string(w.old) {
		t.Fatalf("control: the anchor shows %q", shown)
	}
}

func (w attack) ahead(t *testing.T, err error) {
	t.Helper()
	wrong := refused(t, err, "holds a checkpoint of 9 entries", "the log here has 5", "restored from an older copy")
	if wrong.Held != 9 || wrong.Local != 5 || !wrong.Signed {
		t.Errorf("%+v", wrong)
	}
}

// commitTo commits a file on top of a branch, and returns what the branch had.
func commitTo(t *testing.T, repo, branch, file string, content []byte, options ...string) {
	t.Helper()
	work := filepath.Join(t.TempDir(), "work")
	git(t, "", "clone", "--quiet", "--branch", "bailiwick", repo, work)
	must(t, os.WriteFile(filepath.Join(work, file), content, 0o600))
	git(t, work, "add", file)
	git(t, work, "commit", "--quiet", "--allow-empty", "-m", "x")
	git(t, work, append([]string{"push", "--quiet", repo, "HEAD:" + branch}, options...)...)
}

// An attacker who may push to the repository and restores the state hides nothing
// by what fast-forwards, other branches, or rewritten history show.
//
// proves R-A6
func TestWhatGitShowsLastHidesNothing(t *testing.T) {
	for name, rewrite := range map[string]func(t *testing.T, repo string, w attack){
		"the older checkpoint committed on top": func(t *testing.T, repo string, w attack) {
			commitTo(t, repo, "bailiwick", gitFile, w.old)
		},
		"committed on top often": func(t *testing.T, repo string, w attack) {
			for range 3 {
				commitTo(t, repo, "bailiwick", gitFile, w.old)
			}
		},
		"the branch forced back": func(t *testing.T, repo string, _ attack) {
			git(t, repo, "update-ref", "refs/heads/bailiwick", "bailiwick~1")
			if strings.Contains(git(t, repo, "log", "-p", "--all"), "\n+9\n") {
				t.Error("control: a ref still reaches it")
			}
		},
		"moved to another branch": func(t *testing.T, repo string, _ attack) {
			git(t, repo, "branch", "aside", "bailiwick")
			git(t, repo, "update-ref", "refs/heads/bailiwick", "bailiwick~1")
		},
		"the branch forced back, and packed": func(t *testing.T, repo string, _ attack) {
			git(t, repo, "tag", "aside", "bailiwick")
			git(t, repo, "update-ref", "refs/heads/bailiwick", "bailiwick~1")
			git(t, repo, "gc", "--quiet")
		},
		"history cut off by a graft": func(t *testing.T, repo string, w attack) {
			commitTo(t, repo, "bailiwick", gitFile, w.old)
			must(t, os.WriteFile(filepath.Join(repo, "shallow"), []byte(git(t, repo, "rev-parse", "bailiwick")+"\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t)
			w := newAttack(t, openGit(t, repo))
			w.ahead(t, w.restored(t, openGit(t, repo)))
			must(t, w.genuine(t, openGit(t, repo))) // control
			rewrite(t, repo, w)
			w.hides(t, newestOf(t, openGit(t, repo)))
			w.ahead(t, w.restored(t, openGit(t, repo)))
			if err := w.genuine(t, openGit(t, repo)); strings.Contains(name, "on top") {
				must(t, err)
			} else { // the receipt's commit is gone from the branch
				refuses(t, err, "no longer holds a checkpoint of 9 entries, the log here has 9", "rewritten")
			}
		})
	}
}

// An attacker with the keys of the bucket hides nothing by keys that sort first,
// other keys, later versions and delete markers.
//
// proves R-A6
func TestWhatS3ShowsFirstHidesNothing(t *testing.T) {
	g := newGateway(t)
	n := 0
	for name, c := range map[string]struct {
		attack  func(s *S3, put func(key string, content []byte), w attack)
		genuine string // why the newest state is refused; empty: it starts
	}{
		"a key that sorts first": {func(s *S3, put func(string, []byte), w attack) {
			put(s.key(math.MaxInt64), w.old)
		}, "its key names 9223372036854775807 entries, but it holds a checkpoint of 5"},
		"another key": {func(s *S3, put func(string, []byte), w attack) {
			put(s.cfg.Prefix+"!", w.old)
		}, "its key names no checkpoint"},
		"a later version": {func(s *S3, put func(string, []byte), w attack) {
			put(s.key(9), w.old)
		}, "its key names 9 entries, but it holds a checkpoint of 5"},
		"a delete marker": {func(s *S3, _ func(string, []byte), _ attack) {
			must(t, g.admin.RemoveObject(t.Context(), bucket, s.key(9), minio.RemoveObjectOptions{}))
		}, ""},
	} {
		n++
		open := func(t *testing.T) *S3 {
			return g.open(t, func(c *S3Config) { c.Prefix = fmt.Sprintf("%d/", n) })
		}
		t.Run(name, func(t *testing.T) {
			w := newAttack(t, open(t))
			w.ahead(t, w.restored(t, open(t)))
			must(t, w.genuine(t, open(t))) // control
			c.attack(open(t), func(key string, content []byte) {
				_, err := g.admin.PutObject(t.Context(), bucket, key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{SendContentMd5: true})
				must(t, err)
			}, w)
			for o := range g.admin.ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Prefix: open(t).cfg.Prefix}) {
				must(t, o.Err)
				w.hides(t, []byte(read(t, g, o.Key, "")))
				break
			}
			w.ahead(t, w.restored(t, open(t)))
			if err := w.genuine(t, open(t)); c.genuine == "" {
				must(t, err)
			} else {
				refuses(t, err, "holds what the service did not write", c.genuine)
			}
		})
	}
}

// A start does not fetch what the store lists with the hash of a receipt, and a
// forged receipt makes it skip nothing.
//
// proves R-A6
func TestAForgedReceiptHidesNoObject(t *testing.T) {
	g := newGateway(t)
	var gets atomic.Int64
	count := http.Client{Transport: counting{g.client, &gets}}
	open := func() *S3 { return g.open(t, func(c *S3Config) { c.Client = &count }) }
	w := newAttack(t, open())
	gets.Store(0)
	must(t, w.genuine(t, open()))
	if n := gets.Load(); n != 0 {
		t.Errorf("fetched %d objects that have receipts", n)
	}
	s := openState(t, w.dir)
	list, err := Newest(t.Context(), s.store)
	must(t, err)
	s.close()
	// In the older state: a receipt for the key of 9 entries that names the object,
	// its version and its ETag, with a checkpoint that agrees with the older log.
	s = openState(t, w.copied)
	forged := list[0]
	forged.Signed = w.old
	b, err := forged.Encode()
	must(t, err)
	s.exec(t, "UPDATE anchor_receipt SET receipt = '"+string(b)+"'")
	s.exec(t, "INSERT INTO anchor_receipt SELECT name, 9, kind, root, receipt, at FROM anchor_receipt")
	s.close()
	gets.Store(0)
	wrong := refused(t, w.restored(t, open()))
	if gets.Load() == 0 || wrong.Held != 9 || !wrong.Signed {
		t.Errorf("fetched %d objects: %v", gets.Load(), wrong)
	}
}

// counting counts the objects that a client fetches.
type counting struct {
	client *http.Client
	gets   *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); r.Method == http.MethodGet && q.Has("versionId") {
		c.gets.Add(1)
	}
	return c.client.Do(r)
}

// What is there and is not as the service writes it refuses the start, until an
// operator names the anchor as lost. That holds for what was found and no more.
//
// proves R-A6, R-B9
func TestGarbageIsRefusedUntilTheAnchorIsLost(t *testing.T) {
	path, repo, gw := filepath.Join(t.TempDir(), "f"), repository(t), newGateway(t)
	appended := func(text string) func(string) {
		return func(more string) {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = io.WriteString(f, text+more)
			must(t, errors.Join(err, f.Close()))
		}
	}
	for name, c := range map[string]struct {
		open    func(t *testing.T) Anchor
		garbage func(more string)
		says    string
	}{
		"file": {func(t *testing.T) Anchor { return openFile(t, path) }, appended("all is well"), "not one JSON string"},
		"git": {func(t *testing.T) Anchor { return openGit(t, repo) }, func(more string) {
			commitTo(t, repo, "bailiwick", gitFile, []byte("all is well"+more))
		}, "malformed note"},
		"s3": {func(t *testing.T) Anchor { return gw.open(t) }, func(more string) {
			b := []byte("all is well" + more)
			_, err := gw.admin.PutObject(t.Context(), bucket, gw.open(t).key(77), bytes.NewReader(b), int64(len(b)), minio.PutObjectOptions{SendContentMd5: true})
			must(t, err)
		}, "malformed note"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAttack(t, c.open(t))
			c.garbage("\n")
			wrong := refused(t, w.genuine(t, c.open(t)), "holds what the service did not write, the log here has 9", c.says)
			if wrong.Signed || wrong.Held != 0 {
				t.Errorf("%+v", wrong)
			}
			s := openState(t, w.dir)
			defer s.close()
			s.lost = map[string]api.Digest{wrong.Anchor.Name: wrong.Found}
			must(t, s.open(t, c.open(t)))
			s.grow(t, 2, "after")
			st := s.until(t, wrong.Anchor.Name, "lost", func(st Status) bool { return st.Lost })
			must(t, s.keeper.Close())
			if !errors.Is(st.Err, errLost) || st.Size != 9 || s.keeper.Err() != nil {
				t.Errorf("%+v, %v", st, s.keeper.Err())
			}
			must(t, s.open(t, c.open(t))) // with a longer log it is the same
			must(t, s.keeper.Close())
			// Another anchor, and more of it, are not what the operator saw.
			s.lost = map[string]api.Digest{"other": wrong.Found}
			refuses(t, s.open(t, c.open(t)))
			s.lost = map[string]api.Digest{wrong.Anchor.Name: wrong.Found}
			c.garbage(" and more\n")
			if again := refused(t, s.open(t, c.open(t))); again.Found == wrong.Found {
				t.Error("the same digest for another state")
			}
		})
	}
}

// A restored state for which an operator named the anchor as lost starts, and the
// same decision holds when its log is as long as what the anchor holds.
//
// proves R-A6
func TestALostAnchorStaysLostWhileTheLogGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	w := newAttack(t, openFile(t, path))
	wrong := refused(t, w.restored(t, openFile(t, path)))
	s := openState(t, w.copied)
	defer s.close()
	s.lost = map[string]api.Digest{"disk": wrong.Found}
	for range 3 {
		must(t, s.open(t, openFile(t, path)))
		must(t, s.keeper.Close())
		s.grow(t, 3, "another history")
	}
	if b, err := os.ReadFile(path); err != nil || bytes.Count(b, []byte("\n")) > 4 {
		t.Errorf("something was added: %q, %v", b, err)
	}
	// Find says the same as the start.
	cfg := s.keeperConfig(openFile(t, path))
	found, err := Find(t.Context(), cfg, "disk")
	if err != nil || found == nil || found.Found != wrong.Found {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := Find(t.Context(), cfg, "none"); err == nil {
		t.Errorf("an unknown anchor: %v", found)
	}
}

// An anchor that holds less than it acknowledged is refused: emptied, truncated, cut
// in the middle of a line, or with its middle removed.
//
// proves R-A6
func TestAnAnchorThatWasEmptiedIsRefused(t *testing.T) {
	gone := "no longer holds a checkpoint of 9 entries, the log here has 9"
	for name, c := range map[string]struct {
		damage func(path string, b []byte) error
		says   string
	}{
		"removed": {func(path string, _ []byte) error { return os.Remove(path) }, gone},
		"empty":   {func(path string, _ []byte) error { return os.Truncate(path, 0) }, gone},
		"without its last": {func(path string, b []byte) error {
			return os.WriteFile(path, b[:bytes.LastIndexByte(b[:len(b)-1], '\n')], 0o600)
		}, gone},
		"half": {func(path string, b []byte) error { return os.Truncate(path, int64(len(b)-9)) }, gone},
		"without its first": {func(path string, b []byte) error {
			return os.WriteFile(path, b[bytes.LastIndexByte(b[:len(b)-1], '\n'):], 0o600)
		}, "no longer holds a checkpoint of 5 entries"},
		"a directory": {func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, gone},
		"a link": {func(path string, b []byte) error {
			return errors.Join(os.Rename(path, path+".new"), os.Symlink(path+".new", path))
		}, gone},
		"with one bit changed": {func(path string, b []byte) error { b[len(b)-40] ^= 1; return os.WriteFile(path, b, 0o600) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			w := newAttack(t, openFile(t, path))
			must(t, w.genuine(t, openFile(t, path))) // control
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, c.damage(path, b))
			refuses(t, w.genuine(t, openFile(t, path)), c.says)
		})
	}
	t.Run("git", func(t *testing.T) {
		repo := repository(t)
		w := newAttack(t, openGit(t, repo))
		must(t, os.RemoveAll(repo))
		refuses(t, w.genuine(t, openGit(t, repo)), gone)
		must(t, os.MkdirAll(repo, 0o700))
		refuses(t, w.genuine(t, openGit(t, repo)), gone)
		git(t, "", "init", "--quiet", "--bare", repo)
		refuses(t, w.genuine(t, openGit(t, repo)), gone)
	})
	t.Run("s3", func(t *testing.T) {
		g := newGateway(t)
		w := newAttack(t, g.open(t))
		refuses(t, w.genuine(t, noObjects{g.open(t)}), gone)
	})
}

// noObjects is a bucket that was emptied behind its lock.
type noObjects struct{ *S3 }

func (noObjects) Scan(context.Context, func(uint64) []byte, func(Item) error) error { return nil }

// The first half of a line still tells that the log was longer.
//
// proves R-A6
func TestHalfALineAboutMoreEntriesIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	w := newAttack(t, openFile(t, path))
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.Truncate(path, int64(len(b)-9)))
	w.hides(t, newestOf(t, openFile(t, path)))
	refuses(t, w.restored(t, openFile(t, path)), "half a line, about 9 entries", "the log here has 5")
}

// A repository that git cannot read is refused, and so is one whose history has a
// hole.
//
// proves R-A6
func TestAnUnreadableRepositoryIsRefused(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, repo string) error{
		"a file": func(t *testing.T, repo string) error {
			must(t, os.RemoveAll(repo))
			return os.WriteFile(repo, []byte("gone\n"), 0o600)
		},
		"without HEAD": func(_ *testing.T, repo string) error { return os.Remove(filepath.Join(repo, "HEAD")) },
		"a broken ref": func(_ *testing.T, repo string) error {
			return os.WriteFile(filepath.Join(repo, "refs/heads/bailiwick"), []byte("gone\n"), 0o600)
		},
		"without an object": func(t *testing.T, repo string) error {
			id := git(t, repo, "rev-parse", "bailiwick~1:checkpoint")
			return os.Remove(filepath.Join(repo, "objects", id[:2], id[2:]))
		},
		"with a broken object": func(t *testing.T, repo string) error {
			id := git(t, repo, "rev-parse", "bailiwick~1:checkpoint")
			path := filepath.Join(repo, "objects", id[:2], id[2:])
			must(t, os.Chmod(path, 0o600))
			return os.WriteFile(path, []byte("x"), 0o600)
		},
		"without a commit": func(t *testing.T, repo string) error {
			id := git(t, repo, "rev-parse", "bailiwick~1")
			return os.Remove(filepath.Join(repo, "objects", id[:2], id[2:]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t)
			w := newAttack(t, openGit(t, repo))
			must(t, w.genuine(t, openGit(t, repo))) // control
			must(t, damage(t, repo))
			refuses(t, w.genuine(t, openGit(t, repo)))
			// Also if the state knows of no receipt.
			s := openState(t, w.dir)
			defer s.close()
			s.exec(t, "DELETE FROM anchor_receipt")
			s.unsent = true
			refuses(t, s.open(t, openGit(t, repo)), "holds what the service did not write")
		})
	}
}

// An anchor that was not reached at the start is compared when it answers, before
// anything is sent. A proof that the log was longer stops new work.
//
// proves R-A6
func TestAnAnchorThatComesBackIsComparedFirst(t *testing.T) {
	repo := repository(t)
	w := newAttack(t, openGit(t, repo))
	commitTo(t, repo, "bailiwick", gitFile, w.old)
	tip := git(t, repo, "rev-parse", "bailiwick")
	for _, c := range []struct {
		dir    string
		stops  bool
		behind string
	}{{w.dir, false, ""}, {w.copied, true, "restored from an older copy"}} {
		s := openState(t, c.dir)
		must(t, s.open(t, silent{openGit(t, repo), make(chan struct{})}))
		list, err := s.keeper.Status(t.Context())
		must(t, err)
		if list[0].Compared || list[0].Err == nil || s.keeper.Err() != nil {
			t.Errorf("%+v, %v", list, s.keeper.Err())
		}
		s.until(t, "history", "compared", func(st Status) bool { return st.Compared || s.keeper.Err() != nil })
		if err := s.keeper.Err(); c.stops {
			w.ahead(t, err)
		} else {
			must(t, err)
		}
		s.close()
	}
	if now := git(t, repo, "rev-parse", "bailiwick"); now != tip {
		t.Error("something was sent")
	}
}

// A checkpoint of a fork that another service commits while this one runs stops new
// work at the next exchange.
//
// proves R-A6
func TestAForkThatShowsUpStopsNewWork(t *testing.T) {
	repo := repository(t)
	s := newState(t)
	must(t, s.open(t, openGit(t, repo)))
	s.anchored(t, "history", s.grow(t, 3, "a"))
	must(t, s.keeper.Err()) // control
	signed, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: s.origin(), Size: 90, Root: logproof.EmptyRoot()}, s.key)
	must(t, err)
	commitTo(t, repo, "bailiwick", gitFile, signed)
	s.grow(t, 1, "b")
	s.until(t, "history", "stopped", func(st Status) bool { return st.Err != nil })
	refuses(t, s.keeper.Err(), "holds a checkpoint of 90 entries")
}

// Many checkpoints are compared in bounded time and memory, and one that is wrong is
// found among them.
func TestManyCheckpointsAreCompared(t *testing.T) {
	const count = 20_000
	s := newState(t)
	n := s.grow(t, 50, "a")
	sizes := make([]uint64, n)
	for i := range sizes {
		sizes[i] = uint64(i + 1)
	}
	roots, err := s.tree.Roots(t.Context(), sizes)
	must(t, err)
	var lines [][]byte
	for i, root := range roots {
		signed, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: s.origin(), Size: uint64(i + 1), Root: root}, s.key)
		must(t, err)
		line, err := receipt.Line(signed)
		must(t, err)
		lines = append(lines, line)
	}
	b := bytes.Repeat(bytes.Join(lines, nil), count/len(lines))
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, b, 0o600))
	s.unsent = true
	began := time.Now()
	must(t, s.open(t, openFile(t, path)))
	t.Logf("%d lines: %s", count, time.Since(began))
	forged, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: s.origin(), Size: 7, Root: logproof.EmptyRoot()}, s.key)
	must(t, err)
	line, err := receipt.Line(forged)
	must(t, err)
	must(t, os.WriteFile(path, slices.Concat(b, line, b), 0o600))
	s.close()
	s = openState(t, s.dir)
	s.unsent = true
	refuses(t, s.open(t, openFile(t, path)), "the first 7 entries differ")
}

// An anchor that never ends is refused, and one that falls silent is unreachable.
func TestAnEndlessAnchorIsRefused(t *testing.T) {
	s := newState(t)
	s.grow(t, 2, "a")
	endless := &endless{id: ID{"bad", receipt.File, "/somewhere"}}
	cfg := s.keeperConfig(endless)
	cfg.ScanTimeout = 50 * time.Millisecond
	_, err := Open(t.Context(), cfg)
	refuses(t, err, "cannot be compared", "could not be read to its end within 50ms")
	cfg = s.keeperConfig(&fake{id: endless.id, newest: func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }})
	cfg.CompareTimeout = 50 * time.Millisecond
	k, err := Open(t.Context(), cfg)
	must(t, err)
	list, err := k.Status(t.Context())
	must(t, err)
	if list[0].Compared || !strings.Contains(list[0].Err.Error(), "no answer within 50ms") {
		t.Errorf("%+v", list[0])
	}
	must(t, k.Close())
}

type endless struct {
	fake
	id ID
}

func (e *endless) ID() ID { return e.id }

func (*endless) Scan(_ context.Context, _ func(uint64) []byte, see func(Item) error) error {
	for {
		if err := see(Item{}); err != nil {
			return err
		}
	}
}
