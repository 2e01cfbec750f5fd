package dispatch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// NetworkRequest is the part of a network record to return.
type NetworkRequest struct {
	Attempt int  // 0 is the current one
	Refused bool // only refused requests
}

// Network calls each with the requests that the agent of an attempt has made so far.
func (s *reader) Network(ctx context.Context, principal api.Principal, id api.DispatchID, req NetworkRequest, each func(*api.NetworkLine) error) error {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return err
	}
	content, err := s.networkOf(ctx, r, req.Attempt)
	if err != nil {
		return err
	}
	var failed error
	err = eachLine(content, func(l *api.NetworkLine) {
		if failed == nil && (l.Refused != "" || !req.Refused) {
			failed = each(l)
		}
	})
	return errors.Join(failed, err, content.Close())
}

// networkOf opens the network record of an attempt, which is empty where no request
// was made.
func (s *reader) networkOf(ctx context.Context, r row, attempt int) (io.ReadCloser, error) {
	d, err := s.attempt(ctx, r.record, attempt)
	if err != nil {
		return nil, err
	}
	if !d.State.Ended() {
		f, err := openWork(s.files.dir(&r), record.WorkNetwork)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		// It has made no request, or has ended meanwhile.
		now, _, err := s.row(ctx, d.ID)
		if err != nil {
			return nil, err
		}
		if d, err = s.attempt(ctx, now.record, d.Attempt); err != nil {
			return nil, err
		}
	}
	if d.Outcome == nil || d.Outcome.Network == nil {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err := s.addRetention(ctx, &d); err != nil {
		return nil, err
	}
	content, _, err := s.open(ctx, &d, "network record", *d.Outcome.Network)
	return content, err
}

// eachLine calls fn with each line of r that is a T: the last one of a worker that
// runs or was killed may not be.
func eachLine[T any](r io.Reader, fn func(*T)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		var v T
		if json.Unmarshal(lines.Bytes(), &v) == nil {
			fn(&v)
		}
	}
	if err := lines.Err(); !errors.Is(err, bufio.ErrTooLong) {
		return err
	}
	return nil
}
