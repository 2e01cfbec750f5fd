package client

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Listing returns a page of what the caller may use of a kind: capability,
// subagent or env. The cursor is Next of the page before; empty: the first.
func (r Runtime) Listing(ctx context.Context, kind api.Kind, cursor string) (p api.ListingPage, err error) {
	plural := string(kind) + "s"
	if kind == api.KindCapability {
		plural = "capabilities"
	}
	err = r.c.request(ctx, get("/v1/runtime/catalog/"+url.PathEscape(plural)+"?"+url.Values{"cursor": {cursor}}.Encode()), &p)
	return p, err
}

// Refused tells the service of a call that was refused before it became a
// request.
func (r Runtime) Refused(ctx context.Context, what api.Refused) (got api.RefusedReceipt, err error) {
	err = r.c.request(ctx, call{http.MethodPost, "/v1/runtime/refused", what, false}, &got)
	return got, err
}

// Part is a piece of content.
type Part struct {
	Offset int64 // of its first byte
	Limit  int64 // how long it is at most
}

func (p Part) query() url.Values {
	return url.Values{"offset": {strconv.FormatInt(p.Offset, 10)}, "limit": {strconv.FormatInt(p.Limit, 10)}}
}

// PatchPart returns a piece of the patch of an attempt; 0 is the current one.
// It is empty behind the end.
func (r Runtime) PatchPart(ctx context.Context, id api.DispatchID, attempt int, part Part) ([]byte, error) {
	return r.part(ctx, attemptPath(id, "/patch", attempt, part.query()))
}

// OutputPart returns a piece of an output of an attempt; 0 is the current one.
// It is empty behind the end.
func (r Runtime) OutputPart(ctx context.Context, id api.DispatchID, attempt int, path string, part Part) ([]byte, error) {
	query := part.query()
	query.Set("path", path)
	return r.part(ctx, attemptPath(id, "/output", attempt, query))
}

func (r Runtime) part(ctx context.Context, path string) ([]byte, error) {
	var b bytes.Buffer
	err := r.copy(ctx, path, &b)
	return b.Bytes(), err
}
