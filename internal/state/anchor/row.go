package anchor

import (
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// Migration is the schema of this package: the receipts.
func Migration() store.Migration {
	return store.Migration{Owner: "anchor", Steps: []string{`
CREATE TABLE anchor_receipt (
	name    TEXT NOT NULL,
	size    INTEGER NOT NULL CHECK (size > 0), -- entries that the checkpoint covers
	kind    TEXT NOT NULL,
	root    BLOB NOT NULL CHECK (length(root) = 32),
	receipt TEXT NOT NULL,
	at      INTEGER NOT NULL, -- microseconds since 1970
	PRIMARY KEY (name, size)
) STRICT, WITHOUT ROWID;
`}}
}

// saveReceipt stores a receipt.
func saveReceipt(ctx context.Context, st *store.Store, r receipt.Receipt) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	cp := r.Checkpoint()
	return st.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO anchor_receipt (name, size, kind, root, receipt, at) VALUES (?, ?, ?, ?, ?, ?)"+
			" ON CONFLICT (name, size) DO UPDATE SET kind = excluded.kind, root = excluded.root, receipt = excluded.receipt, at = excluded.at",
			r.Name, int64(cp.Size), string(r.Kind), cp.Root[:], string(b), r.At.UnixMicro()) //nolint:gosec // G115: logproof.Parse bounds it
		return err
	})
}

// row is a receipt as the columns have it, and what they lack.
type row struct {
	acknowledged
	place string
	until time.Time // of its lock; zero: for good
}

// acknowledged identifies a checkpoint that an anchor acknowledged.
type acknowledged struct {
	size uint64
	root logproof.Hash
	id   string // as in Item
}

// rows returns all receipts of an anchor, the smallest first.
func rows(ctx context.Context, st *store.Store, name string) (list []row, err error) {
	const query = `SELECT size, root, json_extract(receipt, '$.place'), coalesce(json_extract(receipt, '$.git.commit'), json_extract(receipt, '$.s3.version'), ''),
		coalesce(json_extract(receipt, '$.s3.until'), '') FROM anchor_receipt WHERE name = ? ORDER BY size`
	err = st.Read(ctx, func(v *store.View) error {
		return v.Each(query, []any{name}, func(scan store.Scan) error {
			var r row
			var size int64
			var root []byte
			var until string
			err := scan(&size, &root, &r.place, &r.id, &until)
			if err == nil && until != "" {
				r.until, err = time.Parse(time.RFC3339Nano, until)
			}
			if err != nil {
				return err
			}
			r.size, r.root = uint64(size), logproof.Hash(root) //nolint:gosec // G115: the schema says that it is positive
			list = append(list, r)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("receipts of anchor %q: %w", name, err)
	}
	return list, nil
}

// receiptFor returns the receipt of an anchor for a checkpoint of that size.
func receiptFor(ctx context.Context, st *store.Store, name string, size uint64) (r receipt.Receipt, ok bool, err error) {
	list, err := receipts(ctx, st, "SELECT receipt FROM anchor_receipt WHERE name = ? AND size = ?", name, int64(size)) //nolint:gosec // G115: the size of a log
	if err != nil || len(list) == 0 {
		return r, false, err
	}
	return list[0], true, nil
}

// lastReceipt returns the receipt of an anchor for its largest checkpoint.
func lastReceipt(ctx context.Context, st *store.Store, name string) (r receipt.Receipt, ok bool, err error) {
	list, err := receipts(ctx, st, "SELECT receipt FROM anchor_receipt WHERE name = ? ORDER BY size DESC LIMIT 1", name)
	if err != nil || len(list) == 0 {
		return r, false, err
	}
	return list[0], true, nil
}

// names looks up every name in the primary key: there are many receipts and few
// anchors.
const names = `WITH RECURSIVE n(name) AS (SELECT min(name) FROM anchor_receipt UNION ALL
	SELECT (SELECT min(name) FROM anchor_receipt WHERE name > n.name) FROM n WHERE n.name IS NOT NULL)
`

const eachName = names + `SELECT (SELECT receipt FROM anchor_receipt r WHERE r.name = n.name AND r.size >= ? `

// Covering returns the receipt of each anchor for its smallest checkpoint that
// covers the first size entries, which proves the earliest time. It includes
// anchors that are no longer configured.
func Covering(ctx context.Context, st *store.Store, size uint64) ([]receipt.Receipt, error) {
	return receipts(ctx, st, eachName+"ORDER BY r.size LIMIT 1) FROM n WHERE n.name IS NOT NULL", int64(size)) //nolint:gosec // G115: the size of a log
}

// Newest returns the receipt of each anchor for its largest checkpoint.
func Newest(ctx context.Context, st *store.Store) ([]receipt.Receipt, error) {
	return receipts(ctx, st, eachName+"ORDER BY r.size DESC LIMIT 1) FROM n WHERE n.name IS NOT NULL", 0)
}

// Sizes returns the sizes up to most that bundle.Select needs: of the receipts of each
// anchor the last without entry first, and after that as many as a bundle can have
// before the end of entry last, after it, and up to most.
func Sizes(ctx context.Context, st *store.Store, first, last, most uint64) ([]uint64, error) {
	const each = `SELECT DISTINCT size FROM (
	SELECT max(size) AS size FROM anchor_receipt WHERE name = ?1 AND size <= ?2 AND size <= ?4 GROUP BY name
	UNION ALL SELECT size FROM (SELECT size FROM anchor_receipt WHERE name = ?1 AND size > ?2 AND size <= min(?3, ?4) ORDER BY size DESC LIMIT ?5)
	UNION ALL SELECT size FROM (SELECT size FROM anchor_receipt WHERE name = ?1 AND size > ?3 AND size <= ?4 ORDER BY size LIMIT ?5)
	UNION ALL SELECT size FROM (SELECT size FROM anchor_receipt WHERE name = ?1 AND size > ?2 AND size <= ?4 ORDER BY size DESC LIMIT ?5))`
	var out []uint64
	err := st.Read(ctx, func(v *store.View) error {
		var list []string
		if err := v.Each(names+"SELECT name FROM n WHERE name IS NOT NULL", nil, func(scan store.Scan) error {
			var name string
			err := scan(&name)
			list = append(list, name)
			return err
		}); err != nil {
			return err
		}
		for _, name := range list {
			args := []any{name, int64(first), int64(last), int64(most), bundle.MaxSizes} //nolint:gosec // G115: sizes of a log
			if err := v.Each(each, args, func(scan store.Scan) error {
				var size int64
				err := scan(&size)
				out = append(out, uint64(size)) //nolint:gosec // G115: likewise
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func receipts(ctx context.Context, st *store.Store, query string, args ...any) ([]receipt.Receipt, error) {
	var out []receipt.Receipt
	err := st.Read(ctx, func(v *store.View) error {
		return v.Each(query, args, func(scan store.Scan) error {
			var text *string
			if err := scan(&text); err != nil || text == nil {
				return err // no receipt of that size
			}
			r, err := receipt.Parse([]byte(*text))
			if err != nil {
				return fmt.Errorf("anchor receipts: %w", err)
			}
			out = append(out, r)
			return nil
		})
	})
	return out, err
}
