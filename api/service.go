package api

import "time"

// CanRequest queries the decision about a dispatch without requesting it, or with
// Append the one about adding tasks to a run of the principal through the run-time API.
type CanRequest struct {
	Principal    Principal `json:"principal"`
	Append       bool      `json:"append,omitempty"` // the other members are about a dispatch
	Subagent     Name      `json:"subagent,omitempty"`
	Target       Name      `json:"target,omitempty"`
	Envs         []Name    `json:"env,omitempty"`
	Source       Name      `json:"source,omitempty"`
	Capabilities []Name    `json:"capabilities,omitempty"`
}

// CanAnswer is the decision about a CanRequest.
type CanAnswer struct {
	Allowed  bool     `json:"allowed"`
	Policies []string `json:"policies,omitempty"` // that decided
	Reasons  []string `json:"reasons,omitempty"`  // what is missing, or what forbids it, as text
	Revision uint64   `json:"revision"`
	// What an allowed dispatch reaches outside its jail. Secrets have no Ref.
	Endpoint *ModelUse   `json:"endpoint,omitempty"`
	Egress   []string    `json:"egress,omitempty"`
	Secrets  []SecretRef `json:"secrets,omitempty"`
}

// ServiceStatus is the status of a running service.
type ServiceStatus struct {
	Version      string          `json:"version"`
	PID          int             `json:"pid"`
	Mode         string          `json:"mode"`
	StartedAt    time.Time       `json:"startedAt"`
	Ready        bool            `json:"ready"`
	NotReady     string          `json:"notReady,omitempty"`
	StateError   string          `json:"stateError,omitempty"` // why the state cannot be read; the members that come from it then say nothing
	Revision     uint64          `json:"revision"`             // 0 before the first apply
	RevisionID   Digest          `json:"revisionDigest,omitempty"`
	CatalogError string          `json:"catalogError,omitempty"`
	LogEntries   uint64          `json:"logEntries"`
	Log          *LogTree        `json:"log,omitempty"`
	Anchors      []AnchorStatus  `json:"anchors,omitempty"`
	Notify       []NotifyStatus  `json:"notify,omitempty"`
	Evidence     *EvidenceStatus `json:"evidence,omitempty"`
	Dispatches   map[string]int  `json:"dispatches"` // by state
	Isolation    []string        `json:"isolation"`  // active isolation layers, one line each
	// IsolationLacks are the layers and limits that an attempt lacks, each with its reason. Mode system alone has them: a service of
	// mode same-user does not start without a layer.
	IsolationLacks []string `json:"isolationLacks,omitempty"`
	// LauncherRefused is the attempt that the launcher refused last, since it is not what people signed; empty once another one was
	// started. Mode system alone has it.
	LauncherRefused string `json:"launcherRefused,omitempty"`

	Socket        string   `json:"socket"`
	Remote        string   `json:"remote,omitempty"` // address of remote callers, over TLS; empty: none are served
	StateDir      string   `json:"stateDir"`
	CatalogDir    string   `json:"catalogDir"`
	TrustRoot     string   `json:"trustRoot"`
	DeployKeys    []string `json:"deployKeys"`
	SignThreshold int      `json:"signThreshold"`
	ConfigFile    string   `json:"configFile,omitempty"`   // empty: defaults only
	ConfigDigest  Digest   `json:"configDigest,omitempty"` // of its content when the service started
	Metrics       string   `json:"metrics,omitempty"`      // address; empty: not served
	Tracing       string   `json:"tracing,omitempty"`      // collector; empty: not exported
	Disk          *DiskUse `json:"disk,omitempty"`         // absent until measured
	DiskError     string   `json:"diskError,omitempty"`    // why it could not be measured
	OneShot       *OneShot `json:"oneShot,omitempty"`      // absent without idle shutdown
	Stops         []string `json:"stops,omitempty"`        // ids of the emergency stops in force

	Orchestrator *OrchestratorStatus `json:"orchestrator,omitempty"` // absent without an orchestrator
	UndrivenRuns int                 `json:"undrivenRuns,omitempty"` // open runs that nothing continues: there is no orchestrator
}

