package runverbs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

const (
	// refreshInterval is how often a run is read without an event of its own:
	// other runs change what a task waits for.
	refreshInterval = 5 * time.Second
	// refreshPause is how many times longer than the reading the pause after it
	// is, so that a large run is not read all the time.
	refreshPause = 10
)

// liveRun is a run that is drawn while it goes.
type liveRun struct {
	run   api.Run
	shape runTree
}

// refresh reads the run. An error keeps the last picture: WatchRun waits for a
// service that is away for a moment.
func (l *liveRun) refresh(ctx context.Context, r client.Runtime) {
	now, err := wholeRun(ctx, r, l.run.RunID)
	if err != nil {
		return
	}
	if len(now.Tasks) != len(l.run.Tasks) {
		l.shape = newRunTree(now.Tasks)
	}
	l.run = now
}

// drawRuns draws runs below each other, each with its share of the rows.
func drawRuns(runs []*liveRun, f frame) (lines []string) {
	if f.height <= 0 {
		f.height = 24
	}
	rest := f.height - 1
	for i, l := range runs {
		own := f
		own.height = max(2, rest/(len(runs)-i)+1)
		drawn := l.shape.draw(&l.run, own)
		drawn = drawn[:min(len(drawn), max(rest, 0))]
		rest -= len(drawn)
		lines = append(lines, drawn...)
	}
	return lines
}

// live redraws the trees of runs until they are settled, and asks the
// questions of their tasks. Events only say that something has changed; the
// picture is the runs as they are.
func (f *follower) live(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, runs := f.conn.Runtime(), []*liveRun{}
	for _, id := range f.ids {
		run, err := wholeRun(ctx, r, id)
		if err != nil {
			return err
		}
		runs = append(runs, &liveRun{run, newRunTree(run.Tasks)})
	}
	changed, ended := notices(ctx, r, f.ids)
	picture, questions := &redrawn{to: f.Stderr}, newQuestions(f.Output, f.stdin, f.conn)
	draw := func() {
		width, height := f.Size()
		picture.draw(drawRuns(runs, frame{width, height, f.Colour(), f.Now()}), width, height)
	}
	refresh := func() time.Duration {
		from := f.Now()
		for _, l := range runs {
			if !l.run.State.Settled() {
				l.refresh(ctx, r)
			}
		}
		return f.Now().Sub(from)
	}
	draw()
	tick := time.NewTicker(console.RedrawInterval)
	defer tick.Stop()
	last, pause, fresh := f.Now(), time.Duration(0), true
	for {
		for i := 0; fresh && i < len(runs); i++ {
			if questions.ask(ctx, &runs[i].run) {
				picture.rows = 0 // what was drawn stays above the question
				last, pause = time.Time{}, 0
			}
		}
		select {
		case err := <-ended:
			if err == nil {
				refresh()
			}
			draw()
			return err
		case <-tick.C:
		}
		since := f.Now().Sub(last)
		dirty := since >= max(refreshInterval, pause)
		if since >= pause {
			select {
			case <-changed:
				dirty = true
			default:
			}
		}
		if fresh = dirty; dirty {
			pause = refreshPause * refresh()
			last = f.Now()
		}
		draw()
	}
}

// notices says when one of the runs has changed, and with what error, or none, they are
// all settled. It ends with ctx.
func notices(ctx context.Context, r client.Runtime, ids []api.RunID) (changed chan struct{}, ended chan error) {
	changed, ended = make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- eachRun(ctx, ids, func(ctx context.Context, id api.RunID) error {
			return r.WatchRun(ctx, id, "", func(api.RunEvent) error {
				select {
				case changed <- struct{}{}:
				default:
				}
				return nil
			})
		})
	}()
	return changed, ended
}

// redrawn is a part of a terminal that is drawn again and again.
type redrawn struct {
	to            io.Writer
	rows          int // of the last picture, above the cursor
	width, height int // of the terminal then
}

func (s *redrawn) draw(lines []string, width, height int) {
	var b strings.Builder
	switch {
	case s.rows == 0:
	case width != s.width || height != s.height:
		b.WriteString("\x1b[H\x1b[2J") // a resized terminal wraps old lines in its own way
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r", s.rows)
	}
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(s.to, b.String()) // closing the terminal ends the command by a signal
	s.rows, s.width, s.height = len(lines), width, height
}
