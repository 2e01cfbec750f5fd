package client

import (
	"context"
	"errors"
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
	err = o.c.request(ctx, get("/v1/operator/status"), &s)
	return s, err
}

// Stop ends the service. Workers that run go on; the next service takes them
// up.
func (o Operator) Stop(ctx context.Context) error {
	return o.c.request(ctx, call{method: http.MethodPost, path: "/v1/operator/stop"}, nil)
}

// Stay makes a service that ends when it is idle one that lasts.
func (o Operator) Stay(ctx context.Context) error {
	return o.c.request(ctx, call{method: http.MethodPost, path: "/v1/operator/stay", repeat: true}, nil)
}

// GC removes what the service's rules of retention let go; with dryRun it only
// says what that is.
func (o Operator) GC(ctx context.Context, dryRun bool) (r api.GCReport, err error) {
	c := call{method: http.MethodPost, path: "/v1/operator/gc", repeat: true}
	if dryRun {
		c = get(c.path)
	}
	err = o.c.request(ctx, c, &r)
	return r, err
}

// Log hands over audit entries in order; see api.LogQuery. With follow it goes
// on until ctx is done, with the next service when this one ends.
func (o Operator) Log(ctx context.Context, q api.LogQuery, following bool, each func(api.LogLine) error) error {
	moved := false
	stream := func() error {
		return lines(ctx, o.c, "/v1/operator/log?"+logValues(q, following).Encode(), func(l api.LogLine) error {
			q.After, q.Last, moved = &l.Seq, 0, true
			return each(l)
		})
	}
	if following {
		return follow(ctx, stream, func() (bool, bool) {
			was := moved
			moved = false
			return was, false
		})
	}
	err := stream()
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.err
	}
	return err
}

func logValues(q api.LogQuery, follow bool) url.Values {
	v := url.Values{"follow": {strconv.FormatBool(follow)}}
	if q.After != nil {
		v.Set("after", strconv.FormatUint(*q.After, 10))
	}
	if q.Last > 0 {
		v.Set("last", strconv.Itoa(q.Last))
	}
	if q.Run != "" {
		v.Set("run", string(q.Run))
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
	return v
}
