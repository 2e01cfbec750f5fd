// Package launchsetting reads launch.yaml, the settings that root gives the launcher. It refuses what it does not know.
package launchsetting

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// Settings are those of launch.yaml.
type Settings struct {
	First, Blocks int           // uid range: first uid, and blocks of three
	Service       seal.KeyID    // first key of the service; empty: the first that is seen
	Grace         time.Duration // how long a revision may start after a later one was seen
	// Worker and ToolHost are what each of these programs may use itself, beside what humans signed for its jail.
	Worker, ToolHost Own
	Held             []string  // controllers without whose limits nothing starts
	Disk             api.Bytes // that an attempt or a tool host reads a second, and writes; 0: no limit
}

// Own is what a program may use itself.
type Own struct {
	Memory    api.Bytes
	Processes int
	CPU       float64 // cores
}

// The least with which a worker and a tool host run.
const (
	leastMemory    = 64 << 20
	leastProcesses = 32
	leastDisk      = 64 << 10
)

// Default are those of an empty launch.yaml.
func Default() Settings {
	own := Own{Memory: 256 << 20, Processes: 128, CPU: 1}
	return Settings{First: 1_200_000_000, Blocks: 1024, Grace: 24 * time.Hour, Worker: own, ToolHost: own, Held: []string{"memory", "pids", "cpu"}}
}

// Below are accounts of the system and of people, above those of jails in mode same-user.
const (
	leastUID  = 1 << 20
	mostUID   = 0x70000000
	mostGrace = 30 * 24 * time.Hour
)

// Read reads launch.yaml. A file that does not exist gives the defaults.
func Read(path string) (Settings, error) {
	s := Default()
	b, err := blob.ReadBounded(path, strictyaml.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	p := &strictyaml.Parser{List: strictyaml.List{File: path}}
	versioned := false
	if n := p.Document(b); n != nil {
		p.Fields(n, "configuration", map[string]func(*yaml.Node){
			"version": func(n *yaml.Node) {
				versioned = true
				if p.Count(n, "version") > 1 {
					p.At(n, "version: this build reads version 1")
				}
			},
			"uids": func(n *yaml.Node) {
				p.Fields(n, "uids", map[string]func(*yaml.Node){
					"first":  func(n *yaml.Node) { s.First = p.Count(n, "uids.first") },
					"blocks": func(n *yaml.Node) { s.Blocks = p.Count(n, "uids.blocks") },
				})
				if s.First < leastUID || s.Blocks > (mostUID-s.First)/3 {
					p.At(n, "uids: want a first uid from %d on, and blocks of 3 that end below %d", leastUID, mostUID)
				}
			},
			"worker":   func(n *yaml.Node) { s.Worker.read(p, n, "worker") },
			"toolHost": func(n *yaml.Node) { s.ToolHost.read(p, n, "toolHost") },
			"disk": func(n *yaml.Node) {
				if p.Scalar(n, "disk", &s.Disk); s.Disk < leastDisk {
					p.At(n, "disk: want at least 64KiB a second, or no such key")
				}
			},
			"unheld": func(n *yaml.Node) {
				for _, c := range p.Texts(n, "unheld") {
					at := slices.Index(s.Held, c)
					if at < 0 {
						p.At(n, "unheld: %q: want some of memory, pids and cpu, each once", strictyaml.Clip(c))
						return
					}
					s.Held = slices.Delete(s.Held, at, at+1)
				}
			},
			"service": func(n *yaml.Node) { s.Service = seal.KeyID(p.Line(n, "service")) },
			"grace": func(n *yaml.Node) {
				var d api.Duration
				text := p.Line(n, "grace")
				if err := d.UnmarshalText([]byte(text)); err != nil || d < 0 || time.Duration(d) > mostGrace {
					p.At(n, "grace: %q: want 0s to %s, such as 24h", strictyaml.Clip(text), mostGrace)
				}
				s.Grace = time.Duration(d)
			},
		})
		if !versioned && n.Kind == yaml.MappingNode {
			p.At(n, "configuration: the key \"version\" is missing; write \"version: 1\"")
		}
	}
	if err := p.Err(); err != nil {
		return s, fmt.Errorf("settings of the launcher: %w", err)
	}
	return s, nil
}

func (o *Own) read(p *strictyaml.Parser, n *yaml.Node, what string) {
	p.Fields(n, what, map[string]func(*yaml.Node){
		"memory":    func(n *yaml.Node) { p.Scalar(n, what+".memory", &o.Memory) },
		"processes": func(n *yaml.Node) { o.Processes = p.Count(n, what+".processes") },
		"cpu":       func(n *yaml.Node) { o.CPU = p.Positive(n, what+".cpu") },
	})
	if o.Memory < leastMemory || o.Processes < leastProcesses {
		p.At(n, "%s: want at least 64MiB of memory and %d processes: it does not run with less", what, leastProcesses)
	}
}
