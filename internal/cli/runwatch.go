package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) runWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch RUN", Short: "Watch a run until it is settled", Args: cobra.ExactArgs(1),
		Long: `Watch a run until every task has ended: on a terminal as a tree that is redrawn, elsewhere
as a line for everything that happens; with -o jsonl every line is an event. It
ends with 0 when all is done, with 3 when something was denied, else with 1.
Interrupting it leaves the run alone.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				return t.watchRun(cmd.Context(), c.Runtime(), id, false)
			})
		},
	}
}

// watchRun shows what happens in a run until it is settled, prints it, and
// returns how it ended.
func (t *tree) watchRun(ctx context.Context, r client.Runtime, id api.RunID, quiet bool) error {
	var err error
	switch {
	case quiet:
		err = r.WatchRun(ctx, id, "", func(api.RunEvent) error { return nil })
	case t.output == "jsonl":
		err = r.WatchRun(ctx, id, "", func(e api.RunEvent) error { return t.printJSON(e) })
	case t.Terminal && !t.dumb():
		err = t.watchLive(ctx, r, id)
	case t.output == "text":
		err = r.WatchRun(ctx, id, "", func(e api.RunEvent) error {
			_, err := fmt.Fprintln(t.Stdout, lineOf(e.Text))
			return err
		})
	default:
		err = r.WatchRun(ctx, id, "", func(api.RunEvent) error { return nil })
	}
	if err != nil {
		return t.leaves(ctx, id, err)
	}
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	if quiet || t.output != "jsonl" {
		if err := t.printRun(ctx, r, &run, false); err != nil {
			return err
		}
	}
	return runOutcome(&run)
}

// leaves says to whoever interrupts a command that the run goes on.
func (t *tree) leaves(ctx context.Context, id api.RunID, err error) error {
	if err != nil && ctx.Err() != nil {
		fmt.Fprintf(t.Stderr, "run %s goes on; watch it with: bailiwick run watch %[1]s, end it with: bailiwick run cancel %[1]s\n", id)
	}
	return err
}

// dumb says that the terminal cannot be redrawn.
func (t *tree) dumb() bool { return slices.Contains(t.Env, "TERM=dumb") }

// colour says that somebody wants it.
func (t *tree) colour() bool {
	return !slices.ContainsFunc(t.Env, func(kv string) bool { return strings.HasPrefix(kv, "NO_COLOR=") && kv != "NO_COLOR=" })
}

const (
	// What other runs do changes what a task waits for and is no event of this one.
	lookAgain = 5 * time.Second
	// A large run is asked for no more than a tenth of the time.
	lookPause = 10
)

// watchLive redraws the tree of a run until it is settled. Events say that
// something has changed; what is drawn is the run as it is.
func (t *tree) watchLive(ctx context.Context, r client.Runtime, id api.RunID) error {
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
	shape, screen := newRunTree(run.Tasks), &redrawn{to: t.Stderr}
	draw := func() {
		width, height := t.size()
		screen.draw(shape.draw(&run, frame{width, height, t.colour(), t.Now()}), width, height)
	}
	// A service that is away for a moment is for WatchRun to wait for, and what
	// was seen of the run stays on the screen.
	look := func() time.Duration {
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
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	looked, pause := t.Now(), time.Duration(0)
	for {
		select {
		case err := <-ended:
			if err == nil {
				look()
			}
			draw()
			return err
		case <-tick.C:
		}
		since := t.Now().Sub(looked)
		dirty := false
		if since >= pause {
			select {
			case <-changed:
				dirty = true
			default:
			}
		}
		if dirty || since >= max(lookAgain, pause) {
			pause = lookPause * look()
			looked = t.Now()
		}
		draw()
	}
}

// size is that of the terminal now; 0 where it is not known.
func (t *tree) size() (width, height int) {
	if t.Width != nil {
		width = t.Width()
	}
	if t.Height != nil {
		height = t.Height()
	}
	return width, height
}

// redrawn is a part of a terminal that is drawn over and over.
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
		b.WriteString("\x1b[H\x1b[2J") // how a terminal breaks old lines anew nobody knows
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r", s.rows)
	}
	for _, l := range lines {
		b.WriteString(l + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(s.to, b.String()) // a terminal that is gone ends the command by a signal
	s.rows, s.width, s.height = len(lines), width, height
}

func (t *tree) runWaitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait RUN", Short: "Wait until a run is settled", Args: cobra.ExactArgs(1),
		Long: `Wait until every task of a run has ended, and print how. It ends with 0 when all is done,
with 3 when something was denied, with 8 when --timeout is over before, else with 1.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return api.Errorf(api.CodeInvalid, "--timeout %s: want no negative time", timeout)
			}
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				return t.waitRun(cmd.Context(), c.Runtime(), id, timeout)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this time with exit status 8; the run goes on")
	return cmd
}

func (t *tree) waitRun(ctx context.Context, r client.Runtime, id api.RunID, timeout time.Duration) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	for i := range run.Tasks {
		if run.Tasks[i].Asks {
			fmt.Fprintf(t.Stderr, "task %s waits for an answer; see: bailiwick run show %s\n", run.Tasks[i].Task, id)
		}
	}
	p := newProgress(t.Stderr, t.Terminal, "run "+string(id)+" is under way", t.Now)
	err = awaitRun(ctx, r, id, "", timeout)
	p.Close()
	if api.CodeOf(err) == api.CodeNotFinished {
		return api.Errorf(api.CodeNotFinished, "run %s goes on after %s", id, timeout).WithHint("see: bailiwick run show %s", id)
	}
	if err != nil {
		return t.leaves(ctx, id, err)
	}
	if run, err = wholeRun(ctx, r, id); err != nil {
		return err
	}
	if err := t.printRun(ctx, r, &run, false); err != nil {
		return err
	}
	return runOutcome(&run)
}

// awaitRun waits until a run, or if one is named a task of it, has ended; with
// a wait of 0 for ever.
func awaitRun(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, wait time.Duration) error {
	short := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	err := r.WatchRun(short, id, "", func(e api.RunEvent) error {
		if task != "" && e.Task == task && endsTask(e.Event) {
			return errSeen
		}
		return nil
	})
	switch {
	case errors.Is(err, errSeen):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return api.Errorf(api.CodeNotFinished, "run %s goes on after %s", id, wait)
	}
	return err
}

// errSeen ends the look at events once the one that counts was there.
var errSeen = errors.New("seen")

// endsTask says which events are the last of a task.
func endsTask(event string) bool {
	kind, ok := strings.CutPrefix(event, "task.")
	return ok && api.TaskState(kind).Settled()
}
