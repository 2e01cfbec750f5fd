// Package launchsetting reads launch.yaml, the settings that root gives the launcher. It refuses what it does not know.
package launchsetting

import (
	"errors"
	"fmt"
	"io/fs"
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
}

// Default are those of an empty launch.yaml.
func Default() Settings {
	return Settings{First: 1_200_000_000, Blocks: 1024, Grace: 24 * time.Hour}
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
