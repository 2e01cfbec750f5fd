package daemoncli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

const (
	// trialTime bounds what a status waits for the launcher; doctor waits longer for a status.
	trialTime = 7 * time.Second
	// trialAge is how long a trial counts, and trialRetry after one that failed.
	trialAge, trialRetry = 5 * time.Minute, 10 * time.Second
)

// trial is what the launcher of this machine can do for an attempt, as it was tried last. It is safe for concurrent use: one trial
// runs at a time.
type trial struct {
	ask func(context.Context) (report []byte, lacks []string, err error)

	mu            sync.Mutex
	until         time.Time // guarded by mu, like those below
	active, lacks []string
}

// lines returns the layers that an attempt has, and those that it lacks.
func (t *trial) lines(ctx context.Context, now time.Time) (layers, without []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := t.until.Sub(now); left > 0 && left <= trialAge {
		return t.active, t.lacks
	}
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	var report jail.Report
	doc, without, err := t.ask(ctx)
	if err == nil {
		err = canon.Decode(doc, &report)
	}
	if err != nil {
		t.active, t.lacks, t.until = nil, []string{fmt.Sprintf("unknown: the launcher could not try a jail: %v", err)}, now.Add(trialRetry)
		return t.active, t.lacks
	}
	t.active, t.lacks, t.until = active(report), nil, now.Add(trialAge)
	for _, l := range report.Layers {
		if !l.Active {
			t.lacks = append(t.lacks, fmt.Sprintf("%s: %s; %s", l.Name, l.Detail, l.Fix))
		}
	}
	for _, l := range without {
		t.lacks = append(t.lacks, "limit of an attempt's whole group: "+l)
	}
	return t.active, t.lacks
}
