package orchestrator_test

import (
	"database/sql"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bareLoop is what the engine is measured against: SQLite as the store has it
// (WAL, synchronous FULL), one writer that takes all that has arrived into one
// commit, and nothing else: no savepoints, no locks, no log, no effects.
type bareLoop struct {
	tb    testing.TB
	db    *sql.DB
	write *sql.Stmt
	queue chan bareJob
	ended chan struct{}
	next  atomic.Int64
}

type bareJob struct {
	id     int64
	states []string // one row write each
	done   chan struct{}
}

func newBareLoop(tb testing.TB) *bareLoop {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(tb.TempDir(), "bare.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	l := &bareLoop{tb: tb, db: db, queue: make(chan bareJob, 512), ended: make(chan struct{})}
	if _, err := db.Exec("CREATE TABLE step (id INTEGER PRIMARY KEY, state TEXT NOT NULL, doc TEXT NOT NULL) STRICT"); err != nil {
		tb.Fatal(err)
	}
	if l.write, err = db.Prepare("INSERT INTO step VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state, doc = excluded.doc"); err != nil {
		tb.Fatal(err)
	}
	go l.run()
	return l
}

func (l *bareLoop) close() {
	close(l.queue)
	<-l.ended
	_ = l.write.Close()
	_ = l.db.Close()
}

func (l *bareLoop) run() {
	defer close(l.ended)
	for j := range l.queue {
		group := []bareJob{j}
		for more := true; more && len(group) < cap(l.queue); {
			select {
			case j, ok := <-l.queue:
				if more = ok; ok {
					group = append(group, j)
				}
			default:
				more = false
			}
		}
		l.commit(group)
		for _, j := range group {
			close(j.done)
		}
	}
}

const bareDoc = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

func (l *bareLoop) commit(group []bareJob) {
	tx, err := l.db.Begin()
	if err != nil {
		l.tb.Error(err)
		return
	}
	st := tx.Stmt(l.write)
	defer func() { _ = st.Close() }()
	for _, j := range group {
		for i, state := range j.states {
			if _, err := st.Exec(j.id+int64(i), state, bareDoc); err != nil {
				l.tb.Error(err)
			}
		}
	}
	if err := tx.Commit(); err != nil {
		l.tb.Error(err)
	}
}

func (l *bareLoop) do(id int64, states ...string) {
	j := bareJob{id, states, make(chan struct{})}
	l.queue <- j
	<-j.done
}

func (l *bareLoop) time(fn func()) float64 {
	start := time.Now()
	fn()
	return time.Since(start).Seconds()
}

// wide stores n steps, so many of them at once.
func (l *bareLoop) wide(n, atOnce int) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range min(atOnce, n) {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				id := l.next.Add(1) * 2
				l.do(id, "running")
				l.do(id, "done")
			}
		})
	}
	wg.Wait()
}

// chain stores n steps; each starts in the commit that ends the one
// before it.
func (l *bareLoop) chain(n int) {
	id := l.next.Add(int64(n)+1) * 2
	l.do(id, "running")
	for i := range n {
		l.do(id+int64(i), "done", "running")
	}
}

// same stores n steps with one row each, in so many commits.
func (l *bareLoop) same(commits, n int) {
	id := l.next.Add(int64(n)) * 2
	for i := range commits {
		rows := n*(i+1)/commits - n*i/commits
		states := make([]string, rows)
		for r := range states {
			states[r] = "done"
		}
		l.do(id, states...)
		id += int64(rows)
	}
}
