package api

// EvidenceStatus counts, since the start of the service, the evidence of settled
// runs and ended dispatches that the service has verified as an auditor would.
type EvidenceStatus struct {
	Checked uint64 `json:"checked"`
	Refused uint64 `json:"refused"`
	Last    string `json:"last,omitempty"` // why the last refused one does not verify
}

// EvidenceRequest requests the evidence about a settled run or an ended dispatch.
type EvidenceRequest struct {
	Run      RunID
	Dispatch DispatchID
	Blobs    bool // include inputs and results
	// Checkpoints are signed checkpoints that the auditor has. The evidence proves
	// that its log extends each.
	Checkpoints [][]byte
}

// MaxCheckpoints bounds EvidenceRequest.Checkpoints.
const MaxCheckpoints = 8

// LogCheck is the result of verifying every entry of the log.
type LogCheck struct {
	Entries uint64 `json:"entries"`         // read, and hashed to the signed root
	Chained uint64 `json:"chained"`         // with the predecessor that they name
	Wrong   string `json:"wrong,omitempty"` // the first error; empty: the log is intact
}
