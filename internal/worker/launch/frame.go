package launch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// A connection to the launcher has one request and one answer. Each is a frame: the length of
// a document in four bytes, which carry the descriptors, and then the canonical JSON of the
// document. A frame that is anything else is refused whole.
const (
	MaxFrame = 4 << 20 // bytes of a document
	maxFiles = 4       // descriptors of a frame
	// frameTime bounds the transfer of a frame.
	frameTime = 10 * time.Second
	// Version is that of requests and answers.
	Version = 1
)

// The kinds of requests.
const (
	KindWorker  = "worker"  // starts the worker of an attempt; files: directory, control socket, lock, log
	KindFetch   = "fetch"   // fetches a source of the signed catalog
	KindEnd     = "end"     // kills what is left of an attempt, and frees its uid block
	KindList    = "list"    // names the attempts that run
	KindRecords = "records" // adds decisions of operators
	KindTools   = "tools"   // starts the tool host of a server, a source's place in Fetch; files: its streams
)

// Request is what a service asks its launcher for.
type Request struct {
	V        int                 `json:"v"`
	Kind     string              `json:"kind"`
	Manifest []byte              `json:"manifest,omitempty"` // KindWorker
	Keys     *seal.History       `json:"keys,omitempty"`     // likewise, and KindRecords
	Approval []byte              `json:"approval,omitempty"` // likewise
	Sealed   map[api.Name][]byte `json:"sealed,omitempty"`   // KindWorker, KindFetch
	Fetch    *Order              `json:"fetch,omitempty"`
	End      *Running            `json:"end,omitempty"`
	Records  [][]byte            `json:"records,omitempty"`
}

// Running is an attempt that the launcher started and that has processes left.
type Running struct {
	Dispatch api.DispatchID `json:"dispatch"`
	Attempt  int            `json:"attempt"`
}

// Order asks for a commit of a source of the signed catalog.
type Order struct {
	Revision api.Digest `json:"revision"`
	Source   api.Name   `json:"source"`
	Commit   string     `json:"commit,omitempty"` // as in record.FetchRequest
}

// Answer is what the launcher answers.
type Answer struct {
	V       int                 `json:"v"`
	Error   *api.Error          `json:"error,omitempty"`
	PID     int                 `json:"pid,omitempty"` // KindWorker, with a pidfd
	Lacks   []string            `json:"lacks,omitempty"`
	Fetched *record.FetchResult `json:"fetched,omitempty"`
	Running []Running           `json:"running,omitempty"`
	Records uint64              `json:"records,omitempty"` // how many decisions it has
}

// WriteFrame sends a document with descriptors.
func WriteFrame(c *net.UnixConn, v any, files ...*os.File) error {
	doc, err := canon.Marshal(v)
	if err != nil {
		return err
	}
	if len(doc) > MaxFrame || len(files) > maxFiles {
		return fmt.Errorf("launcher: a frame of %d bytes and %d descriptors; at most %d and %d are allowed", len(doc), len(files), MaxFrame, maxFiles)
	}
	if err := c.SetDeadline(time.Now().Add(frameTime)); err != nil { //nolint:forbidigo // the kernel's clock, for a deadline
		return err
	}
	var fds []int
	for _, f := range files {
		if f == nil {
			return errors.New("launcher: a descriptor is missing")
		}
		fds = append(fds, int(f.Fd())) //nolint:gosec // G115: a descriptor
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(doc))) //nolint:gosec // G115: at most MaxFrame
	if _, _, err := c.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = c.Write(doc)
	return err
}

// ReadFrame reads a document into v, and returns the descriptors, which the caller closes. It
// waits no longer than within; 0: as long as it takes.
func ReadFrame(c *net.UnixConn, v any, within time.Duration) (files []*os.File, err error) {
	end := time.Time{}
	if within > 0 {
		end = time.Now().Add(within) //nolint:forbidigo // the kernel's clock, for a deadline
	}
	if err := c.SetDeadline(end); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	head, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oob, flags, _, err := c.ReadMsgUnix(head, rights)
	if err != nil {
		return nil, err
	}
	if files, err = filesOf(rights[:oob]); err != nil {
		return files, err
	}
	size := binary.BigEndian.Uint32(head)
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		return files, fmt.Errorf("frame: more than %d descriptors", maxFiles)
	case n != len(head):
		return files, errors.New("frame: it has no length")
	case size == 0 || size > MaxFrame:
		return files, fmt.Errorf("frame: %d bytes, want 1 to %d", size, MaxFrame)
	}
	var doc bytes.Buffer // grows with what was sent, whatever the length says
	if _, err := io.CopyN(&doc, c, int64(size)); err != nil {
		return files, fmt.Errorf("frame: %w", err)
	}
	if err := canon.DecodeExact(doc.Bytes(), v); err != nil {
		return files, fmt.Errorf("frame: %w", err)
	}
	return files, nil
}

func filesOf(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, fmt.Errorf("frame: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "descriptor "+fmt.Sprint(len(files)))) //nolint:gosec // G115: a descriptor
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// check refuses a request with members or descriptors that its kind has not.
func (r *Request) check(files int) error {
	if err := canon.Format(r.V, Version); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	only := Request{V: r.V, Kind: r.Kind}
	want := 0
	switch r.Kind {
	case KindWorker:
		only.Manifest, only.Keys, only.Approval, only.Sealed, want = r.Manifest, r.Keys, r.Approval, r.Sealed, 4
		if r.Keys == nil {
			return errors.New("request: a worker without the keys of its service")
		}
	case KindFetch, KindTools:
		only.Fetch, only.Sealed = r.Fetch, r.Sealed
		if r.Kind == KindTools {
			want = 3
		}
		if r.Fetch == nil {
			return errors.New("request: names no source or tool server")
		}
	case KindEnd:
		only.End = r.End
		if r.End == nil {
			return errors.New("request: names no attempt")
		}
	case KindRecords:
		only.Records, only.Keys = r.Records, r.Keys
		if r.Keys == nil {
			return errors.New("request: records without the keys of their service")
		}
	case KindList:
	default:
		return fmt.Errorf("request: unknown kind %.40q", r.Kind)
	}
	if files != want {
		return fmt.Errorf("request: %d descriptors, a %s has %d", files, r.Kind, want)
	}
	a, errA := json.Marshal(only)
	b, errB := json.Marshal(r)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		return errors.Join(fmt.Errorf("request: members that a %s has not", r.Kind), errA, errB)
	}
	return nil
}
