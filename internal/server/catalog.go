package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// listing returns a page of what the caller may use of a kind.
func (s *Server) listing(kind api.Kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		var after api.Name
		if text := r.URL.Query().Get("cursor"); text != "" {
			b, err := base64.RawURLEncoding.Strict().DecodeString(text)
			if err == nil {
				after, err = api.ParseName(string(b))
			}
			if err != nil {
				return malformed(api.CodeInvalid, "cursor: not one that was returned")
			}
		}
		page, err := s.cfg.Dispatch.Listing(r.Context(), who.Caller, kind, after)
		if err != nil {
			return err
		}
		if page.Next != "" {
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(page.Next))
		}
		return answer(w, http.StatusOK, page)
	}
}

// Bounds of what a caller can have logged of what never became a request.
const (
	toldBurst     = 20
	toldRate      = 1 // a second, after that
	toldOperation = 200
	toldMessage   = 2000
	toldCallers   = 1000
)

// refused has a call logged that was refused before it became a request. It is
// the caller's word and is logged as the caller's.
func (s *Server) refused(w http.ResponseWriter, r *http.Request, who caller) error {
	var what api.Refused
	if err := decode(r, &what); err != nil {
		return err
	}
	if what.Operation == "" || len(what.Operation) > toldOperation || len(what.Message) > toldMessage {
		return malformed(api.CodeInvalid, "refused: want an operation of at most %d bytes and a message of at most %d", toldOperation, toldMessage)
	}
	if !s.told.take(who.Principal) {
		return api.Errorf(api.CodeThrottled, "too many refused calls to log each").WithHint("wait a second")
	}
	err := dispatch.LogInvalid(r.Context(), s.cfg.Ledger, who.Principal, what.Operation, api.Errorf(api.CodeInvalid, "%s", what.Message))
	e, ok := err.(*api.Error) //nolint:errorlint // as LogInvalid makes it
	if !ok || e.AuditEntry == nil {
		return err
	}
	return answer(w, http.StatusOK, api.RefusedReceipt{AuditEntry: *e.AuditEntry})
}

// told bounds, for each principal, how much of the log is its refused calls.
type told struct {
	now func() time.Time

	mu   sync.Mutex
	left map[api.Principal]allowance // guarded by mu
}

// allowance is how many entries a principal may still have written.
type allowance struct {
	n       float64
	at      time.Time
	dropped int // calls without an entry since the last sum
}

func (t *told) take(p api.Principal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if len(t.left) >= toldCallers { // those that have their full allowance again
		for who, a := range t.left {
			if a.dropped == 0 && now.Sub(a.at).Seconds()*toldRate >= toldBurst {
				delete(t.left, who)
			}
		}
	}
	a, ok := t.left[p]
	if !ok {
		a = allowance{n: toldBurst, at: now}
	}
	a.n, a.at = min(toldBurst, a.n+max(0, now.Sub(a.at).Seconds())*toldRate), now
	if a.n < 1 {
		a.dropped++
		t.left[p] = a
		return false
	}
	a.n--
	t.left[p] = a
	return true
}

// sums returns how many calls of each principal had no entry since it was
// called before.
func (t *told) sums() map[api.Principal]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	sums := map[api.Principal]int{}
	for p, a := range t.left {
		if a.dropped > 0 {
			sums[p] = a.dropped
			a.dropped = 0
			t.left[p] = a
		}
	}
	return sums
}

// again counts calls of which the sum could not be written.
func (t *told) again(p api.Principal, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.left[p]
	a.dropped += n
	t.left[p] = a
}

// sumUpTold logs how many refused calls had no entry of their own.
func (s *Server) sumUpTold(ctx context.Context) (err error) {
	for p, n := range s.told.sums() {
		_, failed := s.cfg.Ledger.Record(ctx, record.Entry{
			Kind: record.KindRequestInvalid, Principal: p,
			Detail: record.InvalidRequest{Code: string(api.CodeThrottled), Message: fmt.Sprintf("and %d more, too many to log each", n), Operation: "refused"},
		}, nil)
		if failed != nil {
			s.told.again(p, n)
			err = errors.Join(err, failed)
		}
	}
	return err
}
