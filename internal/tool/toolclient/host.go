package toolclient

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const (
	openTime  = 90 * time.Second // for a tool host to start its server
	writeTime = 10 * time.Second // for it to read what is sent to it
	exitTime  = 8 * time.Second  // for it to end its server
	maxReason = 500              // bytes of a reason
)

// Host is a bailiwick-toolhost that runs. It is safe for concurrent use.
type Host struct {
	in, out *os.File
	process Process
	said    *ending
	writing chan struct{} // holds a token while somebody writes
	exited  chan struct{}
	silent  chan struct{} // closed when the last writer to said is done

	records func(ctx context.Context, n uint64) ([][]byte, error) // may be nil
	telling sync.Mutex                                            // one gives records at a time
	told    uint64                                                // how many it was given; guarded by telling

	closing sync.Once
	closed  error // set by closing

	mu       sync.Mutex
	last     int64                           // id of the last request; guarded by mu
	waiting  map[int64]chan record.ToolReply // guarded by mu
	progress map[int64]func(string)          // guarded by mu
	sessions map[int64]*Session              // guarded by mu
	end      *EndedError                     // guarded by mu
}

// Start starts the tool host of a server. The caller must Close it.
func Start(ctx context.Context, cfg Config, s Server) (*Host, error) {
	var pipes []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(pipes...)
			return nil, err
		}
		pipes = append(pipes, r, w)
	}
	theirIn, in, out, theirOut, errs, theirErr := pipes[0], pipes[1], pipes[2], pipes[3], pipes[4], pipes[5]
	defer closeAll(theirIn, theirOut, theirErr)
	h := &Host{
		in: in, out: out, said: &ending{}, records: cfg.Records, writing: make(chan struct{}, 1), exited: make(chan struct{}), silent: make(chan struct{}),
		waiting: map[int64]chan record.ToolReply{}, progress: map[int64]func(string){}, sessions: map[int64]*Session{},
	}
	if cfg.Said != nil {
		h.said.own = func(line string) { cfg.Said(s.Name, line) }
	}
	var err error
	if h.process, err = cfg.Start.Start(ctx, s, theirIn, theirOut, theirErr); err != nil {
		closeAll(in, out, errs)
		return nil, fmt.Errorf("the tool host could not be started: %w", err)
	}
	go func() {
		_, _ = io.Copy(h.said, errs) // ends with the last writer
		_ = errs.Close()
		close(h.silent)
	}()
	go func() { h.process.Wait(); close(h.exited) }()
	go h.read()
	return h, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// read reads replies until the tool host has ended.
func (h *Host) read() {
	in := bufio.NewReaderSize(h.out, 64<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > record.MaxToolReply:
			h.finish(fmt.Sprintf("the tool host sent a line of more than %d bytes", record.MaxToolReply), true)
			return
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			select {
			case <-h.silent: // it has said why
			case <-time.After(time.Second): //nolint:forbidigo // of the kernel's clock
			}
			h.finish("the tool host ended", false)
			return
		}
		var r record.ToolReply
		if err := canon.DecodeExact(line[:len(line)-1], &r); err != nil {
			h.finish("the tool host sent what is no reply: "+err.Error(), true)
			return
		}
		h.receive(&r)
		if line = line[:0]; cap(line) > 64<<10 {
			line = nil
		}
	}
}

func (h *Host) receive(r *record.ToolReply) {
	h.mu.Lock()
	wait, s, progress := h.waiting[r.ID], h.sessions[r.Session], h.progress[r.ID]
	if r.Progress == nil {
		delete(h.waiting, r.ID)
	}
	h.mu.Unlock()
	switch {
	case r.Progress != nil && progress != nil:
		progress(*r.Progress)
	case r.Progress != nil:
	case r.ID != 0:
		if wait != nil { // else the caller stopped waiting
			wait <- *r
		}
	case s != nil && r.Ended != nil:
		var end *EndedError
		if !errors.As(faultError(r.Ended), &end) {
			end = &EndedError{Why: r.Ended.Text}
		}
		s.finish(end)
	case s != nil && r.Changed && s.changed != nil:
		s.changed()
	}
}

// finish ends the host and all its sessions once.
func (h *Host) finish(why string, broke bool) {
	h.mu.Lock()
	if h.end != nil {
		h.mu.Unlock()
		return
	}
	h.end = &EndedError{Why: why, Broke: broke, Said: h.said.String()}
	waiting, sessions := h.waiting, h.sessions
	h.waiting, h.sessions = map[int64]chan record.ToolReply{}, map[int64]*Session{}
	h.mu.Unlock()
	for _, w := range waiting {
		close(w)
	}
	for _, s := range sessions {
		s.finish(h.end)
	}
	_ = h.Close()
}

// Err says why the tool host has ended. It is nil before.
func (h *Host) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		return nil
	}
	return h.end
}

// Close ends the tool host, and its server with it.
func (h *Host) Close() error {
	h.closing.Do(func() {
		closeAll(h.in, h.out) // a server exits sooner once its pipes are closed
		timer := time.NewTimer(exitTime)
		defer timer.Stop()
		select {
		case <-h.exited:
		case <-timer.C:
			h.closed = errors.Join(errors.New("bailiwick-toolhost did not exit, and was killed"), h.process.Kill())
			<-h.exited
		}
	})
	h.finish("the session was closed", false)
	return h.closed
}

