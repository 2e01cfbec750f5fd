package toolclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const (
	writeTime = 10 * time.Second // for a server to read what is sent to it
	exitTime  = 8 * time.Second  // for bailiwick-toolhost to end its server
	maxSaid   = 8 << 10          // of standard error
)

// process is a bailiwick-toolhost, whose standard streams are those of a server.
type process struct {
	in, out *os.File
	said    *ending
	exited  chan struct{}
	cmd     *exec.Cmd
	writing chan struct{} // holds a token while somebody writes
}

// start starts the program of a server, with input for a declared command.
func start(ctx context.Context, cfg Config, s Server, input json.RawMessage) (*process, error) {
	doc := record.ToolStart{Server: s.Name, Host: hostOf(s.ToolServer), Secrets: record.Secrets{}, Input: input}
	switch {
	case s.Stdio != nil:
		doc.Command = s.Stdio.Command
	case s.Run != nil:
		doc.Command = s.Run.Command
	}
	for _, n := range doc.Host.Secrets {
		value, ok := s.Secrets[n]
		if !ok {
			return nil, fmt.Errorf("secret %q has no value", n)
		}
		doc.Secrets[n] = value
	}
	for _, f := range s.Files {
		doc.Files = append(doc.Files, f.File)
	}
	line, err := json.Marshal(doc) //nolint:gosec // G117: for the pipe to the process
	if err != nil {
		return nil, err
	}
	if len(line) > record.MaxToolStart {
		return nil, fmt.Errorf("its document has %d bytes with the values of its secrets, the limit is %d", len(line), record.MaxToolStart)
	}
	var own func(string)
	if cfg.Said != nil {
		own = func(line string) { cfg.Said(s.Name, line) }
	}
	p, err := run(cfg, own)
	if err != nil {
		return nil, err
	}
	if err := p.handOver(ctx, append(line, '\n'), s.Files); err != nil {
		said, _ := p.close()
		return nil, &EndedError{Why: "the server could not be started: " + err.Error(), Said: said}
	}
	return p, nil
}

func run(cfg Config, own func(string)) (*process, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close() //nolint:errcheck // the process has its own copy
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close() //nolint:errcheck // the process has its own copy
	p := &process{in: in, out: out, said: &ending{own: own}, exited: make(chan struct{}), writing: make(chan struct{}, 1)}
	p.cmd = exec.Command(cfg.Program) //nolint:gosec,noctx // G204: our own program; close ends it
	p.cmd.Env, p.cmd.Dir, p.cmd.WaitDelay = append([]string{}, cfg.Env...), "/", time.Second
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirIn, theirOut, p.said
	p.cmd.SysProcAttr = detached()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cfg.Program, err), in.Close(), out.Close())
	}
	go func() {
		_ = p.cmd.Wait() // its last words say why
		close(p.exited)
		if cfg.Killed != nil && !p.cmd.ProcessState.Exited() {
			cfg.Killed()
		}
	}()
	return p, nil
}

// handOver writes the document and the files. Nobody else writes yet.
func (p *process) handOver(ctx context.Context, line []byte, files []File) error {
	stop := context.AfterFunc(ctx, func() { _ = p.in.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := p.in.Write(line); err != nil {
		return err
	}
	for _, f := range files {
		if err := copyFile(p.in, f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return context.Cause(ctx)
}

func copyFile(w io.Writer, f File) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(r, f.Size+1))
	if err == nil && n != f.Size {
		err = fmt.Errorf("it has not %d bytes", f.Size)
	}
	return errors.Join(err, r.Close())
}

// send writes a message as a line. A server that does not read for writeTime is gone.
func (p *process) send(ctx context.Context, m outgoing) error {
	select {
	case p.writing <- struct{}{}:
	case <-ctx.Done():
		return &UnsentError{context.Cause(ctx)}
	case <-p.exited:
		return &UnsentError{errors.New("the server ended")}
	}
	defer func() { <-p.writing }()
	err := p.in.SetWriteDeadline(time.Now().Add(writeTime)) //nolint:forbidigo // of the kernel's clock
	if err == nil {
		_, err = p.in.Write(append(m.text, '\n'))
	}
	if err != nil {
		_ = p.in.Close() // a part of a message may be in the pipe: no other can follow
		return fmt.Errorf("the server does not read: %w", err)
	}
	return nil
}

func (p *process) agreed(string) {}

func (p *process) listen() {} // it has one stream for everything

// close ends the process, and the server with it.
func (p *process) close() (said string, err error) {
	_, _ = p.in.Close(), p.out.Close() // a server that writes to nobody ends sooner
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		err = errors.Join(errors.New("bailiwick-toolhost did not exit, and was killed"), p.cmd.Process.Kill())
		<-p.exited
	}
	return p.said.String(), err
}

// ending keeps the end of what is written to it, and passes on the lines of
// bailiwick-toolhost itself.
type ending struct {
	own func(line string) // nil: none

	mu   sync.Mutex
	text []byte // guarded by mu
	part []byte // of a line; guarded by mu
}

func (e *ending) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for rest := b; len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		e.part = append(e.part, line[:min(len(line), max(0, maxSaid-len(e.part)))]...)
		if whole {
			e.line()
		}
		rest = more
	}
	return len(b), nil
}

// line takes a whole line. The caller holds mu.
func (e *ending) line() {
	text := strings.ToValidUTF8(string(e.part), "")
	e.part = e.part[:0]
	line, own := strings.CutPrefix(text, record.ToolOwnLine)
	text = strings.TrimPrefix(text, record.ToolServerLine)
	e.text = append(append(e.text, text...), '\n')
	e.text = e.text[max(0, len(e.text)-maxSaid):]
	if own && e.own != nil {
		e.own(line)
	}
}

func (e *ending) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(e.text), ""))
}

// words is what the server itself wrote at the end.
func (e *ending) words() string {
	var own []string
	for line := range strings.Lines(e.String()) {
		if !strings.HasPrefix(line, record.ToolOwnLine) {
			own = append(own, line)
		}
	}
	return strings.Join(own, "")
}

// CommandError says that a declared command failed.
type CommandError struct {
	Code int
	Said string // the end of its standard error; secrets are redacted
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("the command failed with exit status %d", e.Code)
}

// Run runs a declared command once, with arguments as its input, and returns its
// output of at most api.MaxToolAnswer bytes. The error is a *CommandError if the command
// ran and failed.
func Run(ctx context.Context, cfg Config, s Server, arguments json.RawMessage) ([]byte, error) {
	cfg = cfg.withDefaults()
	p, err := start(ctx, cfg, s, arguments)
	if err != nil {
		return nil, err
	}
	type output struct {
		text []byte
		err  error
	}
	done := make(chan output, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(p.out, api.MaxToolAnswer+1))
		done <- output{text, err}
	}()
	var got output
	select {
	case got = <-done:
	case <-ctx.Done():
		_, err := p.close()
		return nil, errors.Join(context.Cause(ctx), err)
	}
	if len(got.text) <= api.MaxToolAnswer {
		select {
		case <-p.exited:
		case <-ctx.Done():
		}
	}
	said, err := p.close()
	code := p.cmd.ProcessState.ExitCode()
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), err)
	case len(got.text) > api.MaxToolAnswer:
		return nil, &EndedError{Why: fmt.Sprintf("the command wrote more than %d bytes", api.MaxToolAnswer), Broke: true}
	case code == record.ToolHostFailed || code < 0:
		return nil, &EndedError{Why: "the command could not be run", Said: said}
	case code != 0:
		return nil, &CommandError{code, p.said.words()}
	}
	return got.text, errors.Join(got.err, err)
}
