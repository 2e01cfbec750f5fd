package dispatch

import (
	"context"
	"errors"
	"testing"
)

// A source whose server is slow delays requests for itself only.
func TestFetchesWaitForTheirOwnSource(t *testing.T) {
	f := newFetches()
	leave, err := f.enter(t.Context(), "slow")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for range 2 * maxFetches { // no place is lost by those that give up
		if _, err := f.enter(ctx, "slow"); !errors.Is(err, gone) {
			t.Fatalf("a second fetch of one source: %v", err)
		}
	}
	for range 2 * maxFetches {
		other, err := f.enter(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		other()
	}
	leave()
	if leave, err = f.enter(t.Context(), "slow"); err != nil {
		t.Fatal(err)
	}
	leave()
}
