package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

const (
	// frameTime bounds the transfer of a request.
	frameTime = 10 * time.Second
	// Version is that of requests and answers. A connection has one of each, as frames.
	Version = 1
)

// The kinds of requests.
const (
	KindWorker  = "worker"  // starts the worker of an attempt; files: directory, control socket, log
	KindFetch   = "fetch"   // fetches a source of the signed catalog
	KindEnd     = "end"     // kills what is left of an attempt, and frees its uid block
	KindFind    = "find"    // the worker of an attempt, if it runs; else nothing of the attempt does
	KindList    = "list"    // names the attempts that run
	KindRecords = "records" // adds decisions of operators
	KindTools   = "tools"   // starts the tool host of a server, a source's place in Fetch; files: its streams
	KindProbe   = "probe"   // tries a jail as a worker has it
	KindSecret  = "secret"  // whether a worker could have a value
)

// Request is what a service asks its launcher for.
type Request struct {
	V        int                 `json:"v"`
	Kind     string              `json:"kind"`
	Manifest []byte              `json:"manifest,omitempty"` // KindWorker
	Keys     *seal.History       `json:"keys,omitempty"`     // likewise, and KindRecords
	Approval []byte              `json:"approval,omitempty"` // likewise
	Sealed   map[api.Name][]byte `json:"sealed,omitempty"`   // KindWorker, KindFetch, KindTools, KindSecret
	Fetch    *Order              `json:"fetch,omitempty"`
	Attempt  *Running            `json:"attempt,omitempty"` // KindEnd, KindFind
	Records  [][]byte            `json:"records,omitempty"`
	Check    *SecretCheck        `json:"check,omitempty"` // KindSecret
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
	PID     int                 `json:"pid,omitempty"` // KindWorker, KindFind, KindTools; with a pidfd
	Lacks   []string            `json:"lacks,omitempty"`
	Fetched *record.FetchResult `json:"fetched,omitempty"`
	Running []Running           `json:"running,omitempty"`
	Report  []byte              `json:"report,omitempty"`  // KindProbe, as the worker wrote it; with Lacks
	Records uint64              `json:"records,omitempty"` // how many decisions it has
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
		only.Manifest, only.Keys, only.Approval, only.Sealed, want = r.Manifest, r.Keys, r.Approval, r.Sealed, 3
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
	case KindEnd, KindFind:
		only.Attempt = r.Attempt
		if r.Attempt == nil {
			return errors.New("request: names no attempt")
		}
	case KindRecords:
		only.Records, only.Keys = r.Records, r.Keys
		if r.Keys == nil {
			return errors.New("request: records without the keys of their service")
		}
	case KindSecret:
		only.Check, only.Sealed = r.Check, r.Sealed
		if r.Check == nil {
			return errors.New("request: names no secret")
		}
	case KindList, KindProbe:
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
