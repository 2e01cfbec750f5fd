package runverbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

type logFlags struct {
	follow, failed bool
	attempt, tail  int
	since          string
	from           time.Time // parsed from since
}

func (t *commands) logsCommand(v *console.Verb) {
	var f logFlags
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
		var a console.Args
		var task api.TaskID
		if len(args) == 2 {
			task = console.Parse(&a, args[1], api.ParseGrownTaskID)
		}
		switch {
		case f.attempt < 0:
			a.Fail(fmt.Errorf("--attempt %d: want no negative number", f.attempt))
		case f.attempt > 0 && task == "":
			a.Fail(errors.New("--attempt needs a task: name the task"))
		case f.tail < 0 || f.tail > maxTail:
			a.Fail(fmt.Errorf("--tail %d: want 1 to %d lines", f.tail, maxTail))
		case f.follow && (f.tail > 0 || f.failed || f.since != ""):
			a.Fail(errors.New("--tail, --since and --failed select from what was written so far, -f shows all of it; want one of the two"))
		case f.attempt > 0 && f.follow:
			a.Fail(errors.New("--attempt shows one attempt, -f all of them; want one of the two"))
		}
		f.from = a.Since(f.since, t.Now())
		if a.Err != nil {
			return a.Err
		}
		show := func() error { return t.logs(ctx, c.Runtime(), id, task, f) }
		if f.follow {
			return show()
		}
		return t.Page(show)
	})
	v.Flag(&f.follow, "follow")
	v.Flag(&f.tail, "tail")
	v.Flag(&f.since, "since")
	v.Flag(&f.failed, "failed")
	v.Flag(&f.attempt, "attempt")
}

func (t *commands) logs(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, f logFlags) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	l := &taskLogs{out: t.Output, r: r, bare: task != "", tail: f.tail}
	for i := range run.Tasks {
		l.width = max(l.width, min(len(run.Tasks[i].Task), 24))
	}
	if task != "" {
		one, err := taskOf(&run, task)
		if err != nil {
			return err
		}
		if !f.follow {
			return l.one(ctx, &run, one, f.attempt)
		}
		if one.TakenOver && one.DispatchID != "" {
			return l.show(ctx, taskLog{task, one.DispatchID, 0}, r.Log)
		}
	}
	// With -f, the events of the run name all attempts but those of tasks that it
	// took over from another run.
	for i := range run.Tasks {
		one := &run.Tasks[i]
		if one.DispatchID != "" && task == "" && (one.TakenOver || !f.follow) && f.selects(one) {
			err = errors.Join(err, l.show(ctx, taskLog{one.Task, one.DispatchID, 0}, r.Log))
		}
	}
	if f.follow {
		err = errors.Join(err, interrupted(ctx, t.Output, []api.RunID{id}, l.follow(ctx, id, task)))
	}
	return err
}

// selects reports whether the log of a task is to be shown.
func (f *logFlags) selects(task *api.RunTask) bool {
	if f.failed && task.State != api.TaskFailed && task.State != api.TaskDenied {
		return false
	}
	return f.from.IsZero() || task.EndedAt == nil || !task.EndedAt.Before(f.from)
}

// taskLog is the log of an attempt of a task's dispatch.
type taskLog struct {
	task     api.TaskID
	dispatch api.DispatchID
	attempt  int // of the dispatch, which has another one after each answer; 0: the current one
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
	out   *console.Output
	r     client.Runtime
	bare  bool // one task only: its lines get no name
	width int  // of the longest name
	tail  int  // lines to show of each log; 0: all

	mu sync.Mutex // guards writes
}

type logReader func(context.Context, api.DispatchID, client.LogFrom, func(api.Chunk) error) error

// one shows an attempt of a task; 0 is the latest.
func (l *taskLogs) one(ctx context.Context, run *api.Run, task *api.RunTask, attempt int) error {
	dispatch := task.DispatchID
	if attempt > 0 && attempt != task.Attempt {
		dispatch = ""
		err := l.r.WatchRun(ctx, run.RunID, "", func(e api.RunEvent) error {
			switch {
			case e.Task == task.Task && e.Event == "task.started" && e.Attempt == attempt:
				dispatch = e.DispatchID
				return errFound
			case e.Task == task.Task && (settlesTask(e.Event) || attempt > task.Attempt):
				return errFound
			}
			return nil
		})
		if err != nil && !errors.Is(err, errFound) {
			return err
		}
	}
	if dispatch == "" {
		return api.Errorf(api.CodeNotFound, "task %s of run %s has no started attempt %d", task.Task, run.RunID, max(attempt, 1)).WithHint("see: bailiwick run show %s", run.RunID)
	}
	return l.show(ctx, taskLog{task.Task, dispatch, 0}, l.r.Log)
}

