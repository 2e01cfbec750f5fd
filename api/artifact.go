package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Kind is a kind of artifact in the catalog. The set is closed.
type Kind string

// The kinds.
const (
	KindCapability Kind = "capability"
	KindSubagent   Kind = "subagent"
	KindModel      Kind = "model"
	KindEnv        Kind = "env"
	KindSecret     Kind = "secret"
	KindSource     Kind = "source"
	KindTarget     Kind = "target"
	KindTool       Kind = "tool" // a ToolServer
	KindRole       Kind = "role"
	KindGrant      Kind = "grant"
	KindSchedule   Kind = "schedule"
	KindIdentity   Kind = "identity"
)

// Kinds lists every kind, in the order in which people read a catalog.
func Kinds() []Kind {
	return []Kind{KindCapability, KindSubagent, KindModel, KindEnv, KindSecret, KindSource, KindTarget, KindTool, KindRole, KindGrant, KindSchedule, KindIdentity}
}

// Ref names an artifact within a revision: KIND/NAME.
type Ref string

// RefTo returns the ref of an artifact.
func RefTo(k Kind, n Name) Ref { return Ref(string(k) + "/" + string(n)) }

// Split returns the kind and name of r.
func (r Ref) Split() (Kind, Name, error) {
	k, n, ok := strings.Cut(string(r), "/")
	if !ok {
		return "", "", fmt.Errorf("ref %q: want KIND/NAME", string(r))
	}
	for _, known := range Kinds() {
		if Kind(k) == known {
			name, err := ParseName(n)
			return known, name, err
		}
	}
	return "", "", fmt.Errorf("ref %q: unknown kind %q", string(r), k)
}

// UnmarshalText refuses what Split refuses.
func (r *Ref) UnmarshalText(b []byte) error {
	*r = Ref(b)
	_, _, err := r.Split()
	return err
}

// Revision is one state of the catalog: what every name means. It is stored
// as canonical JSON and signed as the payload of a DSSE envelope.
type Revision struct {
	V         int           `json:"v"`                  // format of this document: 1
	Number    uint64        `json:"number"`             // 1 for the first
	Previous  Digest        `json:"previous,omitempty"` // digest of the revision before; absent in the first
	CreatedAt time.Time     `json:"createdAt"`
	Author    string        `json:"author"` // who ran apply, as the deploy program saw it; only the signatures prove anything
	Reason    string        `json:"reason,omitempty"`
	Artifacts map[Ref]Entry `json:"artifacts"`
}

// Entry is what a revision says about one artifact.
type Entry struct {
	Digest      Digest `json:"digest"` // of the artifact document's stored bytes
	Description string `json:"description,omitempty"`
	Project     Name   `json:"project,omitempty"` // whose manifest may change it; empty in revisions made before there were projects
}

// Duration is a time.Duration in Go's text format: "30m", "1h30m".
type Duration time.Duration

// MarshalText writes d as time.Duration does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// maxDuration is small enough to be added to the current time twice.
const maxDuration = 36525 * 24 * time.Hour

// UnmarshalText reads a positive duration of at most a hundred years.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if _, number := strconv.ParseUint(string(b), 10, 32); number == nil && string(b) != "0" {
		return fmt.Errorf("duration %s has no unit: write %[1]ss for seconds, %[1]sm for minutes or %[1]sh for hours", b)
	}
	if err != nil || v <= 0 || v > maxDuration {
		return fmt.Errorf("duration %q: want a positive duration such as 90s or 30m, at most 876600h", b)
	}
	*d = Duration(v)
	return nil
}

// Span returns n units of time, or the longest or most negative duration instead of one
// that overflows: n may be from an AI, an agent or a log that someone changed.
func Span(n int64, unit time.Duration) time.Duration {
	switch most := math.MaxInt64 / int64(unit); {
	case n > most:
		return math.MaxInt64
	case n < -most:
		return math.MinInt64
	}
	return time.Duration(n) * unit
}

// Bytes is an amount of memory or storage in bytes, read as "512MiB", "4GiB"
// or a plain number and written as a plain number.
type Bytes int64

// UnmarshalText reads a positive amount with an optional binary unit.
func (n *Bytes) UnmarshalText(b []byte) error {
	s, mult := string(b), int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			s, mult = strings.TrimSpace(rest), int64(1)<<(10*(i+1))
		}
	}
	var v int64
	if _, err := fmt.Sscanf(s, "%d", &v); err != nil || fmt.Sprint(v) != s || v <= 0 || v > (1<<62)/mult {
		return fmt.Errorf("size %q: want a positive whole number with an optional KiB, MiB, GiB or TiB", b)
	}
	*n = Bytes(v * mult)
	return nil
}

// UnmarshalJSON accepts a number of bytes or text with a unit.
func (n *Bytes) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	return n.UnmarshalText([]byte(s))
}

