package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

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
// on until ctx is done or as many came as were asked for, with the next service
// when this one ends.
func (o Operator) Log(ctx context.Context, q api.LogQuery, following bool, each func(api.LogLine) error) error {
	moved, bounded := false, q.First > 0
	stream := func() error {
		return lines(ctx, o.c, "/v1/operator/log?"+logValues(q, following).Encode(), func(l api.LogLine) error {
			q.After, q.Last, moved = &l.Seq, 0, true
			q.First = max(0, q.First-1)
			return each(l)
		})
	}
	if following {
		return follow(ctx, stream, func() (bool, bool) {
			was := moved
			moved = false
			return was, bounded && q.First == 0
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
	for name, n := range map[string]*uint64{"after": q.After, "before": q.Before} {
		if n != nil {
			v.Set(name, strconv.FormatUint(*n, 10))
		}
	}
	for name, n := range map[string]int{"first": q.First, "last": q.Last} {
		if n != 0 { // what is none is for the service to refuse
			v.Set(name, strconv.Itoa(n))
		}
	}
	for name, s := range map[string]string{
		"run": string(q.Run), "task": string(q.Task), "dispatch": string(q.Dispatch), "role": string(q.Role),
		"tool": q.Tool, "principal": string(q.Principal), "decision": q.Decision,
	} {
		if s != "" {
			v.Set(name, s)
		}
	}
	for name, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if len(q.Kinds) > 0 {
		v["kind"] = q.Kinds
	}
	return v
}
