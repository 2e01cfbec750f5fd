// Package telemetry exports metrics, health and traces of the service.
//
// Nothing leaves the machine: metrics are served on a unix socket of the service's
// account or on a loopback address, and spans go to a collector on this machine.
// Telemetry is in no decision, and its failure fails nothing else. Every label
// value is from a closed set in this package, or is a name from the service's
// configuration or the catalog, never from a caller or agent: the number of series is
// bounded, and no label identifies a piece of work.
//
// It carries no requirement of its own; its tests show that it changes no behaviour
// of the parts it observes.
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