// send writes a request as a line. A tool host that does not read for writeTime gets no further request.
func (h *Host) send(ctx context.Context, q record.ToolRequest) error {
	line, err := canon.Marshal(q)
	if err == nil && len(line) >= record.MaxToolRequest {
		err = fmt.Errorf("a request of more than %d bytes", record.MaxToolRequest)
	}
	if err != nil {
		return &UnsentError{err}
	}
	select {
	case h.writing <- struct{}{}:
	case <-ctx.Done():
		return &UnsentError{context.Cause(ctx)}
	case <-h.exited:
		return &UnsentError{errors.New("the tool host ended")}
	}
	defer func() { <-h.writing }()
	err = h.in.SetWriteDeadline(time.Now().Add(writeTime)) //nolint:forbidigo // of the kernel's clock
	if err == nil {
		_, err = h.in.Write(append(line, '\n'))
	}
	if err != nil {
		_ = h.in.Close() // a part of a request may be in the pipe: no other can follow
		return fmt.Errorf("the tool host does not read: %w", err)
	}
	return nil
}

// ask sends a request and returns its reply. The caller's progress is called until then.
func (h *Host) ask(ctx context.Context, q record.ToolRequest, progress func(string)) (record.ToolReply, error) {
	answer := make(chan record.ToolReply, 1)
	h.mu.Lock()
	if h.end != nil {
		h.mu.Unlock()
		return record.ToolReply{}, &UnsentError{h.end}
	}
	h.last++
	q.ID = h.last
	h.waiting[q.ID] = answer
	if progress != nil {
		h.progress[q.ID] = progress
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.waiting, q.ID)
		delete(h.progress, q.ID)
		h.mu.Unlock()
	}()
	if err := h.send(ctx, q); err != nil {
		return record.ToolReply{}, err
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return r, h.end
		case r.Fault != nil:
			return r, faultError(r.Fault)
		}
		return r, nil
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
		defer cancel()
		_ = h.send(stopping, record.ToolRequest{Verb: record.ToolVerbCancel, Of: q.ID})
		return record.ToolReply{}, context.Cause(ctx)
	}
}

// Run runs a declared command.
func (h *Host) Run(ctx context.Context, c Call) (Answer, error) { return h.call(ctx, 0, c) }

func (h *Host) call(ctx context.Context, session int64, c Call) (Answer, error) {
	use := &record.ToolUse{Tool: c.Tool, Arguments: c.Arguments, Progress: c.Progress != nil, Dispatch: c.Dispatch, Approved: c.Approved}
	var r record.ToolReply
	var err error
	for again := true; ; again = false {
		if c.Approved != nil {
			if err := h.tell(ctx); err != nil {
				return Answer{}, &UnsentError{err}
			}
		}
		r, err = h.ask(ctx, record.ToolRequest{Verb: record.ToolVerbCall, Session: session, Call: use}, c.Progress)
		if refused, ok := errors.AsType[*RefusedError](err); !ok || !refused.behind || !again {
			break // else another tool host was given a record meanwhile
		}
	}
	if err == nil && len(r.Answer) == 0 {
		err = &InvalidError{"it is empty", errors.New("the tool host gave no answer")}
	}
	return Answer{r.Answer, r.IsError}, err
}

// maxTold bounds the records of one request, in bytes.
const maxTold = record.MaxToolRequest / 4

// tell gives the tool host the operators' records that it was not given yet.
func (h *Host) tell(ctx context.Context) error {
	if h.records == nil {
		return nil
	}
	h.telling.Lock()
	defer h.telling.Unlock()
	list, err := h.records(ctx, h.told)
	for len(list) > 0 && err == nil {
		n, size := 0, 0
		for n < len(list) && (n == 0 || size+len(list[n]) <= maxTold) {
			size += len(list[n])
			n++
		}
		if _, err = h.ask(ctx, record.ToolRequest{Verb: record.ToolVerbRecords, Records: list[:n]}, nil); err == nil {
			h.told += uint64(n) //nolint:gosec // G115: not negative
			list = list[n:]
		}
	}
	return err
}

func faultError(f *record.ToolFault) error {
	switch err := errors.New(f.Text); f.Kind {
	case record.ToolFaultUnsent:
		return &UnsentError{err}
	case record.ToolFaultCredential:
		return &UnsentError{fmt.Errorf("%w: %w", ErrCredential, err)}
	case record.ToolFaultInvalid:
		return &InvalidError{cuttext.Text(cmp.Or(f.Reason, "the tool host does not say why"), maxReason), err}
	case record.ToolFaultRefused, record.ToolFaultBehind:
		return &RefusedError{cuttext.Text(cmp.Or(f.Reason, "the tool host does not say why"), maxReason), f.Kind == record.ToolFaultBehind}
	case record.ToolFaultEnded, record.ToolFaultBroke:
		return &EndedError{Why: f.Text, Broke: f.Kind == record.ToolFaultBroke, Said: f.Said}
	default:
		return err
	}
}
