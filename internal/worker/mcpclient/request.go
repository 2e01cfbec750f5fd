package mcpclient

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync"
)

// request is a request to the server without an answer.
type request struct {
	answer   chan message // of one
	progress func(string)
	lasting  bool // it is answered when the session ends
}

// maxAbandoned bounds how many cancelled requests a server may leave without an answer.
const maxAbandoned = 1024

// requests matches the answers of the server with the requests of a session.
type requests struct {
	mu        sync.Mutex
	last      int64              // id of the last request; guarded by mu
	waiting   map[int64]*request // guarded by mu
	abandoned map[int64]struct{} // cancelled requests without an answer; guarded by mu
}

// enrol adds a request and returns its id.
func (q *requests) enrol(r *request) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	q.waiting[q.last] = r
	return q.last
}

// get returns a request that waits for its answer, or nil.
func (q *requests) get(id int64) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[id]
}

// only returns the id of the request that is out, if it is the only one; else 0.
func (q *requests) only() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := int64(0)
	for id, r := range q.waiting {
		switch {
		case r.lasting:
		case found != 0:
			return 0
		default:
			found = id
		}
	}
	return found
}

var errUnknownRequest = errors.New("an answer to a request that was not made")

// answer passes an answer to the request with the id that the server wrote.
func (q *requests) answer(written json.RawMessage, m message) error {
	id, err := strconv.ParseInt(string(written), 10, 64)
	if err != nil {
		return errUnknownRequest
	}
	return q.deliver(id, m)
}

// deliver passes an answer to the request that waits for it.
func (q *requests) deliver(id int64, m message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r, ok := q.waiting[id]; ok {
		delete(q.waiting, id)
		r.answer <- m
		return nil
	}
	if _, ok := q.abandoned[id]; ok {
		delete(q.abandoned, id)
		return nil
	}
	if id >= 1 && id <= q.last {
		return errors.New("a second answer to one request")
	}
	return errUnknownRequest
}

// fail passes m, which need not be its answer, to a request that waits. Its answer is
// dropped if it comes later.
func (q *requests) fail(id int64, m message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, ok := q.waiting[id]
	if ok {
		delete(q.waiting, id)
		q.abandoned[id] = struct{}{}
		r.answer <- m
	}
	return ok
}

// abandon removes a request, and reports whether it waited. The server may still answer
// one that was sent.
func (q *requests) abandon(id int64, unsent bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waited := q.waiting[id]
	delete(q.waiting, id)
	if waited && !unsent {
		q.abandoned[id] = struct{}{}
	}
	return waited
}

// full reports whether the server left too many cancelled requests without an answer.
func (q *requests) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.abandoned) > maxAbandoned
}
