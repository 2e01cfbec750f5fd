package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// helloTime is how long a worker may take to make a connection one for tools.
const helloTime = 10 * time.Second

var errSilent = errors.New("it does not answer")

// Tools opens a connection for the tools of the agent: unencrypted HTTP/2, whose client
// is the worker. It says which attempt calls, because only its worker accepts here.
func (w *Worker) Tools(ctx context.Context) (net.Conn, error) {
	conn, err := dial(ctx, w.dir)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, helloTime, errSilent)
	defer cancel()
	stop := context.AfterFunc(waiting, func() { _ = conn.Close() })
	in, err := hello(conn)
	if !stop() {
		err = context.Cause(waiting)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the worker opens no connection for tools: %w", err), conn.Close())
	}
	return &toolConn{conn, in}, nil
}

// hello makes conn a connection for tools. The reader has what was read too much.
func hello(conn net.Conn) (*bufio.Reader, error) {
	line, err := json.Marshal(record.ServiceMessage{Tools: true})
	if err == nil {
		_, err = conn.Write(append(line, '\n'))
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	for m := (record.WorkerMessage{}); err == nil && m.Event != "tools"; {
		if line, err = in.ReadSlice('\n'); err == nil {
			m = record.WorkerMessage{}
			err = canon.Decode(line, &m)
		}
	}
	return in, err
}

// toolConn is a connection whose beginning was read.
type toolConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *toolConn) Read(p []byte) (int, error) { return c.in.Read(p) }
