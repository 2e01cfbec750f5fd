package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
)

const (
	maxReaders    = 4
	maxStatements = 512 // prepared statements; not reached when SQL is constant text

	// quickCheckBytes is the size up to which the whole file is checked at start,
	// which takes about a second. A larger file is checked by Check on demand, and
	// page by page as it is used (cell_size_check).
	quickCheckBytes = 256 << 20

	// maxLogBytes is the length to which the write-ahead log is cut when it is
	// reused after it has grown longer, which it does while a reader blocks its
	// checkpoint. A shorter one keeps its length: syncs are cheap when a file does
	// not grow.
	maxLogBytes = 16 << 20
)

// dsn escapes path so that no character in it can become a parameter.
func dsn(path string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas, "_defensive": {"1"}, "_error_rc": {"1"}}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// writeConn is the one connection that writes.
type writeConn struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func openWriter(ctx context.Context, path string) (_ *writeConn, err error) {
	db, err := sql.Open("sqlite", dsn(
		path, "journal_mode(wal)", "synchronous(full)", "wal_autocheckpoint(0)", fmt.Sprintf("journal_size_limit(%d)", maxLogBytes), "foreign_keys(1)", "recursive_triggers(1)",
		"trusted_schema(0)", "cell_size_check(1)", "temp_store(memory)", "cache_size(-16000)", "busy_timeout(5000)",
	)+"&mode=rw")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	w := &writeConn{db: db, stmts: map[string]*sql.Stmt{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	// SQLite silently ignores pragmas that it cannot honour, so they are read back.
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0", "foreign_keys": "1", "recursive_triggers": "1",
		"locking_mode": "normal", "trusted_schema": "0", "query_only": "0", "journal_size_limit": strconv.Itoa(maxLogBytes),
	} {
		var got string
		if err := w.conn.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got); err != nil {
			return nil, fmt.Errorf("pragma %s: %w", pragma, err)
		}
		if got != want {
			return nil, fmt.Errorf("pragma %s is %s and must be %s", pragma, got, want)
		}
	}
	return w, nil
}

func openReaders(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(path, "query_only(1)", "trusted_schema(0)", "cell_size_check(1)", "cache_size(-4000)", "busy_timeout(5000)")+"&mode=ro")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(maxReaders)
	return db, db.PingContext(ctx)
}

// check detects corruption that SQLite can detect, which flipped bits inside a value
// are not: callers store hashes of the values that matter.
func (w *writeConn) check(ctx context.Context, path string, log *slog.Logger) error {
	fi, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("state database %s: %w", path, err)
	}
	if fi.Size() > quickCheckBytes {
		log.LogAttrs(ctx, slog.LevelInfo, "state database too large to check whole at start", slog.String("path", path), slog.Int64("bytes", fi.Size()))
		return nil
	}
	return quickCheck(ctx, w.conn, path)
}

// emptyLog checkpoints the whole write-ahead log and truncates it. A service that
// is killed leaves its log, which the next would append to. It needs to be the
// only connection.
func (w *writeConn) emptyLog(ctx context.Context) error {
	var busy, size, done int64
	if err := w.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &size, &done); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if busy != 0 {
		return errors.New("checkpoint: another process reads the database")
	}
	return nil
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func quickCheck(ctx context.Context, q querier, path string) (err error) {
	rows, err := q.QueryContext(ctx, "PRAGMA quick_check(10)") //nolint:rowserrcheck // closeRows does
	if err != nil {
		return damage(path, err)
	}
	defer func() {
		if cerr := closeRows(rows); cerr != nil && err == nil {
			err = damage(path, cerr)
		}
	}()
	var found []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return damage(path, err)
		}
		found = append(found, line)
	}
	if len(found) != 1 || found[0] != "ok" {
		return &CorruptError{Path: path, What: "is damaged (" + strings.Join(found, "; ") + ")"}
	}
	return nil
}

// stmt returns the prepared statement of query.
func (w *writeConn) stmt(query string) (*sql.Stmt, error) {
	if st, ok := w.stmts[query]; ok {
		return st, nil
	}
	if len(w.stmts) >= maxStatements {
		return nil, fmt.Errorf("more than %d different statements: write SQL as constant text with parameters", maxStatements)
	}
	st, err := w.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = st //nolint:sqlclosecheck // kept and closed by close
	return st, nil
}

// exec runs one of the writer's own statements.
func (w *writeConn) exec(query string) error {
	st, err := w.stmt(query) //nolint:sqlclosecheck // kept
	if err != nil {
		return err
	}
	_, err = st.Exec() //nolint:noctx // an interrupted statement would undo the whole group
	return err
}

func (w *writeConn) close() error {
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	if w.conn != nil {
		errs = append(errs, w.conn.Close())
	}
	return errors.Join(append(errs, w.db.Close())...)
}
