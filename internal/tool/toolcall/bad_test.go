package toolcall

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// held is a world whose server, which all dispatches share, has a call of dispatch d-01
// without an answer.
type held struct {
	*world
	answer chan error // of the call; nil: it was answered
	pid    string     // of the server
}

func newHeld(t *testing.T) *held {
	t.Helper()
	w := &held{world: newWorld(t, nil), answer: make(chan error, 1)}
	w.hostile("bad")
	w.server.Session = api.SessionShared
	w.hold()
	w.release()
	if err := <-w.answer; err != nil {
		t.Fatal(err)
	}
	w.hold()
	return w
}

func (w *held) hold() {
	w.t.Helper()
	go func() {
		a, err := w.callAs("d-01", "do", "hold")
		if err == nil && !strings.Contains(string(a.Result), "held to the end") {
			err = errors.New(string(a.Result))
		}
		w.answer <- err
	}()
	for {
		a, err := w.callAs("d-02", "do", "held")
		if err != nil {
			w.t.Fatal(err)
		}
		if textOf(w.t, a) == "true" {
			return
		}
	}
}

// release lets the server answer the held call, and reports whether it is the same
// process as before.
func (w *held) release() bool {
	w.t.Helper()
	a, err := w.callAs("d-02", "do", "release")
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.pid
	w.pid = textOf(w.t, a)
	return w.pid == before
}

// A bad answer fails its call with the reason: the call of another dispatch in the same
// session is answered afterwards, by the same process. The controls are at the end of the
// list: answers that end the session fail the other call too.
//
// proves R-G5, R-G7
func TestABadAnswerFailsItsCallOnly(t *testing.T) {
	for v, c := range map[string]struct {
		part string // of the fault; empty: it is answered
		ends bool
	}{
		"long":              {"a message of more than 1114112 bytes", false},
		"long, id last":     {"a message of more than 1114112 bytes", false},
		"integer":           {"an integer above 2^53", false},
		"UTF-8":             {"not valid UTF-8", false},
		"deep":              {"nested deeper than 64", false},
		"duplicate":         {"a duplicate member", false},
		"line break":        {"unexpected end of JSON", false},
		"control character": {"control character in a string", false},
		"version":           {`whose jsonrpc is not "2.0"`, false},
		"list":              {"a result that is not an object", false},
		"both":              {"not exactly one of request, result and error", false},
		"log lines":         {"", false},

		"another id": {"failed during the call", true},
		"endless":    {"failed during the call", true},
	} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			w := newHeld(t)
			a, err := w.callAs("d-02", "do", v)
			switch {
			case c.part != "":
				fault(t, err, c.part, false)
			case err != nil || textOf(t, a) != "answered":
				t.Errorf("%s, %v", a.Result, err)
			}
			if c.ends {
				fault(t, <-w.answer, "failed during the call", false)
				return
			}
			if !w.release() {
				t.Error("the server was started again")
			}
			if err := <-w.answer; err != nil {
				t.Errorf("the call of the other dispatch: %v", err)
			}
		})
	}
}

// An answer that names no request fails the call that is out, if it is the only one. With
// another one, its call ends by its own time limit and the other call is answered.
//
// proves R-G5, R-G7
func TestAnAnswerToNoRequestFailsTheOnlyCall(t *testing.T) {
	for v, part := range map[string]string{"no id": "without the id of a request", "null id": "parse error", "half": "unexpected end of JSON"} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			w := newHeld(t)
			if v != "half" { // which answers in the end
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				_, err := w.pool.Call(ctx, Call{Owner: w.owner("d-02"), Tool: "do", Arguments: []byte(`{"v":"` + v + `"}`)})
				fault(t, err, "", false)
			}
			w.release()
			if err := <-w.answer; err != nil {
				t.Errorf("the call of the other dispatch: %v", err)
			}
			began := time.Now()
			a, err := w.callAs("d-02", "do", v)
			if err == nil && a.IsError {
				err = unclear("%s", a.Result)
			}
			fault(t, err, part, false)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s, as long as the time limit", took)
			}
			w.hold()
			if !w.release() {
				t.Error("the server was started again")
			}
		})
	}
}
