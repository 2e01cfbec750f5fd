package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Operator reads the whole log and runs the service.
type Operator struct{ c *Conn }

// Operator returns the operator's face of c.
func (c *Conn) Operator() Operator { return Operator{c} }

// Status returns what the service says of itself.
func (o Operator) Status(ctx context.Context) (s api.ServiceStatus, err error) {
	err = o.c.request(ctx, http.MethodGet, "/v1/operator/status", nil, &s)
	return s, err
}

// Stop ends the service. Workers that run go on; the next service takes them
// up.
func (o Operator) Stop(ctx context.Context) error {
	return o.c.request(ctx, http.MethodPost, "/v1/operator/stop", nil, nil)
}

// Log hands over audit entries in order; see api.LogQuery. With follow it goes
// on until ctx is done.
func (o Operator) Log(ctx context.Context, q api.LogQuery, follow bool, each func(api.LogLine) error) error {
	v := url.Values{"follow": {strconv.FormatBool(follow)}}
	if q.After != nil {
		v.Set("after", strconv.FormatUint(*q.After, 10))
	}
	if q.Last > 0 {
		v.Set("last", strconv.Itoa(q.Last))
	}
	if q.Dispatch != "" {
		v.Set("dispatch", string(q.Dispatch))
	}
	if q.Principal != "" {
		v.Set("principal", string(q.Principal))
	}
	if q.Kind != "" {
		v.Set("kind", q.Kind)
	}
	return lines(ctx, o.c, "/v1/operator/log?"+v.Encode(), each)
}
