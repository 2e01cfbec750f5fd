package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

const (
	maxQueue   = 4096 // spans; more are dropped and counted
	maxBatch   = 512
	exportTime = 5 * time.Second // for one batch, with retries
)

// newExporter returns an exporter that connects to a and nowhere else: it follows
// no proxy variable and no redirect and resolves no name.
func newExporter(a Address) (sdktrace.SpanExporter, error) {
	endpoint := "http://localhost"
	if a.network == "tcp" {
		endpoint = "http://" + a.where
	}
	dialer, err := a.dialer()
	if err != nil {
		return nil, err
	}
	web := egress.Local(dialer.DialContext)
	web.Timeout = exportTime
	return otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(endpoint), otlptracehttp.WithURLPath("/v1/traces"), otlptracehttp.WithInsecure(),
		otlptracehttp.WithHeaders(map[string]string{}), otlptracehttp.WithCompression(otlptracehttp.NoCompression), otlptracehttp.WithTimeout(exportTime),
		otlptracehttp.WithMaxResponseSize(1<<20),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: 250 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: exportTime}),
		otlptracehttp.WithHTTPClient(web),
	)
}

// queue exports spans in the background. It never blocks: it drops and counts
// spans that do not fit or that the exporter fails to send.
type queue struct {
	exporter sdktrace.SpanExporter
	metrics  metrics
	logger   *slog.Logger
	waiting  chan sdktrace.ReadOnlySpan
	done     chan struct{} // closed after the last batch

	mu      sync.RWMutex    // held for reading while a span is queued
	closed  bool            // guarded by mu
	life    context.Context //nolint:containedctx // cancels exports at shutdown
	abandon context.CancelFunc
}

func newQueue(e sdktrace.SpanExporter, m metrics, logger *slog.Logger) *queue {
	q := &queue{exporter: e, metrics: m, logger: logger, waiting: make(chan sdktrace.ReadOnlySpan, maxQueue), done: make(chan struct{})}
	q.life, q.abandon = context.WithCancel(context.Background())
	go q.run()
	return q
}

// OnStart implements sdktrace.SpanProcessor.
func (q *queue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		q.drop("shutdown", 1)
		return
	}
	select {
	case q.waiting <- s:
	default:
		q.drop("queue_full", 1)
	}
}

func (q *queue) drop(cause string, n int) {
	q.metrics.droppedSpans.WithLabelValues(cause).Add(float64(n))
}

// ForceFlush implements sdktrace.SpanProcessor. Nothing calls it.
func (q *queue) ForceFlush(context.Context) error { return nil }

// Shutdown accepts no more spans and waits until the queued ones are exported or
// ctx is done.
func (q *queue) Shutdown(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.waiting)
	}
	q.mu.Unlock()
	defer q.abandon()
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		q.abandon()
		<-q.done
		q.logger.WarnContext(q.life, "shutting down before all spans were exported")
		return nil // not a failure of the shutdown
	}
}

// run returns when Shutdown has closed the queue and it is empty.
func (q *queue) run() {
	defer close(q.done)
	ok := true
	batch := make([]sdktrace.ReadOnlySpan, 0, maxBatch)
	for s := range q.waiting {
		batch = q.gather(append(batch[:0], s))
		switch err := q.export(batch); {
		case err != nil && ok:
			q.logger.WarnContext(q.life, "cannot export spans; dropping them", slog.Any("err", err))
			ok = false
		case err == nil && !ok:
			q.logger.InfoContext(q.life, "exporting spans again")
			ok = true
		}
	}
	_ = q.exporter.Shutdown(q.life) // it has only idle connections
}

// gather adds the other queued spans to batch.
func (q *queue) gather(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	for len(batch) < maxBatch {
		select {
		case s, ok := <-q.waiting:
			if !ok {
				return batch
			}
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

func (q *queue) export(batch []sdktrace.ReadOnlySpan) error {
	if q.life.Err() != nil {
		q.drop("shutdown", len(batch))
		return nil
	}
	ctx, cancel := context.WithTimeout(q.life, exportTime)
	defer cancel()
	err := q.exporter.ExportSpans(ctx, batch)
	if err != nil {
		q.drop("export_failed", len(batch))
		return err
	}
	q.metrics.exported.Add(float64(len(batch)))
	return nil
}
