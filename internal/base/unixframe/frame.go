package unixframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// The bounds of a frame.
const (
	Max      = 4 << 20 // bytes of a document
	maxFiles = 4       // descriptors
	// writeTime bounds the transfer of a frame that is sent.
	writeTime = 10 * time.Second
)

// Write sends a document with descriptors.
func Write(c *net.UnixConn, v any, files ...*os.File) error {
	doc, err := canon.Marshal(v)
	if err != nil {
		return err
	}
	if len(doc) > Max || len(files) > maxFiles {
		return fmt.Errorf("a frame of %d bytes and %d descriptors; at most %d and %d are allowed", len(doc), len(files), Max, maxFiles)
	}
	if err := c.SetDeadline(time.Now().Add(writeTime)); err != nil { //nolint:forbidigo // the kernel's clock, for a deadline
		return err
	}
	var fds []int
	for _, f := range files {
		if f == nil {
			return errors.New("frame: a descriptor is missing")
		}
		fds = append(fds, int(f.Fd())) //nolint:gosec // G115: a descriptor
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(doc))) //nolint:gosec // G115: at most Max
	if _, _, err := c.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = c.Write(doc)
	return err
}

// Read reads a document into v, and returns the descriptors, which the caller closes. It
// waits no longer than within; 0: as long as it takes.
func Read(c *net.UnixConn, v any, within time.Duration) (files []*os.File, err error) {
	end := time.Time{}
	if within > 0 {
		end = time.Now().Add(within) //nolint:forbidigo // the kernel's clock, for a deadline
	}
	if err := c.SetDeadline(end); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			CloseAll(files)
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
	case size == 0 || size > Max:
		return files, fmt.Errorf("frame: %d bytes, want 1 to %d", size, Max)
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

// CloseAll closes descriptors.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
