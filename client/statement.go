package client

import (
	"context"
	"io"
	"net/url"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Statement writes to w what the service signed of a dispatch that has ended: a
// DSSE envelope with an in-toto Statement, as it was signed. Of one that has
// just ended it waits until that is made.
func (r Runtime) Statement(ctx context.Context, id api.DispatchID, w io.Writer) error {
	return r.copy(ctx, dispatches+"/"+url.PathEscape(string(id))+"/statement", w)
}

// Trust writes to w the trust file that an auditor of this installation should
// be given, over another channel than the evidence.
func (o Operator) Trust(ctx context.Context, w io.Writer) error {
	return Runtime(o).copy(ctx, "/v1/operator/trust", w)
}
