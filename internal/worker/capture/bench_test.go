package capture

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

func tenThousand(b *testing.B) *scene {
	return newScene(b, "sha1", func(d string) {
		for i := range 10_000 {
			p := fmt.Sprintf("%s/pkg%d/sub%d/f%d.go", d, i%20, i%200, i)
			if i < 200 {
				must(b, os.MkdirAll(filepath.Dir(p), 0o755))
			}
			must(b, os.MkdirAll(filepath.Dir(p), 0o755))
			must(b, os.WriteFile(p, []byte(fmt.Sprintf("package p%d\n", i)+strings.Repeat("// a line of code, more or less\n", 150)), 0o644))
		}
	})
}

func BenchmarkSmall(b *testing.B) {
	small := newScene(b, "sha1", small).snapshot()
	b.Run("clean", func(b *testing.B) {
		for b.Loop() {
			small.capture()
		}
	})
	b.Run("one-change", func(b *testing.B) {
		write(b, small.work+"/a.txt", "changed\n")
		for b.Loop() {
			small.capture()
		}
	})
	b.Run("resolve-create-checkout-snapshot", func(b *testing.B) {
		for b.Loop() {
			src, err := OpenSource(b.Context(), small.src)
			must(b, err)
			commit, err := src.Resolve(b.Context(), "main", "")
			must(b, err)
			dir := b.TempDir()
			r, err := CreateRepo(b.Context(), dir+"/repo", small.src)
			must(b, err)
			must(b, os.Mkdir(dir+"/work", 0o755))
			err = r.Checkout(b.Context(), commit, dir+"/work")
			must(b, err)
			f, err := os.Open(dir + "/work")
			must(b, err)
			_, err = r.Snapshot(b.Context(), f, commit, Config{})
			must(b, err)
			must(b, f.Close())
		}
	})
}

func BenchmarkCapture(b *testing.B) {
	s := tenThousand(b)
	git(b, s.src, "repack", "-adq")
	s.snapshot()
	b.Run("checkout", func(b *testing.B) {
		for b.Loop() {
			dir := b.TempDir()
			if err := s.repo.Checkout(b.Context(), s.commit, dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			s.snapshot()
		}
	})
	b.Run("clean", func(b *testing.B) {
		for b.Loop() {
			s.capture()
		}
	})
	b.Run("ten-changes", func(b *testing.B) {
		for i := range 10 {
			write(b, fmt.Sprintf("%s/pkg%d/sub%d/f%d.go", s.work, i, i, i), "changed\n")
		}
		for b.Loop() {
			if res := s.capture(); len(res.Files) != 10 {
				b.Fatal(res)
			}
		}
	})
}

// BenchmarkWorkspace is what a dispatch on a checkout at hand does with 10,000
// files: read the index, compare all of it with the disk, bind it to the
// commit, and look twice at a workspace in which nothing changed.
func BenchmarkWorkspace(b *testing.B) {
	s := tenThousand(b)
	index, err := s.repo.IndexCheckout(b.Context(), s.commit, s.work)
	must(b, err)
	stored := index.Encode()
	top := b.TempDir()
	j, err := jail.Start(b.Context(), jail.Spec{Lower: []string{top, s.work}})
	must(b, err)
	defer j.Close()
	over, err := os.Open(top)
	must(b, err)
	defer over.Close()
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_, err := DecodeIndex(stored)
			must(b, err)
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			must(b, index.Verify(b.Context(), s.work))
		}
	})
	b.Run("bind", func(b *testing.B) {
		for b.Loop() {
			must(b, s.repo.Bind(b.Context(), s.commit, index))
		}
	})
	for name, cfg := range map[string]Config{
		"by reading": {},
		"by index":   {Index: index},
		"by layers":  {Index: index, Over: []*os.File{j.Upper(), over}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before, err := s.repo.Snapshot(b.Context(), j.Workspace(), s.commit, cfg)
				must(b, err)
				_, err = s.repo.Capture(b.Context(), j.Workspace(), before)
				must(b, err)
			}
		})
	}
}
