package server

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// proves R-D1
func TestIdleShutdownComesAfterTheWholeIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 30 * time.Second
		g := newGate(time.Now, idle)
		wait := func(d time.Duration) { time.Sleep(d) } // the bubble's clock
		still := func(why string, working bool) {
			t.Helper()
			if g.closeIfIdle(working, false) {
				t.Fatal("it shut down: " + why)
			}
		}
		wait(idle - 1)
		still("the idle time has not passed", false)
		if !g.enter() {
			t.Fatal("a request was refused")
		}
		wait(10 * idle)
		still("a request is there", false)
		g.exit(false)
		wait(idle - 1)
		still("a request was there just now", false)
		still("a worker is there", true)
		wait(idle - 1)
		still("a worker was there just now", false)
		// A status request is no activity.
		if !g.enter() {
			t.Fatal("a status request was refused")
		}
		if o := g.oneShot(false); o == nil || o.EndsAt == nil || !o.EndsAt.Equal(time.Now().Add(1)) {
			t.Errorf("it announces its shutdown at %+v", o)
		}
		g.exit(true)
		wait(1)
		if g.leaving.Err() != nil {
			t.Error("readers were cancelled early")
		}
		if !g.closeIfIdle(false, false) {
			t.Error("it does not shut down")
		}
		if g.enter() || g.stay() || g.leaving.Err() == nil {
			t.Error("something was admitted after the gate closed")
		}
	})
}

// proves R-D1
func TestIdleShutdownWaitsForTheFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now, time.Millisecond)
		time.Sleep(firstTime - 1) // the bubble's clock
		if g.closeIfIdle(false, false) || !g.enter() {
			t.Fatal("it shut down before the first request")
		}
		g.exit(false)
		time.Sleep(time.Millisecond)
		if !g.closeIfIdle(false, false) {
			t.Error("it does not shut down when idle")
		}
		g = newGate(time.Now, time.Millisecond)
		time.Sleep(firstTime)
		if !g.closeIfIdle(false, false) {
			t.Error("it waits forever for a first request")
		}
	})
}

func TestStayTurnsOffIdleShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now, time.Second)
		if !g.stay() || g.oneShot(false) != nil {
			t.Error("Stay has no effect")
		}
		time.Sleep(time.Hour) // the bubble's clock
		if g.closeIfIdle(false, false) {
			t.Error("it shut down")
		}
		g.close(nil)
		if g.enter() {
			t.Error("a request was admitted after the gate closed")
		}
	})
}

// A one-shot service with a poisoned store would otherwise stay as long as commands
// retry it.
func TestABrokenIdleServiceShutsDownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now, time.Hour)
		if !g.enter() || g.closeIfIdle(false, true) {
			t.Error("it shut down during a request")
		}
		g.exit(false)
		if g.closeIfIdle(false, false) {
			t.Error("positive control: a working service shut down early")
		}
		if !g.closeIfIdle(true, true) {
			t.Error("a broken service stays")
		}
		lasting := newGate(time.Now, time.Hour)
		if !lasting.stay() || lasting.closeIfIdle(false, true) {
			t.Error("a service after Stay shut down")
		}
	})
}

// What a closing gate refuses or breaks off had no effect, and says that the next service can
// answer it. Control: a failure of the disk, and an answer, say no such thing.
func TestAClosedGateSaysThatTheNextServiceCanAnswer(t *testing.T) {
	s := &Server{gate: newGate(time.Now, 0)}
	reads := make(chan struct{})
	answer := s.admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			close(reads)
			<-r.Context().Done()
			s.fail(w, r, caller{}, r.Context().Err())
		}
		if r.URL.Path == "/disk" {
			s.fail(w, r, caller{}, syscall.ENOSPC)
		}
	}))
	ask := func(method, path string, status int, next bool) {
		t.Helper()
		w := httptest.NewRecorder()
		answer.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		if w.Code != status || (w.Header().Get("Retry-After") != "") != next {
			t.Errorf("%s %s: %d, %v", method, path, w.Code, w.Header())
		}
	}
	ask(http.MethodPost, "/", http.StatusOK, false)
	ask(http.MethodPost, "/disk", http.StatusServiceUnavailable, false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(http.MethodGet, "/", http.StatusServiceUnavailable, true)
	}()
	<-reads
	s.gate.close(nil)
	<-done
	ask(http.MethodPost, "/", http.StatusServiceUnavailable, true)
}
