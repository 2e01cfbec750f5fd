package client

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// LogFrom is a position in the log of a dispatch.
type LogFrom struct {
	Attempt int   // 0: the current one
	Offset  int64 // of the first byte
}

// Log passes what the jail has written so far to each.
func (r RuntimeDispatches) Log(ctx context.Context, id api.DispatchID, from LogFrom, each func(api.Chunk) error) error {
	return ofConsumer(lines(ctx, r.c, logCall(id, from, false), each))
}

// Follow passes what the jail writes to each until the attempt has ended. When
// the service restarts meanwhile, it continues with the next one; no byte is
// lost or repeated.
func (r RuntimeDispatches) Follow(ctx context.Context, id api.DispatchID, from LogFrom, each func(api.Chunk) error) error {
	if from.Attempt == 0 {
		// Stay with the current attempt: the next one has its own offsets.
		d, err := r.Describe(ctx, id, 0)
		if err != nil {
			return err
		}
		from.Attempt = d.Attempt
	}
	before, ended := from.Offset, false
	return follow(ctx, func() error {
		return lines(ctx, r.c, logCall(id, from, true), func(c api.Chunk) error {
			if seen := from.Offset - c.Offset; seen > 0 {
				seen = min(seen, int64(len(c.Data)))
				if c.Offset, c.Data = c.Offset+seen, c.Data[seen:]; len(c.Data) == 0 && !c.Ended {
					return nil
				}
			}
			from.Offset, ended = max(from.Offset, c.Offset+int64(len(c.Data))), c.Ended
			return each(c)
		})
	}, func() (bool, bool) {
		moved := from.Offset > before
		before = from.Offset
		return moved, ended
	})
}

func logCall(id api.DispatchID, from LogFrom, follow bool) call {
	return ofAttempt(api.CallDispatchLog, id, from.Attempt, url.Values{"offset": {strconv.FormatInt(from.Offset, 10)}, "follow": {strconv.FormatBool(follow)}})
}

// Attempt returns one attempt of a dispatch; 0 is the current one.
func (r RuntimeDispatches) Attempt(ctx context.Context, id api.DispatchID, attempt int) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, ofAttempt(api.CallDispatchDescribe, id, attempt, url.Values{}))
}

// Patch writes the patch of an attempt to w; 0 is the current attempt.
func (r RuntimeDispatches) Patch(ctx context.Context, id api.DispatchID, attempt int, w io.Writer) error {
	return r.c.copy(ctx, ofAttempt(api.CallDispatchPatch, id, attempt, url.Values{}), w)
}

// Output writes one output of an attempt to w; 0 is the current attempt.
func (r RuntimeDispatches) Output(ctx context.Context, id api.DispatchID, attempt int, path string, w io.Writer) error {
	return r.c.copy(ctx, ofAttempt(api.CallDispatchOutput, id, attempt, url.Values{"path": {path}}), w)
}

// Transcript writes the event stream of the agent of an attempt to w; 0 is the
// current attempt.
func (r RuntimeDispatches) Transcript(ctx context.Context, id api.DispatchID, attempt int, w io.Writer) error {
	return r.c.copy(ctx, ofAttempt(api.CallDispatchTranscript, id, attempt, url.Values{}), w)
}

// Network passes each request that the agent of an attempt has made to each, or only
// those that were refused; 0 is the current attempt.
func (r RuntimeDispatches) Network(ctx context.Context, id api.DispatchID, attempt int, refused bool, each func(api.NetworkLine) error) error {
	query := url.Values{"refused": {strconv.FormatBool(refused)}}
	return ofConsumer(lines(ctx, r.c, ofAttempt(api.CallDispatchNetwork, id, attempt, query), each))
}

// Part is a piece of content.
type Part struct {
	Offset int64 // of its first byte
	Limit  int64 // its length at most, in bytes
}

func (p Part) query() url.Values {
	return url.Values{"offset": {strconv.FormatInt(p.Offset, 10)}, "limit": {strconv.FormatInt(p.Limit, 10)}}
}

// PatchPart returns a piece of the patch of an attempt; 0 is the current
// attempt. The piece is empty beyond the end.
func (r RuntimeDispatches) PatchPart(ctx context.Context, id api.DispatchID, attempt int, part Part) ([]byte, error) {
	var b bytes.Buffer
	err := r.c.copy(ctx, ofAttempt(api.CallDispatchPatch, id, attempt, part.query()), &b)
	return b.Bytes(), err
}

// OutputPart returns a piece of an output of an attempt; 0 is the current
// attempt. The piece is empty beyond the end.
func (r RuntimeDispatches) OutputPart(ctx context.Context, id api.DispatchID, attempt int, path string, part Part) ([]byte, error) {
	query := part.query()
	query.Set("path", path)
	var b bytes.Buffer
	err := r.c.copy(ctx, ofAttempt(api.CallDispatchOutput, id, attempt, query), &b)
	return b.Bytes(), err
}

func ofAttempt(c api.Call, id api.DispatchID, attempt int, query url.Values) call {
	if attempt != 0 { // the service refuses a negative one
		query.Set("attempt", strconv.Itoa(attempt))
	}
	return on(c, string(id)).where(query)
}

// Tools passes each call of a tool that the agent of an attempt has made to each, the
// first one first; 0 is the current attempt.
func (r RuntimeDispatches) Tools(ctx context.Context, id api.DispatchID, q ToolQuery, each func(api.ToolCallLine) error) error {
	query := url.Values{"denied": {strconv.FormatBool(q.Denied)}}
	if q.Number != 0 {
		query.Set("number", strconv.FormatInt(q.Number, 10))
	}
	return ofConsumer(lines(ctx, r.c, ofAttempt(api.CallDispatchTools, id, q.Attempt, query), each))
}

// ToolQuery selects calls of tools.
type ToolQuery struct {
	Attempt int   // 0: the current one
	Number  int64 // only this call, with its arguments and answer; 0: all, without
	Denied  bool  // only those that were denied
}

// Statement writes to w what the service signed about a dispatch that has ended:
// a DSSE envelope with an in-toto Statement, exactly as signed. Just after the
// end it waits for the signature.
func (r RuntimeDispatches) Statement(ctx context.Context, id api.DispatchID, w io.Writer) error {
	return r.c.copy(ctx, on(api.CallDispatchStatement, string(id)), w)
}
