package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Pipe is a pipe for a program to read a document from once. Its reader waits until Fill, and reads nothing if the caller is
// killed before.
type Pipe struct {
	Reader *os.File
	writer *os.File
	doc    []byte
}

// NewPipe returns a pipe that can hold doc, which Close clears.
func NewPipe(doc []byte) (*Pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &Pipe{r, w, doc}
	if err := grow(w, len(doc)); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// SecretsPipe returns a pipe for the values of secrets, which a worker reads before anything else. Nothing is in it until it is
// filled.
func SecretsPipe(values record.Secrets) (*Pipe, error) {
	if values == nil {
		values = record.Secrets{}
	}
	doc, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	if len(doc) > record.MaxSecrets {
		return nil, fmt.Errorf("the values of the secrets have %d bytes together, the limit is %d", len(doc), record.MaxSecrets)
	}
	return NewPipe(doc)
}

// Fill writes the document, whether or not the program reads it.
func (p *Pipe) Fill() error {
	_, err := p.writer.Write(p.doc)
	return errors.Join(err, p.writer.Close())
}

// Close releases what the caller has of the pipe.
func (p *Pipe) Close() error {
	clear(p.doc)
	_ = p.writer.Close() // Fill may have closed it
	return p.Reader.Close()
}

// FilledPipe returns a pipe that holds doc before the program starts: a caller that is killed leaves no program without it.
func FilledPipe(doc []byte) (*os.File, error) {
	p, err := NewPipe(doc)
	if err != nil {
		return nil, err
	}
	if err := p.Fill(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p.Reader, nil
}

// grow makes a pipe as large as what is written before it is read: more would wait for ever.
func grow(w *os.File, least int) error {
	raw, err := w.SyscallConn()
	if err != nil {
		return err
	}
	size := 0
	ctlErr := raw.Control(func(fd uintptr) {
		if size, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && size < least {
			size, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, least)
		}
	})
	if err = errors.Join(ctlErr, err); err != nil || size < least {
		return fmt.Errorf("a pipe of %d bytes, this account may have %d: %w", least, size, errors.Join(err, unix.ENOSPC))
	}
	return nil
}
