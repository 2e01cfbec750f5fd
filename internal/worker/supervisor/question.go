package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

const (
	// questionFile is where an agent writes its question, in the workspace.
	questionFile = ownDir + "/question.json"
	// maxResume bounds the answer document: escaping makes text longer.
	maxResume = 6*(api.MaxQuestion+api.MaxAnswer) + 4096
)

// errAsked is the end of an attempt with a question.
var errAsked = errors.New("the agent asks a question")

// asked is a question that the service sent: the agent asked it by its tool ask, and the
// log has that.
type asked struct {
	mu       sync.Mutex
	question *api.Question // the first one; guarded by mu
	now      chan struct{} // closed with it
}

func (q *asked) get() *api.Question {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.question
}

// askedByTool keeps the question that the agent asked by its tool, and tells the service
// so. The first one counts.
func (a *attempt) askedByTool(question api.Question) {
	a.asked.mu.Lock()
	if a.asked.question == nil {
		a.asked.question = &question
		close(a.asked.now)
	}
	a.asked.mu.Unlock()
	a.control.send(record.WorkerMessage{Event: "asked"})
}

// readQuestion returns the question in a workspace in canonical form; nil without
// one.
func readQuestion(j *jail.Jail) ([]byte, api.Question, error) {
	var q api.Question
	b, err := capture.ReadFile(j.Workspace(), questionFile, api.MaxQuestion)
	if b == nil || err != nil {
		return nil, q, err
	}
	doc, err := canon.Canonicalize(b)
	if err == nil {
		err = canon.Decode(doc, &q)
	}
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		return nil, q, fmt.Errorf("%s: %w", questionFile, err)
	}
	return doc, q, nil
}

// watchTime is how often a workspace is polled for a question. A question counts
// when it is valid and the same as at the poll before.
const watchTime = 500 * time.Millisecond

// toolTurn is how long a program without an adapter may take to end its turn after it
// asked by its tool: the answer of the tool says that the attempt ends.
const toolTurn = 2 * time.Second

// watch calls asked when a running agent has asked a question, by its tool or in
// a file, after patience. The caller calls stop.
func (q *asked) watch(j *jail.Jail, patience time.Duration, asked func()) (stop func()) {
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		t := time.NewTicker(watchTime)
		defer t.Stop()
		var last []byte
		var waited time.Duration
		byTool, late := q.now, (<-chan time.Time)(nil)
		for {
			select {
			case <-done:
				return
			case <-byTool:
				byTool = nil
				timer := time.NewTimer(max(patience, toolTurn))
				defer timer.Stop()
				late = timer.C
				continue
			case <-late:
				asked()
				return
			case <-t.C:
			}
			now, _, err := readQuestion(j)
			if err == nil && now != nil && bytes.Equal(now, last) {
				if waited += watchTime; waited > patience {
					asked()
					return
				}
			}
			last = now
		}
	})
	return func() { close(done); watch.Wait() }
}

// takeQuestion returns errAsked for an agent that left a question. One that it asked by
// its tool counts before one in a file. An invalid question is a failure; the work so far
// is kept.
func (a *attempt) takeQuestion(j *jail.Jail, agentErr error) error {
	if agentErr != nil && !errors.Is(agentErr, errAsked) {
		return agentErr
	}
	doc, q, err := readQuestion(j)
	if byTool := a.asked.get(); byTool != nil {
		if doc != nil || err != nil {
			a.summary.leaveOut(questionFile, errors.New("the agent asked by its tool ask, and that question counts"))
		}
		q = *byTool
		doc, err = canon.Marshal(q)
	}
	switch {
	case err != nil:
		return fail(api.ReasonOutput, "%w", err)
	case doc == nil && agentErr != nil:
		return fail(api.ReasonOutput, "%s: the agent removed its question while it was being stopped", questionFile)
	case doc == nil:
		return nil
	}
	kept, err := a.summary.keep(bytes.NewReader(doc), "question")
	if err != nil {
		return fail(api.ReasonOutput, "the question: %w", err)
	}
	a.summary.Question, a.question = &kept, brief(a.summary.redact.Text(q.Question))
	return errAsked
}

// brief shortens a question to one line.
func brief(question string) string {
	line, _, more := strings.Cut(strings.TrimSpace(question), "\n")
	if more {
		line += cuttext.Mark
	}
	return cuttext.Characters(line, 200)
}

// layEarlier lays the work of the attempt before under the agent that resumes it.
func (ws *workspace) layEarlier(ctx context.Context) error {
	if ws.manifest.Resume == nil || ws.manifest.Resume.Patch == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(ws.dir, record.WorkPatch))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got, want := api.Digest("sha256:"+hex.EncodeToString(sum.Sum(nil))), ws.manifest.Resume.Patch; got != want {
		return fmt.Errorf("earlier patch: digest %s, the manifest says %s", got.Short(), want.Short())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return ws.layPatch(ctx, f)
}
