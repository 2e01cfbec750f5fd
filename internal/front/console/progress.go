package console

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress shows on a terminal that something is in progress: one line at the
// bottom, redrawn, that makes room for anything written through it. Elsewhere it
// only passes writes on.
type Progress struct {
	to   io.Writer
	what string
	now  func() time.Time
	from time.Time
	done chan struct{}
	wait sync.WaitGroup

	mu    sync.Mutex
	shown bool   // the line is on the screen; guarded by mu
	mid   bool   // the last write did not end its line; guarded by mu
	note  string // that waits for the end of that line; guarded by mu
}

// RedrawInterval is how often a terminal is redrawn.
const RedrawInterval = 250 * time.Millisecond

const erase = "\r\x1b[K"

// NewProgress starts to show what on standard error. The caller closes it.
func (o *Output) NewProgress(what string) *Progress {
	p := &Progress{to: o.Stderr, what: what, now: o.Now, from: o.Now(), done: make(chan struct{})}
	if o.Terminal {
		p.wait.Go(p.draw)
	}
	return p
}

func (p *Progress) draw() {
	t := time.NewTicker(RedrawInterval)
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

func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if len(b) > 0 {
		p.mid = b[len(b)-1] != '\n'
	}
	n, err := p.to.Write(b)
	if err == nil {
		err = p.flush()
	}
	return n, err
}

// Note writes a line of its own, as soon as the last line that was written has ended. A
// later one replaces one that waits.
func (p *Progress) Note(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = line + "\n"
	return p.flush()
}

// flush writes the note that waits, if it can. p.mu is held.
func (p *Progress) flush() error {
	if p.mid || p.note == "" {
		return nil
	}
	p.clear()
	_, err := io.WriteString(p.to, p.note)
	p.note = ""
	return err
}

func (p *Progress) clear() {
	if p.shown {
		fmt.Fprint(p.to, erase)
		p.shown = false
	}
}

// Close removes the line, and ends the last line that was written.
func (p *Progress) Close() {
	close(p.done)
	p.wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if p.mid {
		fmt.Fprintln(p.to)
	}
	p.mid = false
	_ = p.flush() // as the other writes of an end
}
