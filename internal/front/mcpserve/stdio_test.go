package mcpserve

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// again is a client that reuses an id as soon as it reads the answer.
type again struct {
	t     *testing.T
	stdio *stdio
	id    jsonrpc.ID
	read  int
}

func (a *again) Write(b []byte) (int, error) {
	if a.read++; !a.stdio.begin(a.id) {
		a.t.Errorf("answer %d was read, but its id is still in use", a.read)
	}
	return len(b), nil
}

// The id is free before the client can read the answer.
func TestAnAnsweredIDCanBeReused(t *testing.T) {
	id, err := jsonrpc.MakeID("one")
	if err != nil {
		t.Fatal(err)
	}
	client := &again{t: t, id: id}
	client.stdio = newStdio(t.Context(), strings.NewReader(""), client, func(string, error) {})
	if !client.stdio.begin(id) || client.stdio.begin(id) {
		t.Fatal("begin accepts an id twice, or not at all")
	}
	for range 3 {
		if err := client.stdio.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if client.read != 3 {
		t.Errorf("%d answers were read, want 3", client.read)
	}
}

// slow is a client that reads an answer once resumed.
type slow struct {
	bytes.Buffer
	started, resume chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	close(s.started)
	<-s.resume
	return s.Buffer.Write(b)
}

func TestDrainWaitsForAnAnswerBeingWritten(t *testing.T) {
	id, err := jsonrpc.MakeID("one")
	if err != nil {
		t.Fatal(err)
	}
	out := &slow{started: make(chan struct{}), resume: make(chan struct{})}
	s := newStdio(t.Context(), strings.NewReader(""), out, func(string, error) {})
	s.begin(id)
	wrote := make(chan error, 1)
	go func() { wrote <- s.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage("{}")}) }()
	<-out.started
	drained := make(chan struct{})
	go func() {
		s.drain()
		close(drained)
	}()
	select {
	case <-drained:
		t.Error("drain returned before the answer was written")
	default:
	}
	close(out.resume)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	<-drained
	if !strings.Contains(out.String(), `"result":{}`) {
		t.Errorf("answer: %q", out.String())
	}
}
