package client

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Evidence writes to w the evidence about what is over, for bailiwick-verify. It
// returns when a checkpoint covers all of it.
func (o Operator) Evidence(ctx context.Context, req api.EvidenceRequest, w io.Writer) error {
	v := url.Values{"blobs": {strconv.FormatBool(req.Blobs)}}
	if req.Run != "" {
		v.Set("run", string(req.Run))
	}
	if req.Dispatch != "" {
		v.Set("dispatch", string(req.Dispatch))
	}
	for _, c := range req.Checkpoints {
		v.Add("checkpoint", base64.RawURLEncoding.EncodeToString(c))
	}
	return Runtime(o).copy(ctx, "/v1/operator/evidence?"+v.Encode(), w)
}

// CheckLog has the service read every entry of its log again.
func (o Operator) CheckLog(ctx context.Context) (c api.LogCheck, err error) {
	err = o.c.request(ctx, call{method: http.MethodPost, path: "/v1/operator/log/check", repeat: true}, &c)
	return c, err
}
