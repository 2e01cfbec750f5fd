package server

import (
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
				t.Fatal("it ended: " + why)
			}
		}
		wait(idle - 1)
		still("its time was not over", false)
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
		// Looking at how it is does not keep it.
		if !g.enter() {
			t.Fatal("a look was refused")
		}
		if o := g.oneShot(false); o == nil || o.EndsAt == nil || !o.EndsAt.Equal(time.Now().Add(1)) {
			t.Errorf("it says that it ends at %+v", o)
		}
		g.exit(true)
		wait(1)
		if g.leaving.Err() != nil {
			t.Error("readers were sent away early")
		}
		if !g.closeIfIdle(false, false) {
			t.Error("it does not end")
		}
		if g.enter() || g.stay() || g.leaving.Err() == nil {
			t.Error("something came in after the end")
		}
	})
}

// proves R-D1
func TestIdleShutdownWaitsForTheFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now, time.Millisecond)
		time.Sleep(firstTime - 1) // the bubble's clock
		if g.closeIfIdle(false, false) || !g.enter() {
			t.Fatal("it ended before anybody came")
		}
		g.exit(false)
		time.Sleep(time.Millisecond)
		if !g.closeIfIdle(false, false) {
			t.Error("it does not end when nobody needs it any more")
		}
		g = newGate(time.Now, time.Millisecond)
		time.Sleep(firstTime)
		if !g.closeIfIdle(false, false) {
			t.Error("it waits for ever for somebody who never comes")
		}
	})
}

func TestStayTurnsOffIdleShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now, time.Second)
		if !g.stay() || g.oneShot(false) != nil {
			t.Error("it does not stay")
		}
		time.Sleep(time.Hour) // the bubble's clock
		if g.closeIfIdle(false, false) {
			t.Error("it ended")
		}
		g.close()
		if g.enter() {
			t.Error("a request came in after the end")
		}
	})
}

// A one-shot service whose store refuses everything would stay as long as
// commands ask it, and none of them could be served.
func TestABrokenIdleServiceShutsDownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now, time.Hour)
		if !g.enter() || g.closeIfIdle(false, true) {
			t.Error("it ended on a request")
		}
		g.exit(false)
		if g.closeIfIdle(false, false) {
			t.Error("positive control: one that can serve ended before its time")
		}
		if !g.closeIfIdle(true, true) {
			t.Error("it stays")
		}
		lasting := newGate(time.Now, time.Hour)
		if !lasting.stay() || lasting.closeIfIdle(false, true) {
			t.Error("one that was told to stay ended")
		}
	})
}
