package jail

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// The control socket between the owner of a jail and its pid 1: length-prefixed JSON, with descriptors sent along with the
// length. The agent never has it.

const (
	maxMessage = 16 << 20
	maxFiles   = 200 // below the kernel's SCM_MAX_FD of 253
)

type kind string

const (
	kindSetup kind = "setup" // owner: build the jail
	kindRun   kind = "run"   // owner: start a command; carries its stdin, stdout, stderr
	kindKill  kind = "kill"  // owner: signal every process
	kindReady kind = "ready" // init: jail is up; carries the descriptors of handles
	kindFail  kind = "fail"  // init: the request failed
	kindExit  kind = "exit"  // init: the command and all its processes have exited
)

type message struct {
	Kind    kind
	Setup   *setup        `json:",omitempty"`
	Run     *run          `json:",omitempty"`
	Signal  int           `json:",omitempty"`
	Layers  []string      `json:",omitempty"`
	Unset   []string      `json:",omitempty"` // limits of the namespaces that could not be set
	Exit    *Exit         `json:",omitempty"`
	Error   string        `json:",omitempty"`
	Miss    *MissingError `json:",omitempty"`
	Overlay bool          `json:",omitempty"` // the overlay failed: a copy may work
}

// setup is the configuration of init. Descriptors come in the order Lower, Shown (both as root only), the stream of a copy,
// the stream of Home.
type setup struct {
	Root          bool // started as root: own uids, mounts come as descriptors
	Lower         []string
	Shown         []Mount
	Limits        Limits
	MemoryCgroup  bool
	ProcessCgroup bool
	CountSockets  bool // the watchdog counts sockets, so their buffers must have a bound
	Processors    int  // to pin the jail to; 0 for all
	Copy          bool // the workspace arrives as a tar stream
	Home          bool // files of the home directory arrive as a tar stream
	Listen        bool
	Ports         []int
}

type run struct {
	Argv, Env []string
	Dir       string
}

type wire struct {
	fd int
	mu sync.Mutex // serialises send
}

func (w *wire) send(m *message, files ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s message: %w", m.Kind, err)
	}
	if len(body) > maxMessage || len(files) > maxFiles {
		return fmt.Errorf("%s message: %d bytes with %d descriptors is over the limit of %d and %d",
			m.Kind, len(body), len(files), maxMessage, maxFiles)
	}
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body))) //nolint:gosec // bounded by maxMessage above
	for {
		_, err = unix.SendmsgN(w.fd, head, oob, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return err
	}
	for len(body) > 0 {
		n, err := unix.SendmsgN(w.fd, body, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// receive is not safe for concurrent use. io.EOF means that the other end is closed.
func (w *wire) receive() (*message, []int, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	head := make([]byte, 4)
	n, oobn, flags := 0, 0, 0
	for {
		var err error
		n, oobn, flags, _, err = unix.Recvmsg(w.fd, head, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		break
	}
	files, err := rights(oob[:oobn])
	if err == nil && (n != len(head) || flags&unix.MSG_CTRUNC != 0) {
		err = io.EOF
	}
	var body []byte
	if err == nil {
		body, err = w.body(binary.BigEndian.Uint32(head))
	}
	m := new(message)
	if err == nil {
		err = json.Unmarshal(body, m)
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return m, files, nil
}

func (w *wire) body(size uint32) ([]byte, error) {
	if size > maxMessage {
		return nil, fmt.Errorf("control message of %d bytes is over the limit", size)
	}
	body := make([]byte, size)
	for got := 0; got < len(body); {
		n, err := unix.Read(w.fd, body[got:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.EOF
		}
		got += n
	}
	return body, nil
}

func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, got...)
	}
	return files, nil
}

func closeAll(files []int) {
	for _, fd := range files {
		_ = unix.Close(fd)
	}
}