func (n Bytes) String() string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if m := Bytes(1) << (10 * (4 - i)); n >= m && n%m == 0 {
			return fmt.Sprintf("%d%s", n/m, unit)
		}
	}
	return fmt.Sprintf("%d", int64(n))
}

// Capability is a named bundle of files that is laid over a worker's workspace.
// Files are sorted by path.
type Capability struct {
	Name        Name          `json:"name"`
	Description string        `json:"description,omitempty"`
	Files       []File        `json:"files"`
	Setup       string        `json:"setup,omitempty"`    // path of the setup script among Files; runs in the jail before the agent
	Requires    []Requirement `json:"requires,omitempty"` // checked in the jail before the agent starts
}

// File is one regular file of a bundle.
type File struct {
	Path   string `json:"path"` // slash-separated, relative, clean
	Mode   uint32 `json:"mode"` // permission bits: 0644 or 0755
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}

// Requirement is a condition checked before the agent starts. Exactly one field is
// set.
type Requirement struct {
	Exec string `json:"exec,omitempty"` // this program is on the jail's PATH
	Git  string `json:"git,omitempty"`  // "worktree": the dispatch has a source
}

// Command is a program with its arguments; no shell is involved.
type Command []string

// Subagent is a worker definition.
type Subagent struct {
	Name         Name            `json:"name"`
	Description  string          `json:"description,omitempty"`
	Agent        string          `json:"agent"`                  // adapter: command, claude-code, codex, opencode or gemini
	Command      Command         `json:"command,omitempty"`      // for the command adapter
	Model        string          `json:"model,omitempty"`        // NAME/LEVEL
	RequireModel bool            `json:"requireModel,omitempty"` // an agent fails if its model answered no request with a status of 2xx
	System       string          `json:"system,omitempty"`       // the system prompt's text
	Prompt       string          `json:"prompt,omitempty"`       // text/template over the input
	Input        json.RawMessage `json:"input,omitempty"`        // JSON Schema of the input
	Output       json.RawMessage `json:"output,omitempty"`       // JSON Schema of outputs/result.json
	Role         Name            `json:"role"`
	Tier         Tier            `json:"tier"`
	Capabilities []Name          `json:"capabilities,omitempty"` // laid over the workspace in this order
	Verify       *Verify         `json:"verify,omitempty"`
	Limits       Limits          `json:"limits"`
	Target       Name            `json:"target,omitempty"` // where it runs unless the request says otherwise
	Effect       Effect          `json:"effect,omitempty"` // absent: it may change things, and its result is not reused
}

// Verify is a command that judges the captured patch in a fresh jail.
type Verify struct {
	Command    Command  `json:"command"`
	Timeout    Duration `json:"timeout,omitempty"`
	ReportOnly bool     `json:"reportOnly,omitempty"` // a red verify does not fail the dispatch
	// Protects are patterns of MatchPath for files that the command runs without naming
	// them. A patch that changes one is marked.
	Protects []string `json:"protects,omitempty"`
}

// DefaultVerifyTime is for a verify command without a timeout.
const DefaultVerifyTime = Duration(10 * time.Minute)

// Time returns how long v may take; 0 without a verify command.
func (v *Verify) Time() Duration {
	if v == nil {
		return 0
	}
	return cmp.Or(v.Timeout, DefaultVerifyTime)
}

// Limits bound one dispatch. Zero means the default of DefaultLimits.
type Limits struct {
	Timeout   Duration `json:"timeout,omitempty"`   // of the agent, setup included
	Memory    Bytes    `json:"memory,omitempty"`    // resident memory of the whole jail
	Processes int      `json:"processes,omitempty"` // processes and threads of the whole jail
	Disk      Bytes    `json:"disk,omitempty"`      // everything that the jail writes
	FileSize  Bytes    `json:"fileSize,omitempty"`  // one file
	Files     int      `json:"files,omitempty"`     // number of files that the jail creates
	CPU       float64  `json:"cpu,omitempty"`       // processors; 1.5 is one and a half
	Log       Bytes    `json:"log,omitempty"`       // log kept, half of it from the beginning and half from the end
	Answer    Duration `json:"answer,omitempty"`    // how long a question waits before the dispatch fails
	Tokens    int64    `json:"tokens,omitempty"`    // of the model, input and output together; 0: no limit
	Cost      Cost     `json:"cost,omitempty"`      // of the model, in the currency of its prices; 0: no limit
	Turns     int      `json:"turns,omitempty"`     // answers of the model; 0: no limit
	Calls     int      `json:"calls,omitempty"`     // of tools, allowed or refused; 0: MaxToolCalls
}

// DefaultLimits are the limits of a subagent that names none.
func DefaultLimits() Limits {
	return Limits{
		Timeout: Duration(30 * time.Minute), Memory: 4 << 30, Processes: 512, Disk: 2 << 30,
		FileSize: 2 << 30, Files: 200_000, CPU: 2, Log: 16 << 20, Answer: Duration(7 * 24 * time.Hour),
	}
}

