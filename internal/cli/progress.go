package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows on a terminal that something is under way: one line at the
// bottom, redrawn, that gives way to whatever else is written. Elsewhere it
// only passes on what is written.
type progress struct {
	to   io.Writer
	what string
	now  func() time.Time
	from time.Time
	done chan struct{}
	wait sync.WaitGroup

	mu    sync.Mutex
	shown bool // the line is on the screen; guarded by mu
	mid   bool // what was written last did not end its line; guarded by mu
}

const (
	redraw = 250 * time.Millisecond
	erase  = "\r\x1b[K"
)

// newProgress begins to show what. The caller closes it.
func newProgress(to io.Writer, terminal bool, what string, now func() time.Time) *progress {
	p := &progress{to: to, what: what, now: now, from: now(), done: make(chan struct{})}
	if terminal {
		p.wait.Go(p.draw)
	}
	return p
}

func (p *progress) draw() {
	t := time.NewTicker(redraw)
	defer t.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-t.C:
		}
		p.mu.Lock()
		if !p.mid {
			fmt.Fprintf(p.to, "%s%s, %s", erase, p.what, p.now().Sub(p.from).Round(time.Second))
			p.shown = true
		}
		p.mu.Unlock()
	}
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if len(b) > 0 {
		p.mid = b[len(b)-1] != '\n'
	}
	return p.to.Write(b)
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.to, erase)
		p.shown = false
	}
}

// Close takes the line away and ends an unfinished line of what was written.
func (p *progress) Close() {
	close(p.done)
	p.wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if p.mid {
		fmt.Fprintln(p.to)
	}
}
