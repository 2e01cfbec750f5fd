package api

import "time"

// CanRequest asks what policy would say to a dispatch.
type CanRequest struct {
	Principal    Principal `json:"principal"`
	Subagent     Name      `json:"subagent"`
	Target       Name      `json:"target,omitempty"`
	Envs         []Name    `json:"env,omitempty"`
	Source       Name      `json:"source,omitempty"`
	Capabilities []Name    `json:"capabilities,omitempty"`
}

// CanAnswer is a decision that was asked for and not acted on.
type CanAnswer struct {
	Allowed  bool     `json:"allowed"`
	Policies []string `json:"policies,omitempty"` // that decided
	Reasons  []string `json:"reasons,omitempty"`  // in words: what is missing, or what forbids
	Revision uint64   `json:"revision"`
}

// ServiceStatus is what a running service says of itself.
type ServiceStatus struct {
	Version       string         `json:"version"`
	PID           int            `json:"pid"`
	Mode          string         `json:"mode"`
	StartedAt     time.Time      `json:"startedAt"`
	Ready         bool           `json:"ready"`
	NotReady      string         `json:"notReady,omitempty"`
	Revision      uint64         `json:"revision"` // 0 when no catalog has been applied
	RevisionID    Digest         `json:"revisionDigest,omitempty"`
	CatalogError  string         `json:"catalogError,omitempty"`
	LogEntries    uint64         `json:"logEntries"`
	Dispatches    map[string]int `json:"dispatches"` // by state
	Isolation     []string       `json:"isolation"`  // what this machine gives, one line a layer
	Socket        string         `json:"socket"`
	StateDir      string         `json:"stateDir"`
	CatalogDir    string         `json:"catalogDir"`
	TrustRoot     string         `json:"trustRoot"`
	DeployKeys    []string       `json:"deployKeys"`
	SignThreshold int            `json:"signThreshold"`
	ConfigFile    string         `json:"configFile,omitempty"` // that was read; empty: the defaults hold
	Metrics       string         `json:"metrics,omitempty"`    // where they are served; empty: they are not
	Tracing       string         `json:"tracing,omitempty"`    // where spans go; empty: they are not exported
	Disk          *DiskUse       `json:"disk,omitempty"`       // absent until it was measured
	DiskError     string         `json:"diskError,omitempty"`  // why it could not be
	OneShot       *OneShot       `json:"oneShot,omitempty"`    // absent when the service lasts until it is stopped
	Stops         []string       `json:"stops,omitempty"`      // emergency stops that hold

	Orchestrator *OrchestratorStatus `json:"orchestrator,omitempty"` // absent when the service runs without one
}

// OrchestratorStatus is how runs are.
type OrchestratorStatus struct {
	Queues   []Queue           `json:"queues"`
	OpenRuns int               `json:"openRuns"`        // that are not settled
	Tasks    map[TaskState]int `json:"tasks"`           // of those, by state
	Error    string            `json:"error,omitempty"` // why nothing moves until the service is restarted
}

// OneShot is how long a service stays that was started for a command.
type OneShot struct {
	IdleSeconds float64    `json:"idleSeconds"`      // it ends when no request and no worker has been there for so long
	EndsAt      *time.Time `json:"endsAt,omitempty"` // when that will be; absent while one is there
}

// LogLine is one audit entry as a reader gets it.
type LogLine struct {
	Seq  uint64 `json:"seq"`
	Text string `json:"text"` // one line in plain words
	Leaf []byte `json:"leaf"` // the entry's exact canonical bytes
}

// Chunk is a piece of a dispatch's log. Where the offset is beyond the end of
// the chunk before, what is between is not kept.
type Chunk struct {
	Offset int64  `json:"offset"`
	Data   []byte `json:"data,omitempty"`
	Ended  bool   `json:"ended,omitempty"` // nothing follows
}

// CancelRequest asks for the end of a dispatch.
type CancelRequest struct {
	Reason string `json:"reason,omitempty"`
}

// LogQuery selects audit entries. The zero value selects all.
type LogQuery struct {
	After     *uint64    // only entries behind this sequence number
	Last      int        // only the newest so many
	Run       RunID      // only of this run, its tasks and their dispatches
	Dispatch  DispatchID // only of this dispatch
	Principal Principal  // only of this principal
	Kind      string     // only of this kind
}
