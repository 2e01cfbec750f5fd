package record

import (
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The files of a worker's directory, which is the whole truth about one
// attempt: whoever finds it can tell how far it came.
const (
	WorkManifest = "manifest"     // the signed dispatch manifest, put there by whoever fires the worker
	WorkInput    = "input"        // the canonical input, likewise
	WorkResume   = "resume"       // the canonical ResumeInput, likewise, of an attempt that goes on from another
	WorkPatch    = "resume.patch" // the earlier patch, likewise
	WorkNeed     = "need."        // with a name after it: the content of that need, likewise, of a task's attempt
	WorkLock     = "lock"         // held by the worker while it lives
	WorkSocket   = "control.sock" // the worker listens; lines of WorkerMessage out, ServiceMessage in
	WorkLog      = "log"          // folder of what the jail wrote, bounded: see LogFile
	WorkEvents   = "events.jsonl" // one WorkerMessage a line
	WorkOut      = "out"          // captured content, each file named by the hexadecimal part of its digest
	WorkResult   = "result"       // the signed result; appears last, atomically
	WorkErrors   = "worker.err"   // what the worker itself printed
)

// LogFile names the file of a log's folder whose first byte is at offset of
// all that was written. Names sort as offsets do.
func LogFile(offset int64) string { return fmt.Sprintf("%016d", offset) }

// WorkerMessage is one line that a worker says of its progress. It carries no
// authority: the outcome is in the signed result only.
type WorkerMessage struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`          // ready, step, log, sealed
	Key   string    `json:"key,omitempty"`  // ready: public half of the worker's key, base64
	Step  *api.Step `json:"step,omitempty"` // step: one part of the work is over
	Log   int64     `json:"log,omitempty"`  // log: the jail has written so many bytes
}

// ServiceMessage is one line that the service says to a worker.
type ServiceMessage struct {
	// Proceed says that the start is durable in the log. Until then the worker
	// has no effect outside its directory.
	Proceed bool `json:"proceed,omitempty"`
	// Cancel ends the work; what there is will be captured.
	Cancel string `json:"cancel,omitempty"`
}
