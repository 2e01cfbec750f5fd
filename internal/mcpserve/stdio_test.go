package mcpserve

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// again is a client that calls with the same id as soon as it reads an answer.
type again struct {
	t     *testing.T
	stdio *stdio
	id    jsonrpc.ID
	read  int
}

func (a *again) Write(b []byte) (int, error) {
	if a.read++; !a.stdio.begin(a.id) {
		a.t.Errorf("answer %d was read, and its place is still taken", a.read)
	}
	return len(b), nil
}

// Who has read the answer of a call can call again, with the same id, too: the
// place is free before the answer can be read.
func TestAnAnsweredCallIsOver(t *testing.T) {
	id, err := jsonrpc.MakeID("one")
	if err != nil {
		t.Fatal(err)
	}
	client := &again{t: t, id: id}
	client.stdio = newStdio(t.Context(), strings.NewReader(""), client, func(string, error) {})
	if !client.stdio.begin(id) || client.stdio.begin(id) {
		t.Fatal("one place for one id is wanted")
	}
	for range 3 {
		if err := client.stdio.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if client.read != 3 {
		t.Errorf("%d answers were read", client.read)
	}
}

// slow takes its time to read an answer.
type slow struct {
	bytes.Buffer
	begun, goOn chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	close(s.begun)
	<-s.goOn
	return s.Buffer.Write(b)
}

// What is being answered when the input ends is answered.
func TestTheEndWaitsForAnAnswerThatIsBeingWritten(t *testing.T) {
	id, err := jsonrpc.MakeID("one")
	if err != nil {
		t.Fatal(err)
	}
	out := &slow{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := newStdio(t.Context(), strings.NewReader(""), out, func(string, error) {})
	s.begin(id)
	wrote := make(chan error, 1)
	go func() { wrote <- s.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}) }()
	<-out.begun
	drained := make(chan struct{})
	go func() {
		s.drain()
		close(drained)
	}()
	select {
	case <-drained:
		t.Error("it ended before the answer")
	default:
	}
	close(out.goOn)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	<-drained
	if !strings.Contains(out.String(), `"result":{}`) {
		t.Errorf("it answered %q", out.String())
	}
}
