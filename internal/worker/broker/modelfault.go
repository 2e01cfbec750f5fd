package broker

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// maxFaultText bounds what is kept of an error of the model, in bytes.
const maxFaultText = 300

// faults remembers what was wrong with the requests since the last complete answer.
type faults struct {
	model  string
	host   string
	secret *redact.Set // the credential
	now    func() time.Time

	mu   sync.Mutex
	n    int
	last string                // what the model did, as a predicate
	open map[*silence]struct{} // requests that have not ended
}

// silence is how long a request to the model has been without a byte of its answer. Its
// fields are guarded by the mutex of its faults.
type silence struct {
	since    time.Time
	answered bool // a part of the answer has come
}

// silent is when a request without an answer is worth telling people about.
const silent = 5 * time.Second

// sent notes a request to the model, until done is called.
func (f *faults) sent() (s *silence, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s = &silence{since: f.now()}
	if f.open == nil {
		f.open = map[*silence]struct{}{}
	}
	f.open[s] = struct{}{}
	return s, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, s)
	}
}

// heard notes that a part of an answer has come.
func (f *faults) heard(s *silence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.since, s.answered = f.now(), true
}

// waiting says since when the model owes an answer, or is empty if it owes none for long.
// f.mu is held.
func (f *faults) waiting() string {
	var oldest *silence
	for s := range f.open {
		if oldest == nil || s.since.Before(oldest.since) {
			oldest = s
		}
	}
	if oldest == nil {
		return ""
	}
	d := f.now().Sub(oldest.since)
	switch {
	case d < silent:
		return ""
	case oldest.answered:
		return fmt.Sprintf("the model %q at %s began an answer and has sent nothing for %s", f.model, f.host, d.Round(time.Second))
	}
	return fmt.Sprintf("the model %q at %s has not answered for %s", f.model, f.host, d.Round(time.Second))
}

// add notes a fault. It comes from the model's server, so it keeps no more than a line.
func (f *faults) add(predicate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.last = line(f.secret.Text(predicate)) // a part of a value is not found any more
}

// clear forgets them: the model has answered.
func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.last = 0, ""
}

func (f *faults) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.waiting()
	failed := ""
	switch f.n {
	case 0:
		return waiting
	case 1:
		failed = fmt.Sprintf("the model %q %s", f.model, f.last)
	default:
		failed = fmt.Sprintf("%d requests in a row failed; with the last, the model %q %s", f.n, f.model, f.last)
	}
	if waiting != "" {
		return waiting + "; before that, " + failed
	}
	return failed
}

// line returns the beginning of s as one line without control characters.
func line(s string) string {
	s = strings.ToValidUTF8(cuttext.Text(s, maxFaultText), "")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }), " ")
}
