package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Runtime starts, watches and cancels dispatches and runs of what humans have
// defined. It makes runtime calls only.
type Runtime struct{ c *Conn }

// Runtime returns the runtime face of c.
func (c *Conn) Runtime() Runtime { return Runtime{c} }

// Dispatch requests one execution of a subagent. It returns as soon as the
// decision is durable; the worker may not have started. With a DispatchID in req
// the request is safe to repeat.
func (r Runtime) Dispatch(ctx context.Context, req api.DispatchRequest) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchSubmit).with(req, req.DispatchID != ""))
}

// Describe returns the record of a dispatch. It waits at most wait for the
// dispatch to end.
func (r Runtime) Describe(ctx context.Context, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchDescribe, string(id)).where(query))
}

// List returns the newest dispatches that f selects and the caller may see, newest
// first.
func (r Runtime) List(ctx context.Context, f api.DispatchFilter) ([]api.Dispatch, error) {
	query := url.Values{}
	for _, s := range f.States {
		query.Add("state", string(s))
	}
	for name, value := range map[string]string{"subagent": string(f.Subagent), "principal": string(f.Principal), "run": string(f.Run), "after": string(f.After)} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if !f.Since.IsZero() {
		query.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if f.Limit != 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	return fetch[[]api.Dispatch](ctx, r.c, on(api.CallDispatchList).where(query))
}

// Cancel requests the end of a dispatch and returns its record, which need not
// have ended yet.
func (r Runtime) Cancel(ctx context.Context, id api.DispatchID, reason string) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchCancel, string(id)).with(api.CancelRequest{Reason: reason}, false))
}

// Answer answers the question of a dispatch, which then resumes. It returns the
// record of the new attempt.
func (r Runtime) Answer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchAnswer, string(id)).with(req, req.Attempt > 0))
}

// Pin protects a dispatch from the service's retention rules; with pinned false it
// ends the protection.
func (r Runtime) Pin(ctx context.Context, id api.DispatchID, pinned bool) (api.Dispatch, error) {
	c := api.CallDispatchUnpin
	if pinned {
		c = api.CallDispatchPin
	}
	return fetch[api.Dispatch](ctx, r.c, on(c, string(id)))
}

// LogFrom is a position in the log of a dispatch.
type LogFrom struct {
	Attempt int   // 0: the current one
	Offset  int64 // of the first byte
}

// Log passes what the jail has written so far to each.
func (r Runtime) Log(ctx context.Context, id api.DispatchID, from LogFrom, each func(api.Chunk) error) error {
	err := lines(ctx, r.c, logCall(id, from, false), each)
	if consumer, ok := errors.AsType[*consumerError](err); ok {
		return consumer.err
	}
	return err
}

// Follow passes what the jail writes to each until the attempt has ended. When
// the service restarts meanwhile, it continues with the next one; no byte is
// lost or repeated.
func (r Runtime) Follow(ctx context.Context, id api.DispatchID, from LogFrom, each func(api.Chunk) error) error {
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
func (r Runtime) Attempt(ctx context.Context, id api.DispatchID, attempt int) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, ofAttempt(api.CallDispatchDescribe, id, attempt, url.Values{}))
}

// Patch writes the patch of an attempt to w; 0 is the current attempt.
func (r Runtime) Patch(ctx context.Context, id api.DispatchID, attempt int, w io.Writer) error {
	return r.c.copy(ctx, ofAttempt(api.CallDispatchPatch, id, attempt, url.Values{}), w)
}

// Output writes one output of an attempt to w; 0 is the current attempt.
func (r Runtime) Output(ctx context.Context, id api.DispatchID, attempt int, path string, w io.Writer) error {
	return r.c.copy(ctx, ofAttempt(api.CallDispatchOutput, id, attempt, url.Values{"path": {path}}), w)
}

// Transcript writes the event stream of the agent of an attempt to w; 0 is the
// current attempt.
func (r Runtime) Transcript(ctx context.Context, id api.DispatchID, attempt int, w io.Writer) error {
	return r.c.copy(ctx, ofAttempt(api.CallDispatchTranscript, id, attempt, url.Values{}), w)
}

