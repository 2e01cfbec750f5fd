package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

type runLogFlags struct {
	follow  bool
	attempt int
}

func (t *tree) runLogsCommand() *cobra.Command {
	var f runLogFlags
	cmd := &cobra.Command{
		Use: "logs RUN [TASK]", Short: "Print what the tasks of a run wrote, made harmless for a terminal", Args: cobra.RangeArgs(1, 2),
		Long: `Print what a task's latest attempt wrote; without TASK, those of all tasks, every line
behind the name of its task. With -f all attempts, as they write, until the task
or the run has ended.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			var task api.TaskID
			if len(args) == 2 {
				task = p.task(args[1])
			}
			switch {
			case f.attempt < 0:
				p.fail(fmt.Errorf("--attempt %d: want no negative number", f.attempt))
			case f.attempt > 0 && task == "":
				p.fail(errors.New("--attempt is one of a task: name the task"))
			case f.attempt > 0 && f.follow:
				p.fail(errors.New("--attempt is one, -f is all of them; want one of the two"))
			}
			if p.err != nil {
				return p.err
			}
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				return t.runLogs(cmd.Context(), c.Runtime(), id, task, f)
			})
		},
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "all attempts, until the end, also when the service ends meanwhile")
	cmd.Flags().IntVar(&f.attempt, "attempt", 0, "of this attempt of the task (default: the latest)")
	return cmd
}

func (t *tree) runLogs(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, f runLogFlags) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	l := &taskLogs{t: t, r: r, bare: task != ""}
	for i := range run.Tasks {
		l.width = max(l.width, min(len(run.Tasks[i].Task), 24))
	}
	if task != "" {
		if _, err := taskOf(&run, task); err != nil {
			return err
		}
	}
	if f.follow {
		// What was taken over has no events here.
		for i := range run.Tasks {
			if over := &run.Tasks[i]; over.TakenOver && over.DispatchID != "" && (task == "" || task == over.Task) {
				err = errors.Join(err, l.show(ctx, taskLog{over.Task, over.DispatchID, 0}, r.Log))
			}
		}
		if one, _ := taskOf(&run, task); one != nil && one.TakenOver {
			return err
		}
		return errors.Join(err, t.leaves(ctx, id, l.follow(ctx, id, task)))
	}
	if task != "" {
		return l.one(ctx, &run, task, f.attempt)
	}
	for i := range run.Tasks {
		if d := run.Tasks[i].DispatchID; d != "" {
			err = errors.Join(err, l.show(ctx, taskLog{run.Tasks[i].Task, d, 0}, r.Log))
		}
	}
	return err
}

// taskLog is the log of an attempt of a task's dispatch.
type taskLog struct {
	task     api.TaskID
	dispatch api.DispatchID
	attempt  int // of the dispatch: it has a further one after a question; 0: the current one
}

// taskLogLine is a line of -o jsonl.
type taskLogLine struct {
	Task     api.TaskID     `json:"task"`
	Dispatch api.DispatchID `json:"dispatchId"`
	Attempt  int            `json:"attempt,omitempty"` // of the dispatch
	api.Chunk
}

// taskLogs shows the logs of several tasks at once, line by line.
type taskLogs struct {
	t     *tree
	r     client.Runtime
	bare  bool // there is one task only, and nothing in front of its lines
	width int  // of the longest name

	mu sync.Mutex // held while something is written
}

type logReader func(context.Context, api.DispatchID, client.LogFrom, func(api.Chunk) error) error

// one shows an attempt of a task; 0 is the latest.
func (l *taskLogs) one(ctx context.Context, run *api.Run, id api.TaskID, attempt int) error {
	task, err := taskOf(run, id)
	if err != nil {
		return err
	}
	dispatch := task.DispatchID
	if attempt > 0 && attempt != task.Attempt {
		dispatch = ""
		err := l.r.WatchRun(ctx, run.RunID, "", func(e api.RunEvent) error {
			switch {
			case e.Task == id && e.Event == "task.started" && e.Attempt == attempt:
				dispatch = e.DispatchID
				return errSeen
			case e.Task == id && endsTask(e.Event), e.Task == id && attempt > task.Attempt:
				return errSeen
			}
			return nil
		})
		if err != nil && !errors.Is(err, errSeen) {
			return err
		}
	}
	if dispatch == "" {
		return api.Errorf(api.CodeNotFound, "task %s of run %s has no attempt %d that was started", id, run.RunID, max(attempt, 1)).WithHint("see: bailiwick run show %s", run.RunID)
	}
	return l.show(ctx, taskLog{id, dispatch, 0}, l.r.Log)
}

// followed is how many logs are followed at once. More tasks than that wait for
// their turn, and none of their lines is lost.
const followed = 64

// follow shows all attempts of a task, or of all tasks, as they are written.
func (l *taskLogs) follow(ctx context.Context, id api.RunID, task api.TaskID) error {
	slots := make(chan struct{}, followed)
	before := map[api.TaskID]chan struct{}{} // closed when the task's attempt before has been shown
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	err := l.r.WatchRun(ctx, id, "", func(e api.RunEvent) error {
		switch {
		case e.Task == "" || task != "" && e.Task != task:
			return nil
		case task != "" && endsTask(e.Event):
			return errSeen
		case e.Event != "dispatch.started" || e.DispatchID == "":
			return nil
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		last, shown := before[e.Task], make(chan struct{})
		before[e.Task] = shown
		wait.Go(func() {
			defer func() { <-slots; close(shown) }()
			if last != nil { // it has a slot, so it ends
				<-last
			}
			if err := l.show(ctx, taskLog{e.Task, e.DispatchID, e.Attempt}, l.r.Follow); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = cmpErr(failed, err)
			}
		})
		return nil
	})
	wait.Wait()
	if errors.Is(err, errSeen) {
		err = nil
	}
	return cmpErr(err, failed)
}

// show shows one log as far as read gives it.
func (l *taskLogs) show(ctx context.Context, log taskLog, read logReader) error {
	from := client.LogFrom{Attempt: log.attempt}
	if l.t.output != "text" {
		return l.failed(log, read(ctx, log.dispatch, from, func(c api.Chunk) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.t.printJSON(taskLogLine{log.task, log.dispatch, log.attempt, c})
		}))
	}
	out, notes := &wholeLines{to: l.t.Stdout, mu: &l.mu}, &wholeLines{to: l.t.Stderr, mu: &l.mu}
	if l.bare {
		a := newAgentLog(l.t.Stdout, l.t.Stderr, "", nil, 0)
		return l.failed(log, errors.Join(read(ctx, log.dispatch, from, a.chunk), a.Close()))
	}
	name := pad(string(log.task), l.width)
	a := newAgentLog(out, notes, name+" "+agentMarker, l.columns, 0)
	a.lines.broken = name + " " + brokenMarker
	return l.failed(log, errors.Join(read(ctx, log.dispatch, from, a.chunk), a.Close(), out.flush(), notes.flush()))
}

func (l *taskLogs) failed(log taskLog, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log of task %s, dispatch %s: %w", log.task, log.dispatch, err)
}

// longLine is where a line is broken that nobody looks at on a terminal, so that
// one without an end does not fill the memory.
const longLine = 32 << 10

// columns is where lines are broken: a terminal that did it would begin the
// next one without the name of the task.
func (l *taskLogs) columns() int {
	width := 0
	if l.t.Screen && l.t.Width != nil {
		width = l.t.Width()
	}
	if width < l.width+20 {
		return longLine
	}
	return width
}

// wholeLines passes on whole lines, so that those of several writers do not mix.
type wholeLines struct {
	to   io.Writer
	mu   *sync.Mutex // of all who write there
	rest []byte
}

func (w *wholeLines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.to.Write(w.rest[:end]); err != nil {
		return 0, err
	}
	w.rest = append(w.rest[:0], w.rest[end:]...)
	return len(p), nil
}

func (w *wholeLines) flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.Write([]byte("\n"))
	return err
}
