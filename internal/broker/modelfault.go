package broker

import (
	"fmt"
	"strings"
	"sync"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/redact"
)

// maxFaultText bounds what is kept of an error of the model, in bytes.
const maxFaultText = 300

// faults remembers what was wrong with the requests since the last complete answer.
type faults struct {
	model  string
	secret *redact.Set // the credential

	mu   sync.Mutex
	n    int
	last string // what the model did, as a predicate
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
	switch f.n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("the model %q %s", f.model, f.last)
	}
	return fmt.Sprintf("%d requests in a row failed; with the last, the model %q %s", f.n, f.model, f.last)
}

// line returns the beginning of s as one line without control characters.
func line(s string) string {
	s = strings.ToValidUTF8(api.Cut(s, maxFaultText), "")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }), " ")
}
