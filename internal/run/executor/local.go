// Package executor starts workers as processes of this machine.
//
// It starts and attaches to worker processes and carries the messages between
// service and worker. It decides nothing, reads no result and keeps no record:
// the worker's directory is the whole truth about an attempt.
//
// Carries the process half of R-D4 (cancel reaches the worker) and R-O6 (a
// worker outlives the service and is adopted).
package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// Local runs workers as processes of this machine.
type Local struct {
	Launcher Launcher
	Keys     seal.History // of the service
	Logger   *slog.Logger
}

// Launcher starts and finds the worker of a signed attempt, fetches signed sources, and nothing
// else. *launch.Launcher does in this process, and *Remote has another one do it.
type Launcher interface {
	Worker(ctx context.Context, a *launch.Attempt) (*launch.Process, error)
	// Find returns the worker of an attempt that was started earlier; launch.ErrNoWorker where none runs.
	Find(ctx context.Context, who launch.Running) (*launch.Process, error)
	Fetch(ctx context.Context, o launch.Order, ref, secret string) (record.FetchResult, error)
}

// Job is an attempt to start.
type Job struct {
	Dir   string             // of the attempt; created if needed
	Files map[string]Content // to write there, by name; see record.WorkManifest and others
	// Secrets of the manifest. They reach the worker through a pipe and are in no file,
	// argument or environment.
	Secrets record.Secrets
}

// Content writes the content of one file.
type Content func(io.Writer) error

// Start creates the attempt's directory and starts its worker. The attempt must have none
// yet, as Attach says. The worker outlives ctx and this process.
func (l *Local) Start(ctx context.Context, job Job) (*Worker, error) {
	failpoint.Hit(failpoint.ExecutorDir, job.Dir)
	if err := os.MkdirAll(job.Dir, 0o700); err != nil {
		return nil, err
	}
	for name, content := range job.Files {
		if err := write(filepath.Join(job.Dir, name), os.O_TRUNC, content); err != nil {
			return nil, err
		}
		failpoint.Hit(failpoint.ExecutorFile, job.Dir)
	}
	listener, err := listen(ctx, job.Dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close() //nolint:errcheck // the worker has its own copy
	failpoint.Hit(failpoint.ExecutorListening, job.Dir)
	p, err := l.start(ctx, job, listener)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.ExecutorStarted, job.Dir)
	w, err := connect(ctx, job.Dir, p, l.Logger)
	if err != nil {
		// The worker waits for a proceed message and has had no effect yet.
		return nil, errors.Join(err, p.Kill(), p.Wait())
	}
	failpoint.Hit(failpoint.ExecutorConnected, job.Dir)
	return w, nil
}

// write writes a file, opened with a mode: os.O_TRUNC or os.O_APPEND. It does not
// sync: after a crash of the machine the content is still in the blob store.
func write(path string, mode int, content Content) error {
	// A worker of another account may have put a link or a pipe there.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|mode|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}

// start has the worker started with what it inherits.
func (l *Local) start(ctx context.Context, job Job, listener *net.UnixListener) (*launch.Process, error) {
	a := launch.Attempt{Keys: l.Keys, Secrets: job.Secrets}
	var err error
	if a.Manifest, err = blob.ReadBounded(filepath.Join(job.Dir, record.WorkManifest), launch.MaxManifest); err != nil {
		return nil, err
	}
	// Closed below: the worker has copies.
	if a.Dir, err = os.Open(job.Dir); err != nil {
		return nil, err
	}
	defer a.Dir.Close() //nolint:errcheck // see above
	if a.Control, err = listener.File(); err != nil {
		return nil, err
	}
	defer a.Control.Close()                                                                                         //nolint:errcheck // see above
	a.Log, err = os.OpenFile(filepath.Join(job.Dir, record.WorkErrors), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	defer a.Log.Close() //nolint:errcheck // see above
	return l.Launcher.Worker(ctx, &a)
}

// Attach connects to the worker of an attempt's directory. The error is ErrNoWorker when
// none runs: then the directory is final. Who runs is the launcher's to say: the worker
// writes the directory.
func (l *Local) Attach(ctx context.Context, dir string) (*Worker, error) {
	p, err := l.Launcher.Find(ctx, runningIn(dir))
	if err != nil {
		return nil, err
	}
	w, err := connect(ctx, dir, p, l.Logger)
	if err != nil {
		// It no longer listens, so it is about to exit.
		l.Logger.WarnContext(ctx, "a worker does not respond; waiting for its exit", attemptOf(dir), slog.Any("err", err))
		return endingWorker(ctx, dir, p, l.Logger), nil
	}
	return w, nil
}

// ErrNoWorker says that an attempt has no worker.
var ErrNoWorker = launch.ErrNoWorker

// listen listens on the socket of dir. listen and dial use a descriptor of the
// directory, because the path of a socket is limited to 107 bytes.
func listen(ctx context.Context, dir string) (*net.UnixListener, error) {
	var listener *net.UnixListener
	err := throughDir(dir, func(path string) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "unix", path)
		if err != nil {
			return err
		}
		listener = l.(*net.UnixListener)
		listener.SetUnlinkOnClose(false)
		return nil
	})
	return listener, err
}

func dial(ctx context.Context, dir string) (net.Conn, error) {
	var conn net.Conn
	err := throughDir(dir, func(path string) error {
		// The socket itself, and none that a worker of another account put a link to there.
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: record.WorkSocket, Err: err}
		}
		defer unix.Close(fd) //nolint:errcheck // only a way to the socket
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			return fmt.Errorf("%s: not a socket", record.WorkSocket)
		}
		path = fmt.Sprintf("/proc/self/fd/%d", fd)
		conn, err = egress.Unix(path).DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}

func throughDir(dir string, do func(path string) error) error {
	d, err := os.Open(dir) //nolint:gosec // G304: our own directory
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only a way to the socket
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), record.WorkSocket))
}
