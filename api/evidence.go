package api

// EvidenceStatus is what came of checking, as an auditor would, what the service
// would hand out about runs and dispatches that are over. It counts since the
// start of the service.
type EvidenceStatus struct {
	Checked uint64 `json:"checked"`
	Refused uint64 `json:"refused"`
	Last    string `json:"last,omitempty"` // why the last one that was refused does not verify
}

// EvidenceRequest asks for the evidence about what is over: a run, or one
// dispatch.
type EvidenceRequest struct {
	Run      RunID
	Dispatch DispatchID
	Blobs    bool // with what was taken in and brought back
	// Checkpoints are signed ones that the auditor has. The evidence proves that
	// its log goes on each.
	Checkpoints [][]byte
}

// MaxCheckpoints is how many a request may have.
const MaxCheckpoints = 8

// LogCheck says that every entry of the log is what it was, and in its place.
type LogCheck struct {
	Entries uint64 `json:"entries"`         // that were read, and hashed to the root that was signed
	Chained uint64 `json:"chained"`         // that follow what they say they follow
	Wrong   string `json:"wrong,omitempty"` // what is not as it must be; empty: nothing
}
