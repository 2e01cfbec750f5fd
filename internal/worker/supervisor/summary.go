package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// summary is what the result says of an attempt. It is collected step by step, so that a
// failed attempt has what was done so far, and has the value of no secret.
type summary struct {
	api.ResultSummary

	dir     string // of the attempt
	now     func() time.Time
	control *control
	redact  *redact.Set
}

// step runs do and records when it began and how long it took.
func (s *summary) step(name string, do func() error) error {
	from := s.now()
	err := do()
	took := api.Step{Name: name, At: from.UTC(), Seconds: s.now().Sub(from).Seconds()}
	s.Steps = append(s.Steps, took)
	s.control.send(record.WorkerMessage{Event: "step", Step: &took})
	return err
}

// keep writes content below out/ under its digest, without the values of secrets. what
// names it for people.
func (s *summary) keep(r io.Reader, what string) (api.Artifact, error) {
	dir := filepath.Join(s.dir, record.WorkOut)
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return api.Artifact{}, err
	}
	sum := sha256.New()
	clean := s.redact.Writer(io.MultiWriter(f, sum))
	_, err = io.Copy(clean, r)
	err = errors.Join(err, clean.Close())
	n, seekErr := f.Seek(0, io.SeekCurrent)
	if err := errors.Join(err, seekErr, f.Sync(), f.Close()); err != nil {
		return api.Artifact{}, errors.Join(err, os.Remove(f.Name()))
	}
	name := hex.EncodeToString(sum.Sum(nil))
	failpoint.Hit(failpoint.WorkerKeep, s.dir)
	err = os.Rename(f.Name(), filepath.Join(dir, name))
	failpoint.Hit(failpoint.WorkerKept, s.dir)
	if clean.Redacted() {
		s.redacted(what)
	}
	return api.Artifact{Size: n, Digest: api.Digest("sha256:" + name), Redacted: clean.Redacted()}, err
}

// redacted notes that secrets were removed from something.
func (s *summary) redacted(what string) {
	if !slices.Contains(s.Redacted, what) {
		s.Redacted = append(s.Redacted, what)
	}
}

// clean removes the values of secrets from names and messages that the agent
// chose.
func (s *summary) clean() error {
	doc, err := json.Marshal(s.ResultSummary)
	if err != nil {
		return err
	}
	clean, found := s.redact.Bytes(doc)
	if !found {
		return nil
	}
	s.ResultSummary = api.ResultSummary{}
	if err := json.Unmarshal(clean, &s.ResultSummary); err != nil {
		return fmt.Errorf("the result after redaction: %w", err)
	}
	s.redacted("result")
	return nil
}

func (s *summary) leaveOut(path string, why error) {
	s.LeftOut = append(s.LeftOut, api.LeftOut{Path: path, Why: why.Error()})
}

func (s *summary) count(exit jail.Exit) {
	s.Usage.CPUSeconds += exit.CPU.Seconds()
	s.Usage.MaxMemory = max(s.Usage.MaxMemory, api.Bytes(exit.MaxMemory))
	for _, limit := range exit.Hit {
		if !slices.Contains(s.Usage.Reached, limit) {
			s.Usage.Reached = append(s.Usage.Reached, limit)
		}
	}
}
