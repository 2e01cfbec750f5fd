package notify

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// sender delivers the messages of one subscription. A new message is tried at once;
// those that failed take turns, so that one that the receiver refuses does not hold
// up the others.
type sender struct {
	Subscription
	cfg     *Config
	retryAt time.Time // when a message that failed is tried again

	mu        sync.Mutex
	next      uint64    // the first entry that was not looked at; guarded by mu
	pending   []due     // at most maxPending; guarded by mu
	delivered int64     // guarded by mu
	dropped   int64     // guarded by mu
	at        time.Time // of the last delivery; guarded by mu
	err       error     // of the last try; guarded by mu
	since     time.Time // of the first failure in a row; guarded by mu
}

// due is an entry whose message is due.
type due struct {
	seq   uint64
	tries int // that failed since the service started
}

const (
	// maxPending bounds the messages in memory; the rest stays in the log.
	maxPending = 100
	// page is how many entries are read at once.
	page = 200
	// idle is how long the sender rests at least between two looks at the log.
	idle = 200 * time.Millisecond
)

// run sends until ctx is done.
func (s *sender) run(ctx context.Context) {
	background.Loop{Wake: s.cfg.Store.Committed, Step: s.step}.Run(ctx)
	// The next start need not read again what gave no message. A place that is not
	// stored only costs that.
	_ = s.save(context.WithoutCancel(ctx))
}

// step tries one message. Without one it rests for idle, and until the log changes or a
// message is tried again.
func (s *sender) step(ctx context.Context) time.Duration {
	err := s.fill(ctx)
	if err == nil {
		if seq, ok := s.pick(s.cfg.Now()); ok {
			if err := s.try(ctx, seq); err != nil && ctx.Err() == nil {
				s.failed(ctx, seq, err)
			}
			return 0
		}
	} else if ctx.Err() == nil {
		s.failed(ctx, 0, err)
	}
	if background.Pause(ctx, idle) == nil && s.waiting() > 0 {
		return s.retryAt.Sub(s.cfg.Now())
	}
	return background.Never
}

// pick returns the message to try now: a new one, or when it is time the one with
// the fewest failures.
func (s *sender) pick(now time.Time) (seq uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 { // nothing is left that could fail
		s.err, s.since = nil, time.Time{}
		return 0, false
	}
	least := slices.MinFunc(s.pending, func(a, b due) int { return cmp.Compare(a.tries, b.tries) })
	return least.seq, least.tries == 0 || !now.Before(s.retryAt)
}

func (s *sender) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// fill reads the log up to its end, or until enough is pending.
func (s *sender) fill(ctx context.Context) error {
	for s.waiting() < maxPending {
		s.mu.Lock()
		from, room := s.next, maxPending-len(s.pending)
		s.mu.Unlock()
		head, err := s.cfg.Ledger.Len(ctx)
		if err != nil || from >= head {
			return err
		}
		list, err := s.cfg.Ledger.List(ctx, audit.Query{From: from, Before: head, Limit: page, Kinds: kinds()})
		if err != nil {
			return err
		}
		next := head
		if len(list) == page {
			next = list[page-1].Seq + 1
		}
		var found []due
		for i := range list {
			if len(found) == room {
				next = list[i].Seq
				break
			}
			if kind := kindOf(&list[i].Entry); kind != "" && slices.Contains(s.On, kind) {
				found = append(found, due{seq: list[i].Seq})
			}
		}
		s.mu.Lock()
		s.next, s.pending = next, append(s.pending, found...)
		s.mu.Unlock()
		// Without a message nothing is stored: the next start reads these entries
		// again.
		if len(found) > 0 {
			if err := s.save(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// try sends a pending message, or drops it when it has expired or nobody waits any
// more.
func (s *sender) try(ctx context.Context, seq uint64) error {
	entry, err := s.cfg.Ledger.Get(ctx, seq)
	if err != nil {
		return err
	}
	if s.cfg.Now().Sub(entry.Entry.At) > s.cfg.Expire {
		s.cfg.Logger.WarnContext(ctx, "a notification expired", slog.String("notify", s.Name), slog.Uint64("entry", seq))
		return s.settle(ctx, seq, func() { s.dropped++ })
	}
	m, err := s.cfg.message(ctx, &entry)
	if err != nil {
		return err
	}
	if m == nil {
		return s.settle(ctx, seq, func() {})
	}
	body, err := canon.Marshal(m) // ASCII: shown as it is, it steers no terminal
	if err == nil {
		err = s.Send(ctx, m, body)
	}
	if err != nil {
		return err
	}
	s.retryAt = time.Time{}
	return s.settle(ctx, seq, func() {
		s.delivered++
		s.at, s.err, s.since = s.cfg.Now(), nil, time.Time{}
	})
}

// settle removes a message that is not due any more. It finishes also when the
// sender is stopped meanwhile: a message that was sent should not be sent again.
func (s *sender) settle(ctx context.Context, seq uint64, count func()) error {
	s.mu.Lock()
	s.pending = slices.DeleteFunc(s.pending, func(d due) bool { return d.seq == seq })
	count()
	s.mu.Unlock()
	return s.save(context.WithoutCancel(ctx))
}

// failed records a failure, and logs the first in a row. seq is the message; 0: the
// log could not be read.
func (s *sender) failed(ctx context.Context, seq uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.since = s.cfg.Now()
		s.cfg.Logger.WarnContext(ctx, "a notification failed and is retried", slog.String("notify", s.Name), slog.Any("err", err))
	}
	s.err = err
	tries := 1
	for i := range s.pending {
		if d := &s.pending[i]; d.seq == seq {
			d.tries++
			tries = d.tries
		}
	}
	s.retryAt = s.cfg.Now().Add(background.Jitter(background.Backoff{First: s.cfg.Retry, Most: maxBackoff}.After(tries)))
}

func (s *sender) status() api.NotifyStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := api.NotifyStatus{Name: s.Name, Kind: s.Kind(), Place: s.Place(), On: s.On, Pending: len(s.pending), Delivered: s.delivered, Dropped: s.dropped}
	if !s.at.IsZero() {
		at := s.at.UTC()
		st.At = &at
	}
	if s.err != nil {
		since := s.since.UTC()
		st.Error, st.FailingSince = s.err.Error(), &since
	}
	return st
}

// kinds are the kinds of entries that can be due.
func kinds() []record.Kind {
	return []record.Kind{record.KindDispatchNeedsInput, record.KindRunSettled, record.KindApprovalRequest}
}

// kindOf returns why an entry may make something wait for a person; empty: it does
// not. Of a cancelled run its record says whether a limit did it.
func kindOf(e *record.Entry) api.WaitingKind {
	if e.Kind == record.KindDispatchNeedsInput {
		return api.WaitingQuestion
	}
	if e.Kind == record.KindApprovalRequest {
		return api.WaitingApproval
	}
	if end, ok := e.Detail.(record.RunEnd); ok && (end.State == string(api.RunFailed) || end.State == string(api.RunCancelled)) {
		return api.WaitingFailed
	}
	return ""
}
