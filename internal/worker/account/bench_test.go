package account

import (
	"errors"
	"os"
	"testing"
)

// BenchmarkStart compares a start under a block, with the mounts of a worker, with a plain one. Each waits for the exit.
func BenchmarkStart(b *testing.B) {
	own := b.TempDir()
	if err := errors.Join(os.Chown(own, 4242, 4242)); err != nil {
		b.Fatal(err)
	}
	at, err := os.Open(own)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	block := Block{First: 0x5f000000}
	for _, c := range []struct {
		name    string
		program Program
	}{
		{"plain", Program{}},
		{"block", Program{Block: &block, Mounts: []Mount{{At: own, From: at, As: Self, Write: true}, {At: "/run/view" + own, From: at, As: Agent}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.program.Path = "/usr/bin/true"
			for b.Loop() {
				p, err := Start(c.program)
				if err != nil {
					b.Fatal(err)
				}
				if state, err := p.Wait(); err != nil || !state.Success() {
					b.Fatal(state, err)
				}
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
