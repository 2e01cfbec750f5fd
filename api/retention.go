package api

import "time"

// Class is a class of stored data with its own retention rules. The set is closed.
type Class string

// The classes.
const (
	ClassCheckouts Class = "checkouts" // cached checkouts of sources, recreated when needed
	ClassContent   Class = "content"   // inputs, patches, outputs, logs, questions and answers
	ClassEvidence  Class = "evidence"  // signed manifests and results
	ClassRuns      Class = "runs"      // rows and plans of settled runs. Records of dispatches and log entries are never removed
)

// Pin protects a dispatch from the retention rules.
type Pin struct {
	By Principal `json:"by"`
	At time.Time `json:"at"`
}

// Removal records that data of a dispatch was removed. Its digests stay in the
// record.
type Removal struct {
	Class Class     `json:"class"`
	At    time.Time `json:"at"`
	Rule  string    `json:"rule"`         // as text: content.age 30d
	By    Principal `json:"by,omitempty"` // who requested it; absent if the service did it on schedule
}

// GCReport is what a collection removed, or would.
type GCReport struct {
	DryRun     bool        `json:"dryRun,omitempty"`
	Rules      []string    `json:"rules"`      // as text, one for each configured rule
	Dispatches []GCRemoval `json:"dispatches"` // whose content or evidence is removed
	Checkouts  []GCRemoval `json:"checkouts"`
	Runs       []GCRemoval `json:"runs"` // whose rows and plan are removed
	// Unreferenced counts blobs without references: those that only Dispatches
	// referred to, and those stored before a crash.
	Unreferenced GCCount `json:"unreferenced"`
	Kept         GCCount `json:"kept"`               // content and evidence that remain
	Pinned       int     `json:"pinned"`             // dispatches protected by a pin
	KeptRuns     int     `json:"keptRuns,omitempty"` // expired runs with a pinned dispatch, or that a stored run retries
	Waiting      int     `json:"waiting"`            // dispatches that run, wait for an answer, or may be needed by an open run
	Busy         int     `json:"busy,omitempty"`     // expired checkouts in use
	Spared       int     `json:"spared,omitempty"`   // unreferenced blobs that were about to be referenced
}

// GCRemoval is one removed object.
type GCRemoval struct {
	Class    Class      `json:"class"`
	Dispatch DispatchID `json:"dispatchId,omitempty"`
	Run      RunID      `json:"runId,omitempty"`
	Name     string     `json:"name,omitempty"` // of a checkout
	Rule     string     `json:"rule"`
	Bytes    int64      `json:"bytes"` // freed; shared blobs stay
}

// GCCount counts blobs.
type GCCount struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

// DiskUse is the size of the service's files, in bytes of content.
type DiskUse struct {
	MeasuredAt   time.Time `json:"measuredAt"`
	Checkouts    int64     `json:"checkouts"`
	Content      int64     `json:"content"`
	Evidence     int64     `json:"evidence"`
	Unreferenced int64     `json:"unreferenced"` // blobs without references
	Database     int64     `json:"database"`     // records and log
	Attempts     int64     `json:"attempts"`     // directories of attempts under way
	Free         int64     `json:"free"`         // of the file system, for this account
	Rules        []string  `json:"rules"`        // the configured rules, as text
}
