package client

import (
	"context"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// HTTPReady asks whether the service is ready for a server on HTTP.
func (r Runtime) HTTPReady(ctx context.Context) (ready api.HTTPReady, err error) {
	err = r.c.request(ctx, call{http.MethodPost, "/v1/runtime/http-ready", nil, true}, &ready)
	return ready, err
}
