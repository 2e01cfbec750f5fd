package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

const (
	// maxTranscript bounds the event stream that is kept.
	maxTranscript = 64 << 20
	// maxSession bounds the archive of a session, with the headers of its files.
	maxSession = agent.MaxSession + 4<<20
)

// transcriptFile is the event stream until it is kept as content.
const transcriptFile = "transcript"

// transcript keeps the event stream of an agent program, redacted, and reads it. It
// makes the agent wait for the disk only, and never fails: what cannot be written is
// left out.
type transcript struct {
	clean  *redact.Writer
	file   *os.File
	reader *agent.Reader
	size   int64 // of the stream
	kept   int64
	err    error
}

func newTranscript(dir string, set *redact.Set, adapter *agent.Adapter, log io.Writer) (*transcript, error) {
	f, err := os.OpenFile(filepath.Join(dir, transcriptFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	t := &transcript{file: f, reader: adapter.NewReader(log)}
	t.clean = set.Writer(cleaned{t})
	return t, nil
}

func (t *transcript) Write(p []byte) (int, error) { return t.clean.Write(p) }

// cleaned takes what is redacted.
type cleaned struct{ *transcript }

func (c cleaned) Write(p []byte) (int, error) {
	t := c.transcript
	t.size += int64(len(p))
	if part := p[:min(int64(len(p)), maxTranscript-t.kept)]; t.err == nil && len(part) > 0 {
		var n int
		n, t.err = t.file.Write(part)
		t.kept += int64(n)
	}
	return t.reader.Write(p)
}

// end returns what the stream said, once it has ended. A nil transcript says nothing.
func (t *transcript) end() agent.Report {
	if t == nil {
		return agent.Report{}
	}
	_ = t.clean.Close() // nothing below it fails
	report, _ := t.reader.Close()
	return report
}

// keepReport keeps the event stream of an agent program and, for an attempt that asks a
// question, the program's own session. Nothing else depends on either.
func (a *attempt) keepReport(j *jail.Jail, asked bool) {
	if a.transcript == nil {
		return
	}
	if err := a.transcript.keep(&a.summary); err != nil {
		a.summary.leaveOut("transcript", err)
	}
	if asked {
		if err := a.summary.takeSession(j, a.plan.adapter, a.report.Session); err != nil {
			a.summary.leaveOut("session", err)
		}
	}
}

// keep keeps the transcript, if there is one.
func (t *transcript) keep(s *summary) error {
	defer os.Remove(t.file.Name()) //nolint:errcheck // the whole directory is removed soon
	defer t.file.Close()           //nolint:errcheck // read below
	if t.size == 0 {
		return t.err
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	kept, err := s.keep(t.file, "transcript")
	if err != nil {
		return err
	}
	if t.clean.Redacted() {
		kept.Redacted = true
		s.redacted("transcript")
	}
	s.Transcript = &kept
	if t.kept < t.size {
		return fmt.Errorf("%d bytes behind the first %d MiB, or behind a fault of the disk", t.size-t.kept, maxTranscript>>20)
	}
	return nil
}

// takeSession keeps the program's own session. The next attempt does without where it
// cannot be kept.
func (s *summary) takeSession(j *jail.Jail, adapter *agent.Adapter, id string) error {
	session, err := adapter.TakeSession(j.Home(), id, s.redact.Bytes)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := session.Pack(&archive); err != nil {
		return err
	}
	kept, err := s.keep(&archive, "session")
	if err == nil {
		s.Session = &kept
	}
	return err
}

// sharedLog redacts what several writers write to the log. A value that one of them
// begins and another ends is found too.
type sharedLog struct {
	mu    sync.Mutex
	set   *redact.Set
	to    *boundedLog
	clean *redact.Writer // guarded by mu
	found bool           // guarded by mu
}

func newSharedLog(set *redact.Set, to *boundedLog) *sharedLog {
	return &sharedLog{set: set, to: to, clean: set.Writer(to)}
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clean.Write(p)
}

// flush writes everything to the log, and reports whether something was redacted so
// far.
func (l *sharedLog) flush() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.clean.Close() // the log does not fail
	l.found = l.found || l.clean.Redacted()
	l.clean = l.set.Writer(l.to)
	return l.found
}