// Or returns l with each zero field taken from def.
func (l Limits) Or(def Limits) Limits {
	l.each(def, func(_ string, v, d reflect.Value) {
		if v.IsZero() {
			v.Set(d)
		}
	})
	return l
}

// Within returns an error if any limit exceeds that of upper.
func (l Limits) Within(upper Limits) (err error) {
	l.each(upper, func(name string, v, u reflect.Value) {
		if err == nil && exceeds(v, u) {
			err = fmt.Errorf("limit %s exceeds its upper bound", name)
		}
	})
	return err
}

// Least returns the smaller of each limit; zero means no bound.
func (l Limits) Least(other Limits) Limits {
	l.each(other, func(_ string, v, o reflect.Value) {
		if !o.IsZero() && (v.IsZero() || exceeds(v, o)) {
			v.Set(o)
		}
	})
	return l
}

// each calls f with every limit of l and other, by the name of its JSON member.
func (l *Limits) each(other Limits, f func(name string, v, o reflect.Value)) {
	v, o := reflect.ValueOf(l).Elem(), reflect.ValueOf(other)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f(name, v.Field(i), o.Field(i))
	}
}

// exceeds reports whether v exceeds bound; a zero is no limit.
func exceeds(v, bound reflect.Value) bool {
	if v.IsZero() || bound.IsZero() {
		return v.IsZero() && !bound.IsZero()
	}
	if v.CanFloat() {
		return v.Float() > bound.Float()
	}
	return v.Int() > bound.Int()
}

// Env is a set of environment variables, with the hosts that its agents may reach.
type Env struct {
	Name        Name                 `json:"name"`
	Description string               `json:"description,omitempty"`
	Values      map[string]string    `json:"values,omitempty"`
	Secrets     map[string]SecretUse `json:"secrets,omitempty"` // by variable
	Egress      []string             `json:"egress,omitempty"`  // HOST:PORT or *.HOST:PORT
}

// Source is a repository that a dispatch may start from.
type Source struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`
	Repo        string `json:"repo"` // absolute path of a git repository on the service's machine, or https:// or ssh:// URL
	// Of a URL: the secret that the service fetches with, and the user name for it.
	Secret Name   `json:"secret,omitempty"`
	User   string `json:"user,omitempty"`
	// KnownHosts are lines of known_hosts that the server of an ssh:// URL must match.
	KnownHosts []string `json:"knownHosts,omitempty"`
}

// IsRemote reports whether the service fetches the repository of a source by its URL.
func IsRemote(repo string) bool {
	return strings.HasPrefix(repo, "https://") || strings.HasPrefix(repo, "ssh://")
}

// Target is a place and mode to run.
type Target struct {
	Name        Name     `json:"name"`
	Description string   `json:"description,omitempty"`
	Executor    string   `json:"executor"`           // jail
	Level       string   `json:"level"`              // isolation: full
	Mode        Mode     `json:"mode"`               // readonly, guarded, open
	ReadOnly    []string `json:"readOnly,omitempty"` // host paths visible read-only in the jail, besides the system toolchain
	Path        []string `json:"path,omitempty"`     // directories put in front of the jail's PATH
	Egress      []string `json:"egress,omitempty"`   // HOST:PORT or *.HOST:PORT that its agents may reach
	Limits      Limits   `json:"limits,omitzero"`    // upper bounds; a subagent may have lower ones
}

// Role names what a worker is allowed to call.
type Role struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`
}

// Grant lets a principal dispatch exactly what its lists name.
type Grant struct {
	Name         Name      `json:"name"`
	Principal    Principal `json:"principal"`
	Subagents    []Name    `json:"subagents"`
	Envs         []Name    `json:"envs,omitempty"`
	Sources      []Name    `json:"sources,omitempty"`
	Capabilities []Name    `json:"capabilities,omitempty"` // extras that a request may name
	Targets      []Name    `json:"targets,omitempty"`
	Ceiling      Tier      `json:"ceiling"` // observe when absent
	// Approve lists roles whose tool calls the principal may approve, and ApproveOwn adds
	// those of dispatches that it submitted itself. Never those at tier irreversible.
	Approve    []Name `json:"approve,omitempty"`
	ApproveOwn bool   `json:"approveOwn,omitempty"`
	// Budget bounds what the dispatches that it allows may spend together.
	Budget *Budget `json:"budget,omitempty"`
	// Append lets the principal add tasks to its own open runs through the run-time API,
	// which is all that bailiwick-mcp has. At the account of the service, an owner needs
	// no grant for it: bailiwick run append.
	Append bool `json:"append,omitempty"`
	// Reuse lists owners whose results of pure subagents the tasks of the principal may
	// reuse, beside its own.
	Reuse []Principal `json:"reuse,omitempty"`
	// Writes makes every task of the principal whose subagent has the effect write wait
	// for people, whichever of its grants allows it.
	Writes *WriteRule `json:"writes,omitempty"`
}
