package launch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

const (
	// maxConns bounds the requests that are served at once. Others wait in the socket's queue,
	// or are refused by the kernel.
	maxConns = 32
	// reapEvery is how often the ends of workers are noticed.
	reapEvery = time.Second
)

// Server serves a launcher on a socket.
type Server struct {
	launcher *Launcher
	idle     time.Duration
	// starting is held by requests that may start a worker, from their accept on. What asks for a
	// worker waits for those before it: a service that was killed may have left one.
	starting sync.RWMutex

	mu       sync.Mutex
	children []*Process // of this process, not yet waited for; guarded by mu
}

// NewServer returns a server that ends after idle without a request.
func NewServer(l *Launcher, idle time.Duration) *Server { return &Server{launcher: l, idle: idle} }

// Serve serves requests until none comes for the idle time, or ctx ends. Workers outlive it.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	return unixframe.Serve(ctx, listener, unixframe.Serving{
		Most: maxConns, Idle: s.idle, Every: reapEvery, Tick: s.reap,
		Accepted: func(conn *net.UnixConn) func() {
			s.starting.RLock()
			return func() { s.serve(ctx, conn, sync.OnceFunc(s.starting.RUnlock)) }
		},
		Fault: func(err error) { // no descriptors left: those who are served give some back
			s.launcher.cfg.Logger.WarnContext(ctx, "a request could not be accepted", slog.Any("err", err))
		},
		Rest: debug.FreeOSMemory, // what requests used goes back to the kernel
		End:  s.launcher.tidy,
	})
}

// serve answers one request. It calls started when the request will start no worker any more.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn, started func()) {
	defer conn.Close() //nolint:errcheck // the answer was sent, or nobody reads it
	defer started()
	var r Request
	a, handle := Answer{V: Version}, []*os.File(nil)
	err := s.peer(conn)
	if err == nil {
		var files []*os.File
		if files, err = unixframe.Read(conn, &r, frameTime); err == nil {
			err = r.check(len(files))
		}
		if err != nil {
			err = api.Errorf(api.CodeInvalid, "launcher: %w", err)
		} else {
			if r.Kind != KindWorker {
				started()
			}
			handle, err = s.do(ctx, conn, &r, files, &a)
		}
		unixframe.CloseAll(files)
	}
	if err != nil {
		var known *api.Error
		if !errors.As(err, &known) {
			known = api.Errorf(api.CodeInternal, "%w", err)
		}
		a = Answer{V: Version, Error: known, Records: a.Records}
		s.launcher.cfg.Logger.WarnContext(ctx, "refused", slog.String("kind", r.Kind), slog.Any("err", err))
	}
	if err := unixframe.Write(conn, a, handle...); err != nil {
		s.launcher.cfg.Logger.WarnContext(ctx, "the answer was not read", slog.String("kind", r.Kind), slog.Any("err", err))
	}
	if r.Kind == KindFind {
		unixframe.CloseAll(handle)
	}
}

// peer refuses any account but the service's.
func (s *Server) peer(conn *net.UnixConn) error {
	cred, err := unixframe.Peer(conn)
	if err == nil && int(cred.Uid) != s.launcher.cfg.UID {
		err = api.Errorf(api.CodeUnauthenticated, "launcher: uid %d is not the account of the service", cred.Uid)
	}
	return err
}

// do does what a request asks for.
func (s *Server) do(ctx context.Context, conn *net.UnixConn, r *Request, files []*os.File, a *Answer) (handle []*os.File, err error) {
	l := s.launcher
	switch r.Kind {
	case KindWorker:
		p, err := l.Worker(ctx, &Attempt{
			Manifest: r.Manifest, Keys: *r.Keys, Sealed: r.Sealed, Approval: r.Approval, Dir: files[0], Control: files[1], Log: files[2],
		})
		return s.started(p, err, a)
	case KindTools:
		p, who, err := l.ToolHost(ctx, *r.Fetch, r.Sealed, files)
		a.Running = []Running{who}
		return s.started(p, err, a)
	case KindFetch:
		ctx, stop := unixframe.WhileConnected(ctx, conn)
		defer stop()
		result, err := l.fetch(ctx, *r.Fetch, "", r.Sealed)
		a.Fetched = &result
		return nil, err
	case KindEnd:
		return nil, l.sys.blocks.end(*r.Attempt)
	case KindFind:
		s.starting.Lock()
		s.starting.Unlock() //nolint:staticcheck // SA2001: those before have ended
		p, err := l.Find(ctx, *r.Attempt)
		if errors.Is(err, ErrNoWorker) {
			return nil, api.Errorf(api.CodeNotFound, "%w", err)
		}
		if err != nil {
			return nil, err
		}
		a.PID = p.PID
		return []*os.File{p.Handle}, nil
	case KindRecords:
		a.Records, err = l.follow(r)
	case KindProbe:
		ctx, stop := unixframe.WhileConnected(ctx, conn)
		defer stop()
		a.Report, a.Lacks, err = l.probe(ctx)
	case KindSecret:
		err = l.sys.check(ctx, *r.Check, r.Sealed)
	case KindList:
		a.Running, err = l.sys.blocks.running()
	}
	return nil, err
}

// started answers with a process, if it started.
func (s *Server) started(p *Process, err error, a *Answer) ([]*os.File, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children = append(s.children, p)
	a.PID, a.Lacks = p.PID, p.Lacks
	return []*os.File{p.Handle}, nil
}

// tidy removes what ended starts left.
func (l *Launcher) tidy() (err error) {
	if l.sys != nil {
		_, err = l.sys.blocks.running()
	}
	return err
}

// follow adds decisions of operators.
func (l *Launcher) follow(r *Request) (uint64, error) {
	service, err := l.sys.marks.pin(r.Keys)
	if err != nil {
		return 0, api.Errorf(api.CodeIntegrity, "%w", err)
	}
	n, err := l.sys.operators.follow(service, r.Records)
	if err != nil && !durable.IsFault(err) {
		err = api.Errorf(api.CodeIntegrity, "%w", err)
	}
	return n, err
}

// reap waits for workers that have exited.
func (s *Server) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.children[:0]
	for _, p := range s.children {
		if exited, err := account.AwaitExit(p.Handle, 0); err == nil && exited {
			_ = p.Wait() // its outcome is in its directory
		} else {
			left = append(left, p)
		}
	}
	clear(s.children[len(left):])
	s.children = left
}
