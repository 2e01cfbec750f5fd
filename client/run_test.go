package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// watched answers as a run with n events, two at a time. further answers requests
// for later events.
func watched(n int, further http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.Atoi(r.URL.Query().Get("after"))
		page := api.RunEvents{Next: strconv.Itoa(after)}
		for seq := after + 1; seq <= min(after+2, n); seq++ {
			page.Events, page.Next = append(page.Events, api.RunEvent{Seq: uint64(seq)}), strconv.Itoa(seq)
		}
		if len(page.Events) == 0 && r.URL.Query().Get("wait") != "" {
			further(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(page)
	}
}

func settled(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(api.RunEvents{Next: r.URL.Query().Get("after"), Done: true})
}

func take(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"runId":"r-one"}`) }

// A watched run loses and repeats no event, whether the service refuses or breaks
// off.
//
// proves R-O1
func TestWatchRunLosesNothingWhereverTheServiceEnds(t *testing.T) {
	const all = 7
	want := []uint64{1, 2, 3, 4, 5, 6, 7}
	for cut := range all + 1 {
		_, conn := newStage(t, watched(cut, once(leave, refuse)), watched(all, settled))
		var got []uint64
		err := conn.Runtime().WatchRun(t.Context(), "r-one", "", func(e api.RunEvent) error {
			got = append(got, e.Seq)
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the service ends after %d events: %v, %v", cut, got, err)
		}
	}
	// The cursor selects: only the events after it are passed.
	_, conn := newStage(t, watched(all, settled))
	var got []uint64
	if err := conn.Runtime().WatchRun(t.Context(), "r-one", "5", func(e api.RunEvent) error {
		got = append(got, e.Seq)
		return nil
	}); err != nil || !slices.Equal(got, want[5:]) {
		t.Errorf("behind the fifth: %v, %v", got, err)
	}
}

func TestWatchRunReturnsTheConsumersError(t *testing.T) {
	_, conn := newStage(t, watched(1, settled))
	full := errors.New("the disk is full")
	if err := conn.Runtime().WatchRun(t.Context(), "r-one", "", func(api.RunEvent) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}

// proves R-O8
func TestSubmitIsRetriedOnlyWithARunID(t *testing.T) {
	for name, c := range map[string]struct {
		id api.RunID
		ok bool
	}{"with one": {"r-one", true}, "without": {"", false}} {
		_, conn := newStage(t, once(leave, take))
		run, err := conn.Runtime().Submit(t.Context(), api.RunRequest{Plan: json.RawMessage(`{}`), RunID: c.id})
		if (err == nil) != c.ok || c.ok && run.RunID != "r-one" {
			t.Errorf("%s: %+v, %v", name, run, err)
		}
	}
}

// HTML escaping would make a plan up to six times as long.
func TestSubmitSendsThePlanUnescaped(t *testing.T) {
	plan := json.RawMessage(`{"id":"` + strings.Repeat("<", 1000) + `"}`)
	var size int64
	_, conn := newStage(t, func(w http.ResponseWriter, r *http.Request) {
		size = r.ContentLength
		take(w, r)
	})
	if _, err := conn.Runtime().Submit(t.Context(), api.RunRequest{Plan: plan}); err != nil || size > int64(len(plan))+100 {
		t.Errorf("%d bytes for a plan of %d, %v", size, len(plan), err)
	}
}