// Network passes each request that the agent of an attempt has made to each, or only
// those that were refused; 0 is the current attempt.
func (r Runtime) Network(ctx context.Context, id api.DispatchID, attempt int, refused bool, each func(api.NetworkLine) error) error {
	query := url.Values{"refused": {strconv.FormatBool(refused)}}
	err := lines(ctx, r.c, ofAttempt(api.CallDispatchNetwork, id, attempt, query), each)
	if consumer, ok := errors.AsType[*consumerError](err); ok {
		return consumer.err
	}
	return err
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
func (r Runtime) PatchPart(ctx context.Context, id api.DispatchID, attempt int, part Part) ([]byte, error) {
	var b bytes.Buffer
	err := r.c.copy(ctx, ofAttempt(api.CallDispatchPatch, id, attempt, part.query()), &b)
	return b.Bytes(), err
}

// OutputPart returns a piece of an output of an attempt; 0 is the current
// attempt. The piece is empty beyond the end.
func (r Runtime) OutputPart(ctx context.Context, id api.DispatchID, attempt int, path string, part Part) ([]byte, error) {
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

// Statement writes to w what the service signed about a dispatch that has ended:
// a DSSE envelope with an in-toto Statement, exactly as signed. Just after the
// end it waits for the signature.
func (r Runtime) Statement(ctx context.Context, id api.DispatchID, w io.Writer) error {
	return r.c.copy(ctx, on(api.CallDispatchStatement, string(id)), w)
}

// Can returns what policy would decide about a dispatch.
func (r Runtime) Can(ctx context.Context, req api.CanRequest) (api.CanAnswer, error) {
	return fetch[api.CanAnswer](ctx, r.c, on(api.CallCan).with(req, false))
}

// CanCall returns what policy would decide about a call of a tool.
func (r Runtime) CanCall(ctx context.Context, req api.CanCallRequest) (api.CanCallAnswer, error) {
	return fetch[api.CanCallAnswer](ctx, r.c, on(api.CallCanCall).with(req, false))
}

// RoleTools returns what a role may call, with their schemas if those are requested.
func (r Runtime) RoleTools(ctx context.Context, role api.Name, schemas bool) (api.RoleTools, error) {
	return fetch[api.RoleTools](ctx, r.c, on(api.CallRoleTools, string(role)).where(url.Values{"schemas": {strconv.FormatBool(schemas)}}))
}

// Tools passes each call of a tool that the agent of an attempt has made to each, the
// first one first; 0 is the current attempt.
func (r Runtime) Tools(ctx context.Context, id api.DispatchID, q ToolQuery, each func(api.ToolCallLine) error) error {
	query := url.Values{"denied": {strconv.FormatBool(q.Denied)}}
	if q.Number != 0 {
		query.Set("number", strconv.FormatInt(q.Number, 10))
	}
	err := lines(ctx, r.c, ofAttempt(api.CallDispatchTools, id, q.Attempt, query), each)
	if consumer, ok := errors.AsType[*consumerError](err); ok {
		return consumer.err
	}
	return err
}

// ToolQuery selects calls of tools.
type ToolQuery struct {
	Attempt int   // 0: the current one
	Number  int64 // only this call, with its arguments and answer; 0: all, without
	Denied  bool  // only those that were denied
}

// Listing returns a page of what the caller may use of a kind: capability,
// subagent or env. The cursor is Next of the page before, or empty for the first.
func (r Runtime) Listing(ctx context.Context, kind api.Kind, cursor string) (api.ListingPage, error) {
	c, ok := map[api.Kind]api.Call{api.KindCapability: api.CallCapabilities, api.KindSubagent: api.CallSubagents, api.KindEnv: api.CallEnvs}[kind]
	if !ok {
		return api.ListingPage{}, api.Errorf(api.CodeInvalid, "artifacts of kind %q cannot be listed", string(kind))
	}
	return fetch[api.ListingPage](ctx, r.c, on(c).where(url.Values{"cursor": {cursor}}))
}

// Artifacts returns a page of what a person is shown of the artifacts of a kind
// that the caller may use. The cursor is Next of the page before, or empty for the
// first. With a name the page has only that artifact, or nothing.
func (r Runtime) Artifacts(ctx context.Context, kind api.Kind, name api.Name, cursor string) (api.ArtifactPage, error) {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if name != "" {
		query.Set("name", string(name))
	}
	return fetch[api.ArtifactPage](ctx, r.c, on(api.CallArtifacts, string(kind)).where(query))
}

// Refused has the service log a call that was refused before it became a
// request.
func (r Runtime) Refused(ctx context.Context, refused api.Refused) (api.RefusedReceipt, error) {
	return fetch[api.RefusedReceipt](ctx, r.c, on(api.CallRefused).with(refused, false))
}

// HTTPReady returns whether the service is ready for an MCP server on HTTP.
func (r Runtime) HTTPReady(ctx context.Context) (api.HTTPReady, error) {
	return fetch[api.HTTPReady](ctx, r.c, on(api.CallHTTPReady))
}
