package api

import (
	"slices"
	"strings"
	"time"
)

// ChangeOp is the change of an artifact or a field.
type ChangeOp string

// The operations.
const (
	OpAdd    ChangeOp = "add"
	OpChange ChangeOp = "change"
	OpRemove ChangeOp = "remove"
)

// ArtifactChange is the change of one artifact.
type ArtifactChange struct {
	Op     ChangeOp      `json:"op"`
	Ref    Ref           `json:"ref"`
	Fields []FieldChange `json:"fields"`
}

// FieldChange is the change of one field.
type FieldChange struct {
	Op    ChangeOp `json:"op"`
	Field string   `json:"field"` // "limits.memory", "files/setup.sh"
	Old   string   `json:"old,omitempty"`
	New   string   `json:"new,omitempty"`
	// Text is how the content of a file changes: a unified diff without names. Not all of it
	// is there if Unshown says so.
	Text    string `json:"text,omitempty"`
	Unshown string `json:"unshown,omitempty"` // what of the content cannot be shown, and why
}

// Lines returns the lines in which the two texts differ, and how many lines they share
// at their beginning and at their end.
func (f FieldChange) Lines() (before, after []string, head, tail int) {
	split := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	}
	before, after = split(f.Old), split(f.New)
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	return before[head : len(before)-tail], after[head : len(after)-tail], head, tail
}

// FieldProject is the field that says which project an artifact belongs to.
const FieldProject = "project"

// AuthorityChange is one way in which a principal or a worker gets more authority, or
// less.
type AuthorityChange struct {
	Ref  Ref    `json:"ref"`
	What string `json:"what"`
}

// CatalogDiff is how two sets of artifacts differ. Reviewers read Widens first.
type CatalogDiff struct {
	Changes []ArtifactChange  `json:"changes"`
	Widens  []AuthorityChange `json:"widens"`
	Narrows []AuthorityChange `json:"narrows"`
}

// CompareRefs orders refs by kind as Kinds does, then by name.
func CompareRefs(a, b Ref) int {
	ka, _, _ := strings.Cut(string(a), "/")
	kb, _, _ := strings.Cut(string(b), "/")
	kinds := Kinds()
	if d := slices.Index(kinds, Kind(ka)) - slices.Index(kinds, Kind(kb)); d != 0 {
		return d
	}
	return strings.Compare(string(a), string(b))
}

// CatalogRevision is a revision in the history of the catalog.
type CatalogRevision struct {
	Number    uint64    `json:"number"`
	Digest    Digest    `json:"digest"`
	CreatedAt time.Time `json:"createdAt"`
	Author    string    `json:"author"`
	Reason    string    `json:"reason,omitempty"`
	Artifacts int       `json:"artifacts"`
}

// RevisionChanges is a revision of the catalog with what it changed in the one before.
type RevisionChanges struct {
	CatalogRevision
	Keys    []string `json:"keys"`    // of the trust root, that signed it
	Current uint64   `json:"current"` // the revision in force
	CatalogDiff
	Omitted *DiffOmitted `json:"omitted,omitempty"` // nil: nothing
}

// DiffOmitted counts what a bounded CatalogDiff omits; bailiwick catalog diff has all.
type DiffOmitted struct {
	Changes int   `json:"changes,omitempty"` // artifacts
	Fields  int   `json:"fields,omitempty"`  // of the artifacts that are listed
	Widens  int   `json:"widens,omitempty"`
	Narrows int   `json:"narrows,omitempty"`
	Texts   int   `json:"texts,omitempty"` // values and lines that were cut
	Bytes   int64 `json:"bytes,omitempty"` // of these texts
}
