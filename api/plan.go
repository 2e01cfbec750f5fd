package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// RunID identifies a run: 1 to 64 of a-z, 0-9 and '-'. A caller may choose it to
// make a retry safe.
type RunID string

var runIDPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)

// RunIDPattern is the form of an id, as a regular expression.
func RunIDPattern() string { return runIDPattern.String() }

// ParseRunID checks the form of an id.
func ParseRunID(s string) (RunID, error) {
	if !runIDPattern.MatchString(s) {
		return "", fmt.Errorf("run id %.80q: want 1 to 64 of a-z 0-9 - beginning and ending with a letter or digit", s)
	}
	return RunID(s), nil
}

// UnmarshalText refuses everything that ParseRunID refuses.
func (id *RunID) UnmarshalText(b []byte) error { return unmarshal(id, b, ParseRunID) }

// NewRunID returns an unused id whose text sorts by now.
func NewRunID(now time.Time) RunID {
	return RunID("r" + strings.TrimPrefix(string(NewDispatchID(now)), "d"))
}

// TaskID names a task within its run: 1 to 64 of letters, digits, '.', '_' and
// '-'. A task that grew is named after the one that it grew from: TASK[NAME],
// TASK.gate1, TASK.fix1, TASK.vote1. It is safe as the name of a file.
type TaskID string

var (
	taskIDPattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)
	grownIDPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?(\[[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\])?(\.(gate|fix|vote)[1-9][0-9]?)?$`)
)

// ParseTaskID checks the form of an id in a plan.
func ParseTaskID(s string) (TaskID, error) {
	if !taskIDPattern.MatchString(s) && grownIDPattern.MatchString(s) {
		from, _, _ := strings.Cut(s, "[")
		return "", fmt.Errorf("task id %.150q: this task is generated at run time; refer to the task that generates it, %q", s, from)
	}
	if !taskIDPattern.MatchString(s) {
		return "", fmt.Errorf("task id %.80q: want 1 to 64 of a-z A-Z 0-9 . _ - beginning and ending with a letter or digit", s)
	}
	return TaskID(s), nil
}

// ParseGrownTaskID checks the form of the id of a task that may have grown.
func ParseGrownTaskID(s string) (TaskID, error) {
	if !grownIDPattern.MatchString(s) {
		return "", fmt.Errorf("task id %.150q: want TASK, TASK[NAME] or one of these with .gate1, .fix1 or .vote1; TASK and NAME are 1 to 64 of a-z A-Z 0-9 . _ - beginning and ending with a letter or digit", s)
	}
	return TaskID(s), nil
}

// UnmarshalText refuses everything that ParseGrownTaskID refuses.
func (id *TaskID) UnmarshalText(b []byte) error { return unmarshal(id, b, ParseGrownTaskID) }

// The bounds of a plan. One that exceeds any is refused as a whole.
const (
	MaxPlan      = 4 << 20 // bytes of JSON
	MaxPlanTasks = 10_000
	MaxPlanEdges = 100_000
	MaxTaskLocks = 64
	MaxTaskNeeds = 64
	MaxLockKey   = 256
	MaxLabels    = 32
	MaxLabel     = 128     // characters of a label's value
	MaxInput     = 2 << 20 // bytes of a task's or dispatch's input, in canonical form
	MaxAttempts  = 20
	MaxPriority  = 100
)

// DefaultQueue is the queue of a plan that names none.
const DefaultQueue Name = "default"

// Plan is a DAG of tasks (R-O2). It names things, as a DispatchRequest does,
// and carries no authority (R-B7). Its JSON Schema is PlanSchema.
type Plan struct {
	ID     RunID          `json:"id,omitempty"`
	Queue  Name           `json:"queue,omitempty"`
	Source *SourceRequest `json:"source,omitempty"` // the default source of its tasks
	Limits PlanLimits     `json:"limits,omitzero"`
	Budget *Budget        `json:"budget,omitempty"` // of the run; its Per is empty
	// Labels are for people, to find the run by; they have no effect.
	Labels map[Name]string `json:"labels,omitempty"`
	// Parameters is a JSON Schema of the values that ${params.NAME} stands for. They
	// are resolved when the plan is submitted: what is stored has none.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Tasks      []PlanTask      `json:"tasks"`
}

// PlanLimits bound a run. Zero: unbounded.
type PlanLimits struct {
	Wall  Duration `json:"wall,omitempty"`  // after this time the run is cancelled
	Tasks int      `json:"tasks,omitempty"` // number of tasks, including those that grow and are appended; default MaxRunTasks
}

// PlanTask is one task.
type PlanTask struct {
	ID           TaskID          `json:"id"`
	Subagent     Name            `json:"subagent,omitempty"` // absent with Quorum and Approval
	Input        json.RawMessage `json:"input,omitempty"`    // a JSON object
	Source       *SourceRequest  `json:"source,omitempty"`
	Target       Name            `json:"target,omitempty"`
	Envs         []Name          `json:"env,omitempty"`
	Capabilities []Name          `json:"capabilities,omitempty"`
	Timeout      Duration        `json:"timeout,omitempty"` // at most the subagent's limit
	Locks        []Lock          `json:"locks,omitempty"`
	Retry        Retry           `json:"retry,omitzero"`
	DependsOn    []TaskID        `json:"depends_on,omitempty"`
	Needs        map[Name]Need   `json:"needs,omitempty"` // by the name of the file below inputs/
	Priority     int             `json:"priority,omitempty"`
	When         *When           `json:"when,omitempty"`
	After        After           `json:"after,omitempty"`
	Reuse        *ReusePolicy    `json:"reuse,omitempty"` // of the results of a pure subagent
	// How the task grows (R-O9). A ForEach may be combined with a Gate, which each of its
	// tasks has then.
	ForEach  *ForEach      `json:"for_each,omitempty"`
	Gate     *Gate         `json:"gate,omitempty"`
	Quorum   *Quorum       `json:"quorum,omitempty"`
	Approval *TaskApproval `json:"approval,omitempty"`
}

// Lock is a key that a task holds while it runs, exclusively or shared. Its JSON is
// KEY or {"shared": KEY}.
type Lock struct {
	Key    string
	Shared bool
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (l Lock) MarshalJSON() ([]byte, error) {
	if l.Shared {
		return json.Marshal(map[string]string{"shared": l.Key})
	}
	return json.Marshal(l.Key)
}

// UnmarshalJSON reads KEY or {"shared": KEY}.
func (l *Lock) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &l.Key); err == nil {
		l.Shared = false
		return nil
	}
	var o struct {
		Shared *string `json:"shared"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil || o.Shared == nil {
		return errors.New(`lock: want "KEY" or {"shared": "KEY"}`)
	}
	l.Key, l.Shared = *o.Shared, true
	return nil
}

