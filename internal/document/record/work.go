package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The files of a worker's directory. They are the whole state of an attempt, from
// which a restarted service recovers it.
const (
	WorkManifest = "manifest"     // the signed dispatch manifest, written by the executor
	WorkInput    = "input"        // the canonical input, likewise
	WorkResume   = "resume"       // the canonical ResumeInput, likewise, of a resumed attempt
	WorkPatch    = "resume.patch" // the previous attempt's patch, likewise
	WorkNeed     = "need."        // followed by a name: the content of that need, likewise
	WorkSocket   = "control.sock" // the worker listens; lines of WorkerMessage out, ServiceMessage in
	WorkLog      = "log"          // folder with the jail's output, bounded: see LogFile
	WorkEvents   = "events.jsonl" // one WorkerMessage a line
	WorkOut      = "out"          // captured content, each file named by the hexadecimal part of its digest
	WorkResult   = "result"       // the signed result; appears last, atomically
	WorkErrors   = "worker.err"   // the worker's own output
	WorkNetwork  = "network"      // one api.NetworkLine a line, for each request of the agent; the Network of a result
	WorkSession  = "session"      // state of the agent's own session, of a resumed attempt
)

// verifyEnd ends the name of a file that the verify command's output is in.
const verifyEnd = ".verify"

// LogFile names the file of a part in a log's folder. Names sort like offsets.
func LogFile(p api.LogPart) string {
	name := fmt.Sprintf("%016d", p.Offset)
	if p.Verify {
		name += verifyEnd
	}
	return name
}

// ParseLogFile returns the offset of the part that a file has, and who wrote it.
func ParseLogFile(name string) (p api.LogPart, ok bool) {
	digits, verify := strings.CutSuffix(name, verifyEnd)
	offset, err := strconv.ParseInt(digits, 10, 64)
	p = api.LogPart{Offset: offset, Verify: verify}
	return p, err == nil && offset >= 0 && LogFile(p) == name
}

const (
	// Heartbeat is how often a worker says that it is alive.
	Heartbeat = 5 * time.Second
	// AgentGrace is how long an agent may take to exit after SIGTERM.
	AgentGrace = 5 * time.Second
)

// WorkerMessage is one line of a worker's progress. It has no authority: only the
// signed result says what the outcome is.
type WorkerMessage struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`          // ready, step, log, model, alive, refused, asked, sealed, tools
	Key   string    `json:"key,omitempty"`  // ready: public half of the worker's key, base64
	Step  *api.Step `json:"step,omitempty"` // step: one part of the work has ended
	Log   int64     `json:"log,omitempty"`  // log: bytes that the jail has written
	// Unreachable, of model: the worker cannot connect to the model; absent: it can again.
	Unreachable *api.Unreachable `json:"unreachable,omitempty"`
	// Refused: a request of the agent that the broker refused. The service logs it. A
	// worker sends the first MaxRefusals, and signs their RefusalsOf.
	Refused *EgressRefusal `json:"refused,omitempty"`
	// Asked: the worker has the question of ServiceMessage.Question, and keeps it whatever
	// the agent does.
	//
	// Tools: the last line on a connection for tools. From here on it is unencrypted
	// HTTP/2, whose client is the worker.
}

// MaxRefusals is how many refused requests an agent may make. One more ends it with
// the reason limit.
const MaxRefusals = 1000

// ServiceMessage is one line from the service to a worker.
type ServiceMessage struct {
	// Proceed means that the start is durable in the log. Until then the worker has
	// no effect outside its directory.
	Proceed bool `json:"proceed,omitempty"`
	// Cancel ends the work; the worker captures what exists.
	Cancel string `json:"cancel,omitempty"`
	// Tools, as the first line, makes the connection one for tools.
	Tools bool `json:"tools,omitempty"`
	// Question ends the attempt with a question that the agent asked by its tool ask.
	// Only the first one counts.
	Question *api.Question `json:"question,omitempty"`
	// Spent ends the attempt with the reason limit, in these words.
	Spent string `json:"spent,omitempty"`
}

// Fields of the requests on a connection for tools, which agents neither send nor see.
const (
	// ToolMessage of a request is the key of a message. The worker sends the message as POST,
	// and after a broken connection as PUT with the same key: it is decided once.
	ToolMessage = "Bailiwick-Message"
	// ToolUndecided of an answer, or of its trailer, means that the service stops, and that
	// the message has no entry.
	ToolUndecided = "Bailiwick-Undecided"
)

// MaxWorkLine bounds a line between service and worker, in bytes: escaping makes a
// question longer than the agent wrote it.
const MaxWorkLine = 8 << 20
