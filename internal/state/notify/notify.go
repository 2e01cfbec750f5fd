// Package notify tells receivers outside the service when something waits for a
// person: a command that it runs, or a webhook that it calls.
//
// What is due follows from the log alone: a receiver has a place in it, and a
// notification is sent only once its entry is durable (R-A2). Each receiver has its
// own goroutine, which only reads; nothing in the service waits for it. Deliveries
// are at least once, over restarts too: a message has an id by which a receiver
// recognizes a repetition.
//
// A message has no secret. What an agent wrote is bounded, and marked as untrusted.
// Webhooks are dialled by internal/base/egress only (R-T7).
package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Receiver is told of messages.
type Receiver interface {
	// Send delivers one message, whose JSON is body. It returns within its own
	// bounds of time. Its error is shown to operators and has no secret.
	Send(ctx context.Context, m *Message, body []byte) error
	// Kind is command or webhook.
	Kind() string
	// Place is what operators see of where messages go, without secrets.
	Place() string
}

// Subscription is a receiver and what it is told of.
type Subscription struct {
	Receiver
	Name string
	On   []api.WaitingKind
}

// Config is what Open needs.
type Config struct {
	Store         *store.Store // opened with Migration among its migrations
	Ledger        *audit.Ledger
	Log           string // the origin of the log, which makes ids unique
	Subscriptions []Subscription
	// Dispatch and Run return what a message says beyond its entry.
	Dispatch func(context.Context, api.DispatchID) (api.Dispatch, error)
	Run      func(context.Context, api.RunID) (api.Run, error)
	Approval func(context.Context, api.ApprovalID) (api.Approval, error) // nil: none is told of
	Now      func() time.Time
	Logger   *slog.Logger // nil discards
	// Expire is how long after its entry a message is still sent. 0: 24 hours.
	Expire time.Duration
	// Retry is the wait after the first failure in a row. 0: 1 second.
	Retry time.Duration
}

func (c *Config) validate() error {
	if c.Store == nil || c.Ledger == nil || c.Dispatch == nil || c.Run == nil || c.Now == nil || c.Log == "" {
		return errors.New("notify: Config needs Store, Ledger, Log, Dispatch, Run and Now")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Expire, c.Retry = cmp.Or(c.Expire, 24*time.Hour), cmp.Or(c.Retry, time.Second)
	return nil
}

// Keeper sends the messages of all subscriptions.
type Keeper struct {
	senders []*sender
	work    *background.Keeper
}

// Open starts to send. A subscription that is new begins at the end of the log.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Keeper{}
	for _, sub := range cfg.Subscriptions {
		s, err := load(ctx, &cfg, sub)
		if err != nil {
			return nil, fmt.Errorf("notify %q: %w", sub.Name, err)
		}
		k.senders = append(k.senders, s)
	}
	k.work = background.Start(ctx)
	for _, s := range k.senders {
		k.work.Go(s.run)
	}
	return k, nil
}

// Close stops sending. What is not delivered is sent after the next Open.
func (k *Keeper) Close() { k.work.Close() }

// Status returns the state of each subscription.
func (k *Keeper) Status() (list []api.NotifyStatus) {
	for _, s := range k.senders {
		list = append(list, s.status())
	}
	return list
}

// maxBackoff is the longest wait between two tries of a receiver, without jitter.
const maxBackoff = 5 * time.Minute
