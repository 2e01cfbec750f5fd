package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// Worker is the service's end of one living worker.
type Worker struct {
	dir    string
	conn   net.Conn
	events chan record.WorkerMessage
	gone   chan struct{}

	mu sync.Mutex // one line at a time
}

// maxLine bounds what a worker says at once.
const maxLine = 1 << 20

func connect(ctx context.Context, dir string, cmd *exec.Cmd, logger *slog.Logger) (*Worker, error) {
	conn, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	return newWorker(ctx, dir, conn, cmd, logger), nil
}

// endingWorker is a worker that cannot be spoken to any more.
func endingWorker(ctx context.Context, dir string, logger *slog.Logger) *Worker {
	silent, closed := net.Pipe()
	_ = closed.Close()
	return newWorker(ctx, dir, silent, nil, logger)
}

func newWorker(ctx context.Context, dir string, conn net.Conn, cmd *exec.Cmd, logger *slog.Logger) *Worker {
	w := &Worker{dir: dir, conn: conn, events: make(chan record.WorkerMessage), gone: make(chan struct{})}
	go w.hear(context.WithoutCancel(ctx), cmd, logger)
	return w
}

// hear passes on what the worker says and then waits for its end.
func (w *Worker) hear(ctx context.Context, cmd *exec.Cmd, logger *slog.Logger) {
	lines := bufio.NewScanner(w.conn)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var m record.WorkerMessage
		if err := canon.Decode(lines.Bytes(), &m); err != nil {
			logger.ErrorContext(ctx, "a worker said something that is not understood", attemptOf(w.dir), slog.Any("err", err))
			break
		}
		w.events <- m
	}
	close(w.events)
	_ = w.conn.Close()
	if cmd != nil {
		// How it ended does not matter: the result, or its absence, says it.
		_ = cmd.Wait()
	}
	if err := awaitUnlocked(w.dir); err != nil {
		logger.ErrorContext(ctx, "the end of a worker cannot be awaited", attemptOf(w.dir), slog.Any("err", err))
	}
	close(w.gone)
}

// attemptOf says in a line of the log which attempt it is about: its directory
// is named after it.
func attemptOf(dir string) slog.Attr {
	return slog.Group("", slog.String("dispatch", filepath.Base(filepath.Dir(dir))), slog.String("attempt", filepath.Base(dir)))
}

// Events gives what the worker says, from its start on, and is closed when it
// says no more. It must be drained.
func (w *Worker) Events() <-chan record.WorkerMessage { return w.events }

// Exited is closed when the worker's process has ended: its directory is final.
func (w *Worker) Exited() <-chan struct{} { return w.gone }

// PID returns the worker's process as it says it itself; 0 when it has not.
func (w *Worker) PID() int {
	pid, err := lockPID(w.dir)
	if err != nil {
		return 0
	}
	return pid
}

// Proceed tells the worker that its start is durable in the log.
func (w *Worker) Proceed() error { return w.say(record.ServiceMessage{Proceed: true}) }

// Cancel asks the worker to end the agent and capture what there is.
func (w *Worker) Cancel(reason string) error {
	if reason == "" {
		reason = "no reason given"
	}
	return w.say(record.ServiceMessage{Cancel: reason})
}

func (w *Worker) say(m record.ServiceMessage) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.conn.Write(append(line, '\n'))
	return err
}

// Kill ends the worker at once, and with it its jail.
func (w *Worker) Kill() error {
	fd, err := workerHandle(w.dir)
	if errors.Is(err, ErrNoWorker) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0), unix.Close(fd))
}

// Disconnect gives up the connection; the worker goes on.
func (w *Worker) Disconnect() { _ = w.conn.Close() }
