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

// maxSaid bounds what is kept of standard error, in bytes.
const maxSaid = 8 << 10

// Plain starts tool hosts in the account of its caller.
type Plain struct {
	Program string   // path of bailiwick-toolhost
	Env     []string // its environment; the jail gets none of it
	// Killed is called after a bailiwick-toolhost was killed: its jail left control
	// groups. nil: they stay until the next jail starts.
	Killed func()
	// Gate returns what a tool host verifies the server of a revision and approvals with. nil:
	// no call that people approve is made.
	Gate func(server api.Name, revision api.Digest) (*record.ToolGate, error)
}

type plainProcess struct {
	cmd    *exec.Cmd
	killed func()
}

func (p *plainProcess) Wait() {
	_ = p.cmd.Wait() // its last words say why
	if p.killed != nil && !p.cmd.ProcessState.Exited() {
		p.killed()
	}
}

func (p *plainProcess) Kill() error { return p.cmd.Process.Kill() }

// Start implements Starter.
func (p Plain) Start(ctx context.Context, s Server, in, out, errs *os.File) (Process, error) {
	doc := record.ToolStart{Server: s.ToolServer}
	if s.Secrets != nil {
		var err error
		if doc.Secrets, err = s.Secrets(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range s.SecretNames() {
		if _, ok := doc.Secrets[name]; !ok {
			return nil, fmt.Errorf("secret %q has no value", name)
		}
	}
	for _, f := range s.Files {
		doc.Files = append(doc.Files, f.File)
	}
	if p.Gate != nil && s.Revision != "" {
		var err error
		if doc.Gate, err = p.Gate(s.Name, s.Revision); err != nil {
			return nil, err
		}
		s.Files = nil // it reads them from the catalog
	}
	line, err := json.Marshal(doc) //nolint:gosec // G117: for the pipe to the process
	if err != nil {
		return nil, err
	}
	if len(line) > record.MaxToolStart {
		return nil, fmt.Errorf("its document has %d bytes with the values of its secrets, the limit is %d", len(line), record.MaxToolStart)
	}
	theirs, start, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer start.Close()            //nolint:errcheck // what it has is read
	cmd := exec.Command(p.Program) //nolint:gosec,noctx // G204: our own program; Close of its host ends it
	cmd.Env, cmd.Dir = append([]string{}, p.Env...), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = in, out, errs, []*os.File{theirs}
	cmd.SysProcAttr = detached()
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Program, err)
	}
	process := &plainProcess{cmd, p.Killed}
	if err := handOver(ctx, start, append(line, '\n'), s.Files); err != nil {
		_ = process.Kill()
		process.Wait()
		return nil, err
	}
	return process, nil
}

// handOver writes the document and the files.
func handOver(ctx context.Context, to *os.File, line []byte, files []File) error {
	stop := context.AfterFunc(ctx, func() { _ = to.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := to.Write(line); err != nil {
		return err
	}
	for _, f := range files {
		if err := copyFile(to, f); err != nil {
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
