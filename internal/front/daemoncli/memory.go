package daemoncli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// memory is what the state remembers of the last start: the configuration file,
// which every start without --config reads, and the anchors, which the next start
// compares even if its configuration lacks them. So no verb starts a state that
// another start refuses.
type memory struct {
	File    string           `json:"file,omitempty"` // absolute path; empty: no file
	Anchors []anchorSettings `json:"anchors,omitempty"`
}

// maxMemory bounds the file, in bytes.
const maxMemory = 1 << 20

func (t *tree) memoryPath() string { return filepath.Join(t.Dirs.State, "configuration.json") }

// remembered returns the memory of the state, and whether it has one.
func (t *tree) remembered() (m memory, exists bool, err error) {
	path := t.memoryPath()
	if checkOwn(t.Dirs.State, t.UID) != nil {
		return m, false, nil //nolint:nilerr // no service starts on this state
	}
	if err = t.files().check(path); errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	var b []byte
	if err == nil {
		b, err = blob.ReadBounded(path, maxMemory)
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return memory{}, true, api.Errorf(api.CodeIntegrity, "the state's memory of its configuration: %w", err).
			WithHint("restore %s from the backup of the state, or remove it and give the configuration: %s", path, api.StartConfigured(t.Dirs.Mode))
	}
	for i := range m.Anchors {
		m.Anchors[i] = m.Anchors[i].from(t.Dirs.State)
	}
	return m, true, nil
}

// configPath returns the configuration file of a start, or "" for none: that of
// --config, else the remembered one, else the default file if it exists.
func (t *tree) configPath(m *memory) string {
	switch {
	case t.config != "":
		return t.config
	case m.File != "" && !t.Dirs.System():
		return m.File
	}
	if _, err := os.Lstat(t.Dirs.ServiceConfig()); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return t.Dirs.ServiceConfig()
}

// forgotten returns the error of a configuration file that the state remembers and
// that cannot be read.
func forgotten(mode, path string, err error) error {
	return api.Errorf(api.CodeInvalid, "configuration: this state was last started with %s: %w", path, err).
		WithHint("restore %s, or name the configuration: %s; for the defaults, write a file with the line: version: 1", path, api.StartConfigured(mode))
}

// former returns the remembered anchors that are not among those configured now.
func (m *memory) former(state string, now anchorsSettings) (list []anchorSettings) {
	configured := now.all(state)
	for _, a := range m.Anchors {
		if !slices.ContainsFunc(configured, a.samePlace) {
			list = append(list, a)
		}
	}
	return list
}

// samePlace reports whether two anchors hold the same checkpoints.
func (a anchorSettings) samePlace(b anchorSettings) bool {
	return a.Name == b.Name && a.Kind == b.Kind && a.Path == b.Path && a.Repository == b.Repository && a.Branch == b.Branch && a.Endpoint == b.Endpoint && a.Bucket == b.Bucket && a.Prefix == b.Prefix
}

// reread reads the settings of a start that owns the state: another start may have
// changed the memory while this one waited. A service that opens its state again keeps
// its configuration unless the state now remembers another file.
func (s *service) reread() error {
	if s.again {
		known, _, err := s.t.remembered()
		if err != nil {
			return err
		}
		if s.t.configPath(&known) == s.set.File {
			s.set.former = known.former(s.t.Dirs.State, s.set.Anchors)
			return nil
		}
	}
	set, err := s.t.settings()
	if err != nil {
		return err
	}
	s.set, s.logger = set, set.logger(s.t.Stderr)
	return nil
}

// checkMemory compares the memory with the log, which has the configuration of the last
// start: a memory that was removed or emptied is refused, and the anchors of that start
// are compared whatever the memory says. It needs the ledger.
func (s *service) checkMemory(ctx context.Context) error {
	list, err := s.ledger.List(ctx, audit.Query{Kind: record.KindServiceStarted, Newest: true, Limit: 1})
	if err != nil || len(list) == 0 {
		return err
	}
	d, ok := list[0].Entry.Detail.(record.ServiceStart)
	if !ok || d.Config == nil {
		return nil
	}
	known, exists, err := s.t.remembered()
	if err != nil {
		return err
	}
	// A start never forgets the file: without --config it reads the remembered one.
	if s.t.config == "" && known.File == "" && d.Config.File != "" {
		what := "is missing"
		if exists {
			what = "names no configuration"
		}
		return api.Errorf(api.CodeIntegrity, "%s %s: by the log, this state was last started with the configuration %s", s.t.memoryPath(), what, d.Config.File).
			WithHint("restore the whole state directory from one backup, or name the configuration: %s", api.StartConfigured(s.t.Dirs.Mode))
	}
	// A start that removed an anchor and was killed before it was in the log has compared
	// it; so it is compared twice, which changes nothing.
	now := slices.Concat(s.set.Anchors.all(s.t.Dirs.State), s.set.former)
	missing, err := unlisted(s.t.Dirs.Mode, s.t.Dirs.State, d.Config, now)
	s.set.former = append(s.set.former, missing...)
	return err
}

// newMemory returns what a state remembers of a start with settings and with anchors that
// it did not reach.
func newMemory(state string, set settings, unreached []anchorSettings) (m memory) {
	m.File = set.File
	for _, a := range slices.Concat(set.Anchors.all(state), unreached) {
		if a = a.within(state); a.Kind != receipt.TSA { // which keeps nothing
			m.Anchors = append(m.Anchors, a)
		}
	}
	return m
}

// write makes the configuration of this start that of the next one. It is durable before
// the start is in the log.
func (m memory) write(path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := replaceChanged(path, b); err != nil {
		return fmt.Errorf("the state's memory of its configuration: %w", err)
	}
	return nil
}
