package worker

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
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/capture"
	"github.com/bailiwick-dev/bailiwick/internal/jail"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

const (
	// questionFile is where an agent writes its question, in the workspace.
	questionFile = ownDir + "/question.json"
	// maxResume bounds the answer document: escaping makes text longer.
	maxResume = 6*(api.MaxQuestion+api.MaxAnswer) + 4096
)

// errAsked is the end of an attempt with a question.
var errAsked = errors.New("the agent asks a question")

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

// watchQuestion calls asked when a running agent has asked a question. The caller
// calls stop.
func watchQuestion(j *jail.Jail, asked func()) (stop func()) {
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		t := time.NewTicker(watchTime)
		defer t.Stop()
		var last []byte
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			now, _, err := readQuestion(j)
			if err == nil && now != nil && bytes.Equal(now, last) {
				asked()
				return
			}
			last = now
		}
	})
	return func() { close(done); watch.Wait() }
}

// takeQuestion returns errAsked for an agent that left a question. An invalid
// question is a failure; the work so far is kept.
func (a *attempt) takeQuestion(j *jail.Jail, agentErr error) error {
	if agentErr != nil && !errors.Is(agentErr, errAsked) {
		return agentErr
	}
	doc, q, err := readQuestion(j)
	switch {
	case err != nil:
		return fail(api.ReasonOutput, "%w", err)
	case doc == nil && agentErr != nil:
		return fail(api.ReasonOutput, "%s: the agent removed its question while it was being stopped", questionFile)
	case doc == nil:
		return nil
	}
	kept, err := a.keep(bytes.NewReader(doc))
	if err != nil {
		return fail(api.ReasonOutput, "the question: %w", err)
	}
	a.summary.Question, a.question = &kept, brief(q.Question)
	return errAsked
}

// brief shortens a question to one line.
func brief(question string) string {
	const most = 200
	line, _, more := strings.Cut(strings.TrimSpace(question), "\n")
	if runes := []rune(line); len(runes) > most {
		line, more = string(runes[:most]), true
	}
	if more {
		line += "..."
	}
	return line
}

// loadResume gives the agent the answer to the question of the attempt before.
func (a *attempt) loadResume() error {
	from := a.manifest.Resume
	if from == nil {
		return nil
	}
	b, err := blob.ReadBounded(filepath.Join(a.cfg.Dir, record.WorkResume), maxResume)
	if err != nil {
		return fail(api.ReasonIntegrity, "%w", err)
	}
	if got := api.DigestOf(b); got != from.Answer {
		return fail(api.ReasonIntegrity, "answer: digest %s, the manifest says %s", got.Short(), from.Answer.Short())
	}
	a.plan.launch.files[api.ResumeFile] = b
	return nil
}

// layEarlier lays the work of the attempt before under the agent that resumes it.
func (a *attempt) layEarlier(ctx context.Context, ws *workspace) error {
	if a.manifest.Resume == nil || a.manifest.Resume.Patch == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(a.cfg.Dir, record.WorkPatch))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got, want := api.Digest("sha256:"+hex.EncodeToString(sum.Sum(nil))), a.manifest.Resume.Patch; got != want {
		return fmt.Errorf("earlier patch: digest %s, the manifest says %s", got.Short(), want.Short())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return a.layPatch(ctx, ws, f)
}

// runAsking runs the agent, and stops it when it asks a question and keeps running.
func (a *attempt) runAsking(ctx context.Context, j *jail.Jail) error {
	asking, ask := context.WithCancelCause(ctx)
	defer ask(nil)
	stop := watchQuestion(j, func() { ask(errAsked) })
	exit, err := j.Run(asking, a.command(a.plan.launch.argv, a.plan.launch.stdin))
	stop()
	a.count(exit)
	a.summary.ExitCode = &exit.Code
	return a.judge(asking, api.ReasonAgent, "the agent", exit, err)
}
