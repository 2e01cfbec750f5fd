package webpage

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/webpage/logview"
)

const (
	logRows  = 500       // of a page, and of a window that the script asks for
	logBytes = 128 << 20 // that all kept logs take together
)

// logCache keeps the logs that were read last.
type logCache struct {
	mu   sync.Mutex
	list []*keptLog // newest last; guarded by mu
}

// keptLog is the part of an attempt's log that was read.
type keptLog struct {
	reader   api.Principal // on the page of a team: an id means what it means to its reader
	dispatch api.DispatchID
	attempt  int

	mu     sync.Mutex
	log    logview.Log // guarded by mu
	pieces int         // requests that it was read with; guarded by mu
	size   int         // guarded by mu of the cache
}

// of returns the entry of an attempt, and forgets the oldest logs if they take too much.
func (c *logCache) of(reader api.Principal, id api.DispatchID, attempt int) *keptLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.list, func(k *keptLog) bool { return k.reader == reader && k.dispatch == id && k.attempt == attempt })
	k := &keptLog{reader: reader, dispatch: id, attempt: attempt}
	if at >= 0 {
		k = c.list[at]
		c.list = slices.Delete(c.list, at, at+1)
	}
	c.list = append(c.list, k)
	total := 0
	for i, kept := range slices.Backward(c.list) {
		if total += kept.size; total > logBytes && kept != k {
			c.list = slices.Delete(c.list, 0, i+1)
			break
		}
	}
	return k
}

// with reads what is new of a log, and passes it to see. Numbers of lines are final with
// the end of the attempt: then a log that was read in pieces, between which bytes may
// have been dropped or redacted, is read again.
func (c *logCache) with(ctx context.Context, r client.Runtime, d *api.Dispatch, see func(*logview.Log)) error {
	var reader api.Principal
	if p := personOf(ctx); p != nil {
		reader = p.who.Principal
	}
	k := c.of(reader, d.ID, d.Attempt)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.log.Ended() {
		see(&k.log)
		return nil
	}
	read := func() error {
		k.pieces++
		return r.Log(ctx, d.ID, client.LogFrom{Attempt: d.Attempt, Offset: k.log.Next()}, func(chunk api.Chunk) error {
			k.log.Append(chunk)
			return nil
		})
	}
	err := read()
	if err == nil && k.log.Ended() && k.pieces > 1 {
		k.log = logview.Log{}
		if err = read(); err != nil {
			k.log = logview.Log{}
		}
	}
	size := k.log.Size()
	c.mu.Lock()
	k.size = size
	c.mu.Unlock()
	if err == nil {
		see(&k.log)
	}
	return err
}

// logPage is a page of a log.
type logPage struct {
	api.Dispatch
	Lines, Total   int
	From, To       int
	Rows           []logview.Line
	Ended          bool
	Dropped        int64
	First, Last    string
	Previous, Next string
	Raw            string
	Query          string
	Hits           []hit
	MoreHits       string // further ones
}

// hit is a line that a search found.
type hit struct {
	logview.Line

	Link string
}

// logOf shows a page of the log of an attempt, and what a search finds in all of it.
func (s *dispatchPages) logOf(r *http.Request) (*view, error) {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	q := given(r)
	from, err := number(q, "from", 1, 1, 1<<30)
	if err != nil {
		return nil, err
	}
	after, err := number(q, "after", 1, 1, 1<<30)
	if err != nil {
		return nil, err
	}
	p := &logPage{Dispatch: d, From: from, Query: q.Get("find"), Raw: rawLog(r)}
	if len(p.Query) > logview.MaxQuery {
		return nil, api.Errorf(api.CodeInvalid, "find: at most %d bytes", logview.MaxQuery)
	}
	err = s.logs.with(r.Context(), s.runtime(r.Context()), &d, func(l *logview.Log) {
		p.Total, p.Ended, p.Dropped = l.Lines(), l.Ended(), l.Dropped()
		p.Rows = l.Window(from, logRows)
		if p.Query == "" {
			return
		}
		hits := l.Find(p.Query, after)
		for _, n := range hits.Numbers {
			p.Hits = append(p.Hits, hit{l.Window(n, 1)[0], linkWith(r, "from", pageFrom(n)) + "#L" + decimal(n)})
		}
		if hits.Next > 0 {
			p.MoreHits = linkWith(r, "after", decimal(hits.Next))
		}
	})
	if err != nil {
		return nil, err
	}
	if p.To = from + len(p.Rows) - 1; p.To < p.Total {
		p.Next, p.Last = linkWith(r, "from", decimal(p.To+1)), linkWith(r, "from", pageFrom(p.Total))+"#L"+decimal(p.Total)
	}
	if from > 1 {
		p.Previous, p.First = linkWith(r, "from", decimal(max(1, from-logRows))), linkWith(r, "from", "")
	}
	return &view{"logview", "Log of " + string(d.ID), p}, nil
}

// pageFrom is the first line of the page that has a line.
func pageFrom(n int) string { return decimal(1 + (n-1)/logRows*logRows) }

// rawLog is the address of the raw log of what a request shows.
func rawLog(r *http.Request) string {
	address := "/dispatches/" + r.PathValue("id") + "/log/raw"
	if attempt := r.URL.Query().Get("attempt"); attempt != "" {
		address += "?attempt=" + attempt // a number: dispatchOf has read it
	}
	return address
}

// logLines answers with lines as JSON, for the script.
func (s *dispatchPages) logLines(w http.ResponseWriter, r *http.Request) error {
	d, _, err := s.dispatchOf(r)
	from := 0
	if err == nil {
		from, err = number(r.URL.Query(), "from", 1, 1, 1<<30)
	}
	var answer struct {
		Total int            `json:"total"`
		Ended bool           `json:"ended"`
		Lines []logview.Line `json:"lines"`
	}
	if err == nil {
		err = s.logs.with(r.Context(), s.runtime(r.Context()), &d, func(l *logview.Log) {
			answer.Total, answer.Ended, answer.Lines = l.Lines(), l.Ended(), l.Window(from, logRows)
		})
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(answer) // an error: the browser has left
	return nil
}

// rawLogOf downloads the exact bytes that were kept.
func (s *dispatchPages) rawLogOf(w http.ResponseWriter, r *http.Request) error {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return err
	}
	return attachment(w, r, string(d.ID)+".log", func(ctx context.Context, to io.Writer) error {
		return s.runtime(r.Context()).Log(ctx, d.ID, client.LogFrom{Attempt: d.Attempt}, func(c api.Chunk) error {
			_, err := to.Write(c.Data)
			return err
		})
	})
}
