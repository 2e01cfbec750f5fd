package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// benchDir returns a temporary directory, which must not be on a tmpfs.
func benchDir(b *testing.B) string {
	b.Helper()
	return b.TempDir()
}

// measure runs op from several goroutines, reports rate and latency, and returns
// the rate.
func measure(b *testing.B, writers int, op func(i int64)) float64 {
	var mu sync.Mutex
	var all []time.Duration
	var next atomic.Int64
	var wg sync.WaitGroup
	n := int64(b.N)
	b.ResetTimer()
	start := time.Now()
	for range writers {
		wg.Go(func() {
			own := make([]time.Duration, 0, b.N/writers+1)
			for {
				i := next.Add(1) - 1
				if i >= n {
					break
				}
				t := time.Now()
				op(i)
				own = append(own, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	took := time.Since(start)
	b.StopTimer()
	slices.Sort(all)
	b.ReportMetric(float64(n)/took.Seconds(), "commits/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	return float64(n) / took.Seconds()
}

// BenchmarkLedger compares commits with the raw disk in the same run: x-raw is the
// ratio to append and fsync by one writer, x-aim the ratio to the aim (met at 1 or
// more). The aims are: one writer within 1.5 times a bare commit, 8,000 commits a
// second by 16 writers, 20,000 by 256.
func BenchmarkLedger(b *testing.B) {
	var raw, bare float64 // commits a second of the last round
	beside := func(b *testing.B, rate, aim float64) {
		if raw > 0 {
			b.ReportMetric(rate/raw, "x-raw")
		}
		if aim > 0 {
			b.ReportMetric(rate/aim, "x-aim")
		}
	}
	b.Run("raw-append-fsync-1KiB", func(b *testing.B) { raw = benchRaw(b) })
	b.Run("bare-sqlite-full", func(b *testing.B) { bare = benchBare(b); beside(b, bare, 0) })
	b.Run("bare-sqlite-full-same-rows", func(b *testing.B) { beside(b, benchSameRows(b), 0) })
	for i, aim := range []float64{0, 8_000, 20_000} {
		writers := []int{1, 16, 256}[i]
		b.Run(fmt.Sprintf("writers-%d", writers), func(b *testing.B) {
			if writers == 1 {
				aim = bare / 1.5
			}
			beside(b, benchLedger(b, writers, Migration()), aim)
		})
		// The cost of Query's indices.
		b.Run(fmt.Sprintf("writers-%d-unindexed", writers), func(b *testing.B) { beside(b, benchLedger(b, writers, unindexed()), 0) })
	}
}

// unindexed is the schema without the parts that only searches need.
func unindexed() store.Migration {
	m := Migration()
	m.Steps[4] = "ALTER TABLE audit_entry ADD COLUMN principal TEXT; ALTER TABLE audit_entry ADD COLUMN task TEXT; ALTER TABLE audit_entry ADD COLUMN role TEXT; ALTER TABLE audit_entry ADD COLUMN tool TEXT;"
	return m
}

func benchRaw(b *testing.B) float64 {
	f, err := os.Create(filepath.Join(benchDir(b), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 1024)
	return measure(b, 1, func(int64) {
		if _, err := f.Write(block); err != nil {
			b.Error(err)
		}
		if err := f.Sync(); err != nil {
			b.Error(err)
		}
	})
}

func benchBare(b *testing.B) float64 {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(benchDir(b), "bare.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL) STRICT"); err != nil {
		b.Fatal(err)
	}
	st, err := db.Prepare("INSERT INTO t (v) VALUES (?)")
	if err != nil {
		b.Fatal(err)
	}
	row := make([]byte, 1024)
	return measure(b, 1, func(int64) {
		if _, err := st.Exec(row); err != nil {
			b.Error(err)
		}
	})
}

// benchSameRows commits the rows of one of benchLedger's writers directly, without
// savepoints, queue or canonical encoding.
func benchSameRows(b *testing.B) float64 {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(benchDir(b), "same.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for _, q := range append(Migration().Steps, benchSchema) {
		if _, err := db.Exec(q); err != nil {
			b.Fatal(err)
		}
	}
	entry, err := db.Prepare(insertEntry)
	if err != nil {
		b.Fatal(err)
	}
	row, err := db.Prepare("INSERT INTO dispatch (id, state, doc) VALUES (?, ?, ?)")
	if err != nil {
		b.Fatal(err)
	}
	leaf, doc, start := string(make([]byte, 850)), string(make([]byte, 300)), time.Now()
	return measure(b, 1, func(i int64) {
		id := string(api.NewDispatchID(start.Add(time.Duration(i) * time.Millisecond)))
		hash := logproof.LeafHash([]byte(leaf))
		tx, err := db.Begin()
		if err != nil {
			b.Error(err)
			return
		}
		_, err1 := tx.Stmt(row).Exec(id, "accepted", doc)                                                                      //nolint:sqlclosecheck // the transaction closes it
		_, err2 := tx.Stmt(entry).Exec(i, i, "dispatch.accepted", id, nil, leaf, hash[:], "local:root", nil, "transform", nil) //nolint:sqlclosecheck // likewise
		if err := errors.Join(err1, err2, tx.Commit()); err != nil {
			b.Error(err)
		}
	})
}

const benchSchema = "CREATE TABLE dispatch (id TEXT PRIMARY KEY, state TEXT NOT NULL, doc TEXT NOT NULL) STRICT, WITHOUT ROWID"

// benchLedger commits what accepting a dispatch does: a state row of 300 bytes and
// an admitting entry of about 900.
func benchLedger(b *testing.B, writers int, schema store.Migration) float64 {
	ctx := context.Background()
	dir := filepath.Join(benchDir(b), "state")
	s, err := store.Create(ctx, store.Config{Dir: dir, Migrations: []store.Migration{schema, {
		Owner: "bench", Steps: []string{benchSchema},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l, err := Open(ctx, Config{Store: s, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	eng, err := policy.New(policy.Rules{Operator: "local:root"})
	if err != nil {
		b.Fatal(err)
	}
	d := eng.Decide(policy.Request{Principal: "local:root", Action: policy.ActionAuditRead, Resource: "log"})
	doc := string(make([]byte, 300))
	tier := api.Reversible
	digest := api.DigestOf(nil)
	start := time.Now()
	return measure(b, writers, func(i int64) {
		id := api.NewDispatchID(start.Add(time.Duration(i) * time.Millisecond))
		e := record.Entry{
			Kind: record.KindDispatchAccepted, Dispatch: id, Attempt: 1, Role: "transform", Tier: &tier,
			Refs: map[string]api.Digest{record.RefManifest: digest, record.RefInput: digest, record.RefRevision: digest},
			Detail: record.DispatchRequest{
				Subagent: "code-edit", Target: "local", Source: "service", Commit: "1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c",
				Envs: []string{"model"}, Revision: 7,
			},
		}
		_, err := l.Commit(ctx, d, e, func(tx *store.Tx) error {
			_, err := tx.Exec("INSERT INTO dispatch (id, state, doc) VALUES (?, ?, ?)", string(id), "accepted", doc)
			return err
		})
		if err != nil {
			b.Error(err)
		}
	})
}
