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
	Version       string          `json:"version"`
	PID           int             `json:"pid"`
	Mode          string          `json:"mode"`
	StartedAt     time.Time       `json:"startedAt"`
	Ready         bool            `json:"ready"`
	NotReady      string          `json:"notReady,omitempty"`
	Revision      uint64          `json:"revision"` // 0 when no catalog has been applied
	RevisionID    Digest          `json:"revisionDigest,omitempty"`
	CatalogError  string          `json:"catalogError,omitempty"`
	LogEntries    uint64          `json:"logEntries"`
	Log           *LogTree        `json:"log,omitempty"`
	Anchors       []AnchorStatus  `json:"anchors,omitempty"`
	Evidence      *EvidenceStatus `json:"evidence,omitempty"`
	Dispatches    map[string]int  `json:"dispatches"` // by state
	Isolation     []string        `json:"isolation"`  // what this machine gives, one line a layer
	Socket        string          `json:"socket"`
	StateDir      string          `json:"stateDir"`
	CatalogDir    string          `json:"catalogDir"`
	TrustRoot     string          `json:"trustRoot"`
	DeployKeys    []string        `json:"deployKeys"`
	SignThreshold int             `json:"signThreshold"`
	ConfigFile    string          `json:"configFile,omitempty"` // that was read; empty: the defaults hold
	Metrics       string          `json:"metrics,omitempty"`    // where they are served; empty: they are not
	Tracing       string          `json:"tracing,omitempty"`    // where spans go; empty: they are not exported
	Disk          *DiskUse        `json:"disk,omitempty"`       // absent until it was measured
	DiskError     string          `json:"diskError,omitempty"`  // why it could not be
	OneShot       *OneShot        `json:"oneShot,omitempty"`    // absent when the service lasts until it is stopped
	Stops         []string        `json:"stops,omitempty"`      // emergency stops that hold

	Orchestrator *OrchestratorStatus `json:"orchestrator,omitempty"` // absent when the service runs without one
}

// OrchestratorStatus is how runs are.
type OrchestratorStatus struct {
	Queues   []Queue           `json:"queues"`
	OpenRuns int               `json:"openRuns"`        // that are not settled
	Tasks    map[TaskState]int `json:"tasks"`           // of those, by state
	Error    string            `json:"error,omitempty"` // why nothing moves until the service is restarted
}

// LogTree is how the tree over the log is.
type LogTree struct {
	Origin       string     `json:"origin"`
	Size         uint64     `json:"size"`                   // entries in it
	Checkpoint   uint64     `json:"checkpoint"`             // entries that the newest signed checkpoint covers
	CheckpointAt *time.Time `json:"checkpointAt,omitempty"` // when that was signed; absent: none was
	LagSeconds   float64    `json:"lagSeconds"`             // age of the oldest entry that none covers; 0: there is none
	Error        string     `json:"error,omitempty"`        // why it is not kept
}

// AnchorStatus is how an anchor of the log is.
type AnchorStatus struct {
	Name         string     `json:"name"`
	Kind         string     `json:"kind"` // file, git, s3 or tsa
	Place        string     `json:"place"`
	Entries      uint64     `json:"entries"`                // of the largest checkpoint that it has given a receipt for
	At           *time.Time `json:"at,omitempty"`           // when; absent: never
	Behind       uint64     `json:"behind"`                 // entries of the log beyond that
	EverySeconds float64    `json:"everySeconds"`           // how often it gets one, if something was logged
	Error        string     `json:"error,omitempty"`        // why the last try failed
	FailingSince *time.Time `json:"failingSince,omitempty"` // when the first of several failures was
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