// OrchestratorStatus is the status of the orchestrator.
type OrchestratorStatus struct {
	Queues   []Queue           `json:"queues"`
	OpenRuns int               `json:"openRuns"`        // that are not settled
	Tasks    map[TaskState]int `json:"tasks"`           // of open runs, by state
	Error    string            `json:"error,omitempty"` // why it has stopped until the service is restarted
}

// LogTree is the status of the tree over the log.
type LogTree struct {
	Origin       string     `json:"origin"`
	Size         uint64     `json:"size"`                   // entries in it
	Checkpoint   uint64     `json:"checkpoint"`             // entries covered by the newest signed checkpoint
	CheckpointAt *time.Time `json:"checkpointAt,omitempty"` // when that was signed; absent before the first
	LagSeconds   float64    `json:"lagSeconds"`             // age of the oldest uncovered entry; 0: all are covered
	Error        string     `json:"error,omitempty"`        // why it is not up to date
	RepairedAt   *time.Time `json:"repairedAt,omitempty"`   // when damage was last noticed and the tree was rebuilt, since the service started
	Damage       string     `json:"damage,omitempty"`       // what it was
}

// AnchorStatus is the status of an anchor of the log.
type AnchorStatus struct {
	Name         string     `json:"name"`
	Kind         string     `json:"kind"` // file, git, s3 or tsa
	Place        string     `json:"place"`
	Entries      uint64     `json:"entries"`                // of the largest checkpoint with a receipt
	At           *time.Time `json:"at,omitempty"`           // when it gave that receipt; absent: never
	Behind       uint64     `json:"behind"`                 // newer entries of the log
	Compared     bool       `json:"compared"`               // since the service started, all that it holds was compared with the log
	Remembered   bool       `json:"remembered,omitempty"`   // no longer configured and not yet compared; it gets nothing more
	Lost         bool       `json:"lost,omitempty"`         // an operator named it as lost: it gets nothing more
	EverySeconds float64    `json:"everySeconds"`           // interval between checkpoints
	Error        string     `json:"error,omitempty"`        // of the last attempt
	FailingSince *time.Time `json:"failingSince,omitempty"` // start of the current series of failures
}

// NotifyStatus is the state of a receiver of notifications.
type NotifyStatus struct {
	Name         string        `json:"name"`
	Kind         string        `json:"kind"`  // command or webhook
	Place        string        `json:"place"` // the program, or scheme and host of the URL
	On           []WaitingKind `json:"on"`
	Pending      int           `json:"pending"`                // messages that are due; further ones may be in the log
	Delivered    int64         `json:"delivered"`              // since the receiver was configured
	Dropped      int64         `json:"dropped"`                // that expired undelivered
	At           *time.Time    `json:"at,omitempty"`           // of the last delivery since the service started
	Error        string        `json:"error,omitempty"`        // of the last try
	FailingSince *time.Time    `json:"failingSince,omitempty"` // start of the current series of failures
}

// OneShot is the idle shutdown of a service started for a command.
type OneShot struct {
	IdleSeconds float64    `json:"idleSeconds"`      // idle time before the shutdown
	EndsAt      *time.Time `json:"endsAt,omitempty"` // when it shuts down if it stays idle; absent while busy
}

// LogLine is one audit entry.
type LogLine struct {
	Seq  uint64 `json:"seq"`
	Text string `json:"text"` // the entry in one line
	Leaf []byte `json:"leaf"` // the entry's exact canonical bytes
}

// Chunk is a piece of a dispatch's log. If the offset is beyond the end of the
// previous chunk, the part between was not kept.
type Chunk struct {
	Offset int64  `json:"offset"`
	Data   []byte `json:"data,omitempty"`
	Verify bool   `json:"verify,omitempty"` // written by the verify command, after the agent had ended
	Ended  bool   `json:"ended,omitempty"`  // this is the last chunk
}

// CancelRequest requests the cancellation of a dispatch.
type CancelRequest struct {
	Reason string `json:"reason,omitempty"`
}

// HTTPReady reports whether the service lets the MCP server listen on HTTP, in no
// more detail than needed (R-T2).
type HTTPReady struct {
	Token bool `json:"token"` // at least one client token is active
	Audit bool `json:"audit"` // the log is writable: this request is logged
}
