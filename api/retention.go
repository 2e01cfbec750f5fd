package api

import "time"

// Class is a kind of what the service stores, each kept by its own rules. The
// set is closed.
type Class string

// The classes.
const (
	ClassCheckouts Class = "checkouts" // cached checkouts of sources; made again when they are needed
	ClassContent   Class = "content"   // inputs, patches, outputs, logs, questions and answers
	ClassEvidence  Class = "evidence"  // signed manifests and results. Records and log entries are never removed
)

// Pin says that a dispatch is kept whatever the rules say.
type Pin struct {
	By Principal `json:"by"`
	At time.Time `json:"at"`
}

// Removal says that something of a dispatch was removed. The digests of what
// was stay in the record.
type Removal struct {
	Class Class     `json:"class"`
	At    time.Time `json:"at"`
	Rule  string    `json:"rule"`         // in words: content.age 30d
	By    Principal `json:"by,omitempty"` // who asked; absent where the service did so by itself
}

// GCReport is what a collection removed, or would.
type GCReport struct {
	DryRun     bool        `json:"dryRun,omitempty"`
	Rules      []string    `json:"rules"`      // in words, one for each rule of the configuration
	Dispatches []GCRemoval `json:"dispatches"` // whose content or evidence goes
	Checkouts  []GCRemoval `json:"checkouts"`
	// Unreferenced is what nothing refers to, such as what a service stored
	// that was killed before its decision was durable. After the marks of
	// Dispatches it includes what only they referred to.
	Unreferenced GCCount `json:"unreferenced"`
	Kept         GCCount `json:"kept"`             // of content and evidence, after it
	Pinned       int     `json:"pinned"`           // dispatches that no rule touches
	Waiting      int     `json:"waiting"`          // dispatches that run, wait for an answer, or may be needed by a run that goes on
	Busy         int     `json:"busy,omitempty"`   // checkouts that the rules name and that are in use
	Spared       int     `json:"spared,omitempty"` // unreferenced blobs that somebody was about to refer to
}

// GCRemoval is one thing that goes.
type GCRemoval struct {
	Class    Class      `json:"class"`
	Dispatch DispatchID `json:"dispatchId,omitempty"`
	Name     string     `json:"name,omitempty"` // of a checkout
	Rule     string     `json:"rule"`
	Bytes    int64      `json:"bytes"` // that only it holds by then; what others share stays
}

// GCCount counts blobs.
type GCCount struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

// DiskUse is what the service's files take, in bytes of content.
type DiskUse struct {
	MeasuredAt   time.Time `json:"measuredAt"`
	Checkouts    int64     `json:"checkouts"`
	Content      int64     `json:"content"`
	Evidence     int64     `json:"evidence"`
	Unreferenced int64     `json:"unreferenced"` // blobs that nothing refers to yet, or any more
	Database     int64     `json:"database"`     // records and log
	Attempts     int64     `json:"attempts"`     // directories of attempts under way
	Free         int64     `json:"free"`         // of the file system, for this account
	Rules        []string  `json:"rules"`        // by which the service removes by itself, in words
}
