package runcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

func (t *commands) watchCommand() *cobra.Command {
	return t.runVerb(&cobra.Command{
		Use: "watch RUN", Short: "Watch a run until it is settled", Args: cobra.ExactArgs(1),
		Long: `Watch a run until every task has ended: on a terminal as a tree that is redrawn, elsewhere
as a line per event; with -o jsonl every line is an event object. The exit status is 0 if
all tasks are done, 3 if one was denied, else 1. Interrupting it does not stop the run.`,
		Example: console.Examples("bailiwick run watch RUN", "bailiwick run watch RUN -o jsonl"),
	}, func(ctx context.Context, c *client.Conn, id api.RunID, _ []string) error {
		return t.watch(ctx, c.Runtime(), id, false)
	})
}

// watch shows the events of a run until it is settled, prints the run, and
// returns its outcome.
func (t *commands) watch(ctx context.Context, r client.Runtime, id api.RunID, quiet bool) error {
	t.warnUndriven(ctx, r, id)
	show := func(api.RunEvent) error { return nil }
	live := false
	switch {
	case quiet:
	case t.Format == "jsonl":
		show = func(e api.RunEvent) error { return t.JSON(e) }
	case t.Terminal && !t.Dumb():
		live = true
	case t.Format == "text":
		show = func(e api.RunEvent) error {
			_, err := fmt.Fprintln(t.Stdout, t.EntryLine(e.Text))
			return err
		}
	}
	var err error
	if live {
		err = t.watchLive(ctx, r, id)
	} else {
		err = r.WatchRun(ctx, id, "", show)
	}
	if err != nil {
		return t.interrupted(ctx, id, err)
	}
	return t.finish(ctx, r, id, quiet || t.Format != "jsonl")
}

// finish prints a settled run, if print is set, and returns its outcome.
func (t *commands) finish(ctx context.Context, r client.Runtime, id api.RunID, print bool) error {
	run, err := wholeRun(ctx, r, id)
	if err == nil && print {
		err = t.printRun(ctx, r, &run, false)
	}
	if err != nil {
		return err
	}
	return outcome(&run)
}

// interrupted tells a user who interrupts a command that the run continues.
func (t *commands) interrupted(ctx context.Context, id api.RunID, err error) error {
	if err != nil && ctx.Err() != nil {
		fmt.Fprintf(t.Stderr, "run %s continues; watch it with: bailiwick run watch %[1]s, cancel it with: bailiwick run cancel %[1]s\n", id)
	}
	return err
}

const (
	// refreshInterval is how often a run is read without an event of its own:
	// other runs change what a task waits for.
	refreshInterval = 5 * time.Second
	// refreshPause is how many times longer than the reading the pause after it
	// is, so that a large run is not read all the time.
	refreshPause = 10
)

// watchLive redraws the tree of a run until it is settled. Events only say that
// something has changed; the picture is the run as it is.
func (t *commands) watchLive(ctx context.Context, r client.Runtime, id api.RunID) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { // ends with ctx, at the latest when this function returns
		ended <- r.WatchRun(ctx, id, "", func(api.RunEvent) error {
			select {
			case changed <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	shape, picture := newRunTree(run.Tasks), &redrawn{to: t.Stderr}
	draw := func() {
		width, height := t.Size()
		picture.draw(shape.draw(&run, frame{width, height, t.Colour(), t.Now()}), width, height)
	}
	// An error keeps the last picture: WatchRun waits for a service that is away
	// for a moment.
	refresh := func() time.Duration {
		from := t.Now()
		if now, err := wholeRun(ctx, r, id); err == nil {
			if len(now.Tasks) != len(run.Tasks) {
				shape = newRunTree(now.Tasks)
			}
			run = now
		}
		return t.Now().Sub(from)
	}
	draw()
	tick := time.NewTicker(console.RedrawInterval)
	defer tick.Stop()
	last, pause := t.Now(), time.Duration(0)
	for {
		select {
		case err := <-ended:
			if err == nil {
				refresh()
			}
			draw()
			return err
		case <-tick.C:
		}
		since := t.Now().Sub(last)
		dirty := since >= max(refreshInterval, pause)
		if since >= pause {
			select {
			case <-changed:
				dirty = true
			default:
			}
		}
		if dirty {
			pause = refreshPause * refresh()
			last = t.Now()
		}
		draw()
	}
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

func (t *commands) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := t.runVerb(&cobra.Command{
		Use: "wait RUN", Short: "Wait until a run is settled", Args: cobra.ExactArgs(1),
		Long: `Wait until every task of a run has ended, and print the run. The exit status is 0 if all
tasks are done, 3 if one was denied, 8 if --timeout expires first, else 1.`,
		Example: console.Examples("bailiwick run wait RUN --timeout 10m", "bailiwick run wait RUN -o json"),
	}, func(ctx context.Context, c *client.Conn, id api.RunID, _ []string) error {
		var a console.Args
		if a.Wait("--timeout", timeout); a.Err != nil {
			return a.Err
		}
		return t.wait(ctx, c.Runtime(), id, timeout)
	})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this time with exit status 8; the run continues")
	return cmd
}

func (t *commands) wait(ctx context.Context, r client.Runtime, id api.RunID, timeout time.Duration) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	if run.Undriven {
		fmt.Fprintln(t.Stderr, console.Line(undrivenText(id)))
	}
	for i := range run.Tasks {
		if run.Tasks[i].Asks {
			fmt.Fprintf(t.Stderr, "task %s waits for an answer; see: bailiwick run show %s\n", run.Tasks[i].Task, id)
		}
	}
	p := t.NewProgress("run " + string(id) + " is in progress")
	err = awaitRun(ctx, r, id, "", timeout)
	p.Close()
	if api.CodeOf(err) == api.CodeNotFinished {
		return api.Errorf(api.CodeNotFinished, "run %s has not ended after %s and continues", id, timeout).WithHint("see: bailiwick run show %s", id)
	}
	if err != nil {
		return t.interrupted(ctx, id, err)
	}
	return t.finish(ctx, r, id, true)
}

// awaitRun waits until a run has ended, or a task of it if one is named. A wait
// of 0 has no limit; after any other it returns CodeNotFinished.
func awaitRun(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, wait time.Duration) error {
	short := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	err := r.WatchRun(short, id, "", func(e api.RunEvent) error {
		if task != "" && e.Task == task && settlesTask(e.Event) {
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return api.Errorf(api.CodeNotFinished, "run %s has not ended", id)
	}
	return err
}

// errFound stops reading events at the one that was searched for.
var errFound = errors.New("found")

// settlesTask reports whether an event is the last of a task.
func settlesTask(event string) bool {
	state, ok := strings.CutPrefix(event, "task.")
	return ok && api.TaskState(state).Settled()
}