// Retry says how often a task is attempted. The zero value is once.
type Retry struct {
	Attempts int      `json:"attempts,omitempty"` // in all; 0 is 1
	Backoff  Backoff  `json:"backoff,omitzero"`
	On       []Reason `json:"on,omitempty"` // reasons to retry; empty: DefaultRetryReasons
}

// DefaultRetryReasons are the reasons that may be transient (R-O4).
func DefaultRetryReasons() []Reason {
	return []Reason{ReasonAgent, ReasonTimeout, ReasonFetch, ReasonLost, ReasonLimit}
}

// Backoff is the wait before a retry: a random time from Min to Min doubled once
// for each failed attempt, at most Max. Its text is MIN..MAX, as in "2s..2m"; the zero value means
// DefaultBackoff.
type Backoff struct{ Min, Max Duration }

// DefaultBackoff is the backoff of a task that names none.
func DefaultBackoff() Backoff {
	return Backoff{Duration(2 * time.Second), Duration(2 * time.Minute)}
}

// MarshalText writes the form that UnmarshalText reads.
func (b Backoff) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s..%s", time.Duration(b.Min), time.Duration(b.Max)), nil
}

// UnmarshalText reads MIN..MAX.
func (b *Backoff) UnmarshalText(text []byte) error {
	low, high, ok := strings.Cut(string(text), "..")
	if !ok || b.Min.UnmarshalText([]byte(low)) != nil || b.Max.UnmarshalText([]byte(high)) != nil || b.Min > b.Max || b.Max > Duration(24*time.Hour) {
		return fmt.Errorf("backoff %.40q: want MIN..MAX such as 2s..2m, at most 24h", text)
	}
	return nil
}

// Need is what a task uses of another task, on which it thereby depends. Exactly
// one of Patch, Output and Result is set.
type Need struct {
	From   TaskID `json:"from"`
	Patch  bool   `json:"patch,omitempty"`  // its patch, as git apply reads it
	Output string `json:"output,omitempty"` // one of its files, by the path below outputs/
	Result bool   `json:"result,omitempty"` // its structured result, of a subagent that has an output schema
	// AllowFailed takes the products of those tasks of a ForEach that are done. Without
	// it, all of them have to be.
	AllowFailed bool `json:"allow_failed,omitempty"`
}

//go:embed plan.schema.json
var planSchema []byte

// PlanSchema is the JSON Schema of a Plan.
func PlanSchema() json.RawMessage { return bytes.Clone(planSchema) }
