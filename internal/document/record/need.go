package record

import (
	"fmt"
	"path"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The kinds of a Need.
const (
	NeedPatch  = "patch"  // in the format of git apply; empty without changes
	NeedOutput = "output" // one file
	NeedResult = "result" // the structured result
)

// Need is a product of another task's dispatch. The worker puts it at inputs/NAME,
// or does not run.
type Need struct {
	Name     api.Name       `json:"name"`
	Item     string         `json:"item,omitempty"` // of a need from a for_each: the worker puts it at inputs/NAME/ITEM
	Task     api.TaskID     `json:"task"`
	Dispatch api.DispatchID `json:"dispatch"` // of Task
	Kind     string         `json:"kind"`
	Path     string         `json:"path,omitempty"` // of an output, below outputs/
	Digest   api.Digest     `json:"digest"`
	Size     int64          `json:"size"`
}

// ResultOutput is the path of the output that holds the structured result.
const ResultOutput = "result.json"

// NeedKind returns the kind of what n takes over.
func NeedKind(n api.Need) string {
	switch {
	case n.Patch:
		return NeedPatch
	case n.Result:
		return NeedResult
	}
	return NeedOutput
}

// ProductPath returns the path of the output that is what a need of a kind takes.
func ProductPath(kind, path string) string {
	if kind == NeedResult {
		return ResultOutput
	}
	return path
}

// Product returns what a dispatch with this result provides for a need: its
// patch, its structured result, or the output at path. A dispatch that was
// captured and changed nothing provides the empty patch.
func Product(sum *api.ResultSummary, kind, path string) (api.Artifact, bool) {
	switch kind {
	case NeedPatch:
		if sum.Patch != nil {
			return *sum.Patch, true
		}
		return api.Artifact{Digest: api.DigestOf(nil)}, sum.Captured
	case NeedResult:
		if len(sum.Value) == 0 {
			return api.Artifact{}, false
		}
	}
	path = ProductPath(kind, path)
	for _, o := range sum.Outputs {
		if o.Path == path {
			return o, true
		}
	}
	return api.Artifact{}, false
}

// Check refuses a need that a worker cannot place below inputs/.
func (n *Need) Check() error {
	if _, err := api.ParseName(string(n.Name)); err != nil {
		return fmt.Errorf("need: %w", err)
	}
	if n.Item != "" {
		if _, err := api.ParseTaskID(n.Item); err != nil {
			return fmt.Errorf("need %q: item %.80q is not a name", n.Name, n.Item)
		}
	}
	if slices.Contains(api.ReservedInputs(), n.Name) {
		return fmt.Errorf("need %q: the name is reserved for the worker's own files below inputs/", n.Name)
	}
	switch {
	case n.Task == "" || n.Dispatch == "" || n.Size < 0:
		return fmt.Errorf("need %q is incomplete", n.Name)
	case n.Kind != NeedPatch && n.Kind != NeedOutput && n.Kind != NeedResult:
		return fmt.Errorf("need %q has kind %q, want %s, %s or %s", n.Name, n.Kind, NeedPatch, NeedOutput, NeedResult)
	case (n.Kind == NeedOutput) != (n.Path != ""):
		return fmt.Errorf("need %q: an output needs a path, and only an output has one", n.Name)
	}
	return nil
}

// MaxNeeds bounds the needs of a task together: one of a for_each counts once for each
// item. By their names they are at most api.MaxTaskNeeds.
const MaxNeeds = 2 * api.MaxForEach

// CheckNeeds refuses n needs that are too many, or two that are at one place below
// inputs/.
func CheckNeeds(n int, at func(i int) (name api.Name, item string)) error {
	if n > MaxNeeds {
		return fmt.Errorf("%d needs, the limit is %d", n, MaxNeeds)
	}
	type place struct {
		name api.Name
		item string
	}
	seen, names := make(map[place]bool, n), map[api.Name]bool{}
	for i := range n {
		name, item := at(i)
		if seen[place{name, item}] || item != "" && seen[place{name, ""}] || item == "" && names[name] {
			return fmt.Errorf("duplicate need %q", path.Join(string(name), item))
		}
		seen[place{name, item}], names[name] = true, true
	}
	if len(names) > api.MaxTaskNeeds {
		return fmt.Errorf("needs of %d names, the limit is %d", len(names), api.MaxTaskNeeds)
	}
	return nil
}

// Place is where the worker puts the need below inputs/.
func (n *Need) Place() string { return path.Join(string(n.Name), n.Item) }

// File is the name of the file in which the worker is given the need. No name of a need
// has a bracket.
func (n *Need) File() string {
	if n.Item == "" {
		return WorkNeed + string(n.Name)
	}
	return WorkNeed + string(n.Name) + "[" + n.Item + "]"
}

// checkTask refuses a manifest that has only some of a task's members.
func (m *Manifest) checkTask() error {
	if ofTask := m.Run != ""; ofTask != (m.Task != "") || ofTask != (m.Fence > 0) || !ofTask && (len(m.Needs) > 0 || m.ItemFrom != "" || m.DecidedBy != "") {
		return fmt.Errorf("manifest of dispatch %s is incomplete for a task: run %q, task %q, fencing token %d, %d needs", m.ID, m.Run, m.Task, m.Fence, len(m.Needs))
	}
	if err := CheckNeeds(len(m.Needs), func(i int) (api.Name, string) { return m.Needs[i].Name, m.Needs[i].Item }); err != nil {
		return fmt.Errorf("manifest of dispatch %s: %w", m.ID, err)
	}
	for i := range m.Needs {
		n := &m.Needs[i]
		err := n.Check()
		if err == nil {
			_, err = api.ParseDigest(string(n.Digest))
		}
		if err != nil {
			return fmt.Errorf("manifest of dispatch %s: %w", m.ID, err)
		}
	}
	return nil
}
