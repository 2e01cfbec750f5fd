package audit

import (
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Subject is what entries are about: the column that has its id.
type Subject string

// The subjects whose stored rows follow from entries.
const (
	Dispatches Subject = "dispatch"
	Runs       Subject = "run"
)

// Each passes the entries that match q to each, in the order of the log, as v
// sees them: together with rows that v reads, they are of one moment.
func Each(v store.Reader, q Query, each func(*Committed) error) error {
	head, err := length(v)
	if err != nil {
		return err
	}
	for q.Limit, q.Newest = maxLimit, false; ; {
		list, err := q.run(v, head)
		if err != nil {
			return err
		}
		for i := range list {
			if err := each(&list[i]); err != nil {
				return err
			}
			q.From = list[i].Seq + 1
		}
		if len(list) < maxLimit {
			return nil
		}
	}
}

// Last returns the newest entry of a kind, or nil.
func Last(v store.Reader, kind record.Kind) (*Committed, error) {
	head, err := length(v)
	if err != nil {
		return nil, err
	}
	q := Query{Kind: kind, Limit: 1, Newest: true}
	list, err := q.run(v, head)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// Count returns how many entries of a kind there are.
func Count(v store.Reader, kind record.Kind) (n int, err error) {
	err = v.Get("SELECT count(*) FROM audit_entry WHERE kind = ?", store.Args{string(kind)}, &n)
	return n, err
}

// IDs returns up to limit ids of subjects that entries name, after one, sorted.
func IDs(v store.Reader, of Subject, after string, limit int) ([]string, error) {
	column := string(of)
	return texts(v, "SELECT DISTINCT "+column+" FROM audit_entry INDEXED BY audit_entry_"+column+" WHERE "+column+" > ? ORDER BY "+column+" LIMIT ?", store.Args{after, limit})
}

// RecentIDs returns the ids of subjects that the newest entries name.
func RecentIDs(v store.Reader, of Subject, newest uint64) ([]string, error) {
	n, err := length(v)
	if err != nil {
		return nil, err
	}
	column := string(of)
	return texts(v, "SELECT DISTINCT "+column+" FROM audit_entry NOT INDEXED WHERE seq >= ? AND "+column+" IS NOT NULL", store.Args{int64(n - min(n, newest))}) //nolint:gosec // G115: see append
}

func texts(v store.Reader, query string, args store.Args) (list []string, err error) {
	err = v.Each(query, args, func(scan store.Scan) error {
		var s string
		err := scan(&s)
		list = append(list, s)
		return err
	})
	return list, err
}