// maxFollowed is how many logs are followed at once. Other tasks wait for a slot;
// none of their lines is lost.
const maxFollowed = 64

// follow shows all attempts of a task, or of all tasks, while they write.
func (l *taskLogs) follow(ctx context.Context, id api.RunID, task api.TaskID) error {
	slots := make(chan struct{}, maxFollowed)
	previous := map[api.TaskID]chan struct{}{} // closed when the task's previous attempt was shown
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	err := l.r.WatchRun(ctx, id, "", func(e api.RunEvent) error {
		switch {
		case e.Task == "" || task != "" && e.Task != task:
			return nil
		case task != "" && settlesTask(e.Event):
			return errFound
		case e.Event != "dispatch.started" || e.DispatchID == "":
			return nil
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		last, shown := previous[e.Task], make(chan struct{})
		previous[e.Task] = shown
		wait.Go(func() {
			defer func() { <-slots; close(shown) }()
			if last != nil { // it has a slot, so it ends
				<-last
			}
			if err := l.show(ctx, taskLog{e.Task, e.DispatchID, e.Attempt}, l.r.Follow); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = err
				}
			}
		})
		return nil
	})
	wait.Wait()
	if err == nil || errors.Is(err, errFound) {
		return failed
	}
	return err
}

// show shows one log with read, which is Log or Follow.
func (l *taskLogs) show(ctx context.Context, log taskLog, read logReader) error {
	from := client.LogFrom{Attempt: log.attempt}
	if l.tail > 0 {
		var err error
		if from.Offset, err = tailOf(ctx, log, l.tail, read); err != nil {
			return l.failed(log, err)
		}
	}
	if l.out.Format != "text" {
		return l.failed(log, read(ctx, log.dispatch, from, func(c api.Chunk) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.out.JSON(taskLogLine{log.task, log.dispatch, log.attempt, c})
		}))
	}
	if l.bare {
		a := console.NewAgentLog(l.out.Stdout, l.out.Stderr, "", nil, from.Offset)
		return l.failed(log, errors.Join(read(ctx, log.dispatch, from, a.Chunk), a.Close()))
	}
	out, notes := &wholeLines{to: l.out.Stdout, mu: &l.mu}, &wholeLines{to: l.out.Stderr, mu: &l.mu}
	a := console.NewAgentLog(out, notes, console.Pad(string(log.task), l.width)+" "+console.AgentMarker, l.columns, from.Offset)
	return l.failed(log, errors.Join(read(ctx, log.dispatch, from, a.Chunk), a.Close(), out.flush(), notes.flush()))
}

// maxTail bounds --tail: the start of each line is kept.
const maxTail = 1_000_000

// tailOf returns where the last n lines of a log begin.
func tailOf(ctx context.Context, log taskLog, n int, read logReader) (int64, error) {
	var starts []int64 // of the last n lines
	oldest, begins := 0, true
	err := read(ctx, log.dispatch, client.LogFrom{Attempt: log.attempt}, func(c api.Chunk) error {
		for i, b := range c.Data {
			switch at := c.Offset + int64(i); {
			case !begins:
			case len(starts) < n:
				starts = append(starts, at)
			default:
				starts[oldest] = at
				oldest = (oldest + 1) % n
			}
			begins = b == '\n'
		}
		return nil
	})
	if len(starts) == 0 {
		return 0, err
	}
	return starts[oldest], err
}

func (l *taskLogs) failed(log taskLog, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log of task %s, dispatch %s: %w", log.task, log.dispatch, err)
}

// longLine is where lines are broken that are not shown on a terminal, so that
// an endless line does not fill the memory.
const longLine = 32 << 10

// columns is where lines are broken: a terminal would continue them without the
// name of the task.
func (l *taskLogs) columns() int {
	if width, _ := l.out.Size(); l.out.Screen && width >= l.width+20 {
		return width
	}
	return longLine
}

// wholeLines passes on only whole lines, so that the lines of several writers do
// not mix.
type wholeLines struct {
	to   io.Writer
	mu   *sync.Mutex // shared by all writers to the same output
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
