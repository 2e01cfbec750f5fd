// Package telemetry says how the service is: metrics, health and traces.
//
// It never leaves the machine by itself: metrics are served on a unix socket
// of the service's account or on a loopback address, and spans go to a
// collector on this machine. It is never asked whether something may happen,
// and its failure fails nothing. Every label of a metric is from a set that is
// written down here, or is a queue that the service's configuration names:
// nothing that a caller, a catalog or an agent says becomes one, so nobody can
// make the number of series grow, and no name of a person or of a piece of work
// can be read from them.
//
// It carries no requirement of its own; that it changes nothing of what others
// promise is what its tests are about.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Config configures a Telemetry.
type Config struct {
	Version   string                                       // of the program
	Collector Address                                      // of spans; zero: spans are not recorded
	Routes    []api.Call                                   // the labels under which requests are counted
	Listen    func(path string) (*net.UnixListener, error) // creates a private unix socket
	Now       func() time.Time
	Logger    *slog.Logger
}

// Telemetry records events as metrics and spans. Its methods are safe for
// concurrent use, and only Close waits for a disk or network.
type Telemetry struct {
	cfg      Config
	registry *prometheus.Registry
	metrics  metrics
	spans    *spans // nil: tracing is off
	watched  watched
	web      web
}

// New returns a Telemetry that serves nothing yet.
func New(cfg Config) (*Telemetry, error) {
	t := &Telemetry{cfg: cfg, registry: prometheus.NewRegistry()}
	t.metrics = newMetrics(cfg)
	if err := t.metrics.register(t.registry); err != nil {
		return nil, err
	}
	if err := t.registry.Register(&t.watched); err != nil {
		return nil, err
	}
	if cfg.Collector.IsZero() {
		return t, nil
	}
	var err error
	t.spans, err = newSpans(cfg, t.metrics)
	return t, err
}

// Close stops serving and exports the remaining spans until ctx is done.
func (t *Telemetry) Close(ctx context.Context) error {
	err := t.web.close(ctx)
	if t.spans != nil {
		err = errors.Join(err, t.spans.close(ctx))
	}
	return err
}
