package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// Worker is the service's connection to a running worker.
type Worker struct {
	dir     string
	process *launch.Process
	conn    net.Conn
	events  chan record.WorkerMessage
	exited  chan struct{}

	mu sync.Mutex // serialises writes
}

func connect(ctx context.Context, dir string, process *launch.Process, logger *slog.Logger) (*Worker, error) {
	conn, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	return newWorker(ctx, dir, conn, process, logger), nil
}

// endingWorker returns a worker without a connection, which is about to exit.
func endingWorker(ctx context.Context, dir string, process *launch.Process, logger *slog.Logger) *Worker {
	silent, closed := net.Pipe()
	_ = closed.Close()
	return newWorker(ctx, dir, silent, process, logger)
}

func newWorker(ctx context.Context, dir string, conn net.Conn, process *launch.Process, logger *slog.Logger) *Worker {
	w := &Worker{dir: dir, process: process, conn: conn, events: make(chan record.WorkerMessage), exited: make(chan struct{})}
	go w.receive(context.WithoutCancel(ctx), logger)
	return w
}

// receive passes on the messages of the worker and then waits for its exit.
func (w *Worker) receive(ctx context.Context, logger *slog.Logger) {
	lines := bufio.NewScanner(w.conn)
	lines.Buffer(nil, record.MaxWorkLine)
	for lines.Scan() {
		var m record.WorkerMessage
		if err := canon.Decode(lines.Bytes(), &m); err != nil {
			logger.ErrorContext(ctx, "invalid message from a worker", attemptOf(w.dir), slog.Any("err", err))
			break
		}
		w.events <- m
	}
	close(w.events)
	_ = w.conn.Close()
	// The exit status does not matter: the result, or its absence, is the outcome.
	if err := w.process.Wait(); err != nil {
		logger.ErrorContext(ctx, "waiting for the exit of a worker failed", attemptOf(w.dir), slog.Any("err", err))
	}
	close(w.exited)
}

// attemptOf returns the attempt that a directory is named after, for the log.
func attemptOf(dir string) slog.Attr {
	return slog.Group("", slog.String("dispatch", filepath.Base(filepath.Dir(dir))), slog.String("attempt", filepath.Base(dir)))
}

// runningIn returns the attempt that a directory is named after.
func runningIn(dir string) launch.Running {
	n, _ := strconv.Atoi(filepath.Base(dir)) // 0: of no attempt
	return launch.Running{Dispatch: api.DispatchID(filepath.Base(filepath.Dir(dir))), Attempt: n}
}

// Events returns the messages of the worker, from its start on. The channel must
// be drained, and is closed after the last one.
func (w *Worker) Events() <-chan record.WorkerMessage { return w.events }

// Exited is closed when the worker has exited: its directory is final.
func (w *Worker) Exited() <-chan struct{} { return w.exited }

// PID returns the process id of the worker.
func (w *Worker) PID() int { return w.process.PID }

// Proceed tells the worker that its start is durable in the log.
func (w *Worker) Proceed() error { return w.send(record.ServiceMessage{Proceed: true}) }

// Ask tells the worker to end the attempt with a question of the agent.
func (w *Worker) Ask(q api.Question) error { return w.send(record.ServiceMessage{Question: &q}) }

// Spent tells the worker to end the attempt because of a limit.
func (w *Worker) Spent(limit string) error { return w.send(record.ServiceMessage{Spent: limit}) }

// Cancel tells the worker to stop the agent and capture the work so far.
func (w *Worker) Cancel(reason string) error {
	if reason == "" {
		reason = "no reason given"
	}
	return w.send(record.ServiceMessage{Cancel: reason})
}

func (w *Worker) send(m record.ServiceMessage) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.conn.Write(append(line, '\n'))
	return err
}

// Kill kills the worker, with its process group and its jail, and writes the
// reason behind the worker's own messages.
func (w *Worker) Kill(why string) error {
	select {
	case <-w.exited:
		return nil
	default:
	}
	noted := write(filepath.Join(w.dir, record.WorkErrors), os.O_APPEND, func(f io.Writer) error {
		_, err := fmt.Fprintf(f, "the service killed it: %s\n", why)
		return err
	})
	return errors.Join(noted, w.process.Kill())
}

// Disconnect closes the connection; the worker keeps running.
func (w *Worker) Disconnect() { _ = w.conn.Close() }
