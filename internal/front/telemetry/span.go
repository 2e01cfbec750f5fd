package telemetry

import (
	"context"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/bailiwick-dev/bailiwick/api"
)

// spans makes spans from the records of what has ended, so a recovered dispatch
// has the same ones. They name dispatches and catalog artifacts, never a caller,
// an input or anything that an agent wrote.
type spans struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	queue    *queue
}

func newSpans(cfg Config, m metrics) (*spans, error) {
	exporter, err := newExporter(cfg.Collector)
	if err != nil {
		return nil, err
	}
	s := &spans{queue: newQueue(exporter, m, cfg.Logger)}
	// Every setting that environment variables could change is explicit here.
	s.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "bailiwickd"), attribute.String("service.version", cfg.Version))),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: 256, AttributeCountLimit: 32, EventCountLimit: 0, LinkCountLimit: 0,
		}),
		sdktrace.WithIDGenerator(givenID{}),
		sdktrace.WithSpanProcessor(s.queue),
	)
	s.tracer = s.provider.Tracer("github.com/bailiwick-dev/bailiwick")
	return s, nil
}

func (s *spans) close(ctx context.Context) error { return s.provider.Shutdown(ctx) }

// request exports the span of a request.
func (s *spans) request(r Request) {
	attrs := []attribute.KeyValue{
		attribute.String("http.route", r.Route), attribute.Int("http.response.status_code", r.Status),
	}
	s.span(r.Route, r.Trace, r.Parent, r.Start, r.End, trace.SpanKindServer, r.Status >= 500 || r.Status == 0, attrs)
}

// dispatch exports the spans of an ended attempt and its steps, and that of the
// dispatch if this was its last attempt.
func (s *spans) dispatch(d api.Dispatch) {
	if d.Trace == "" || !d.Trace.Sampled() {
		return
	}
	whole, attempt := d.Trace.Dispatch(d.ID), d.Trace.Attempt(d.ID, d.Attempt)
	outcome, reason := outcomeOf(d)
	attrs := []attribute.KeyValue{
		attribute.String("bailiwick.dispatch", string(d.ID)), attribute.Int("bailiwick.attempt", d.Attempt),
		attribute.String("bailiwick.subagent", string(d.Subagent)), attribute.String("bailiwick.role", string(d.Role)),
		attribute.String("bailiwick.tier", d.Tier.String()), attribute.String("bailiwick.target", string(d.Target)),
		attribute.String("bailiwick.outcome", outcome), attribute.String("bailiwick.reason", reason),
	}
	failed := d.State == api.EventFailed
	s.span("attempt", attempt, whole, d.Since(), *d.EndedAt, trace.SpanKindInternal, failed, attrs)
	if d.Outcome != nil {
		for i, step := range d.Outcome.Steps {
			if step.At.IsZero() {
				continue // an older worker reports no times
			}
			end := step.At.Add(time.Duration(step.Seconds * float64(time.Second)))
			s.span(stepName(step.Name), d.Trace.Step(d.ID, d.Attempt, i), attempt, step.At, end, trace.SpanKindInternal, false,
				[]attribute.KeyValue{attribute.String("bailiwick.dispatch", string(d.ID)), attribute.String("bailiwick.step", step.Name)})
		}
	}
	if d.State != api.EventNeedsInput {
		s.span("dispatch", whole, d.Trace, d.AcceptedAt, *d.EndedAt, trace.SpanKindInternal, failed, attrs)
	}
}

// span exports one span.
func (s *spans) span(name string, self, parent api.Trace, from, to time.Time, kind trace.SpanKind, failed bool, attrs []attribute.KeyValue) {
	ctx := context.WithValue(context.Background(), selfKey{}, self)
	options := []trace.SpanStartOption{trace.WithTimestamp(from), trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}
	if parent == "" {
		if !self.Sampled() {
			return
		}
		options = append(options, trace.WithNewRoot())
	} else {
		ctx = trace.ContextWithRemoteSpanContext(ctx, contextOf(parent))
	}
	_, sp := s.tracer.Start(ctx, name, options...)
	if failed {
		sp.SetStatus(codes.Error, "")
	}
	sp.End(trace.WithTimestamp(to))
}

func contextOf(t api.Trace) trace.SpanContext {
	cfg := trace.SpanContextConfig{TraceID: traceID(t), SpanID: spanID(t), Remote: true}
	if t.Sampled() {
		cfg.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(cfg)
}

func traceID(t api.Trace) (id trace.TraceID) {
	_, _ = hex.Decode(id[:], []byte(t.ID())) // an invalid id stays zero, which makes no span
	return id
}

func spanID(t api.Trace) (id trace.SpanID) {
	_, _ = hex.Decode(id[:], []byte(t.Span()))
	return id
}

type selfKey struct{}

// givenID is an id generator that takes the ids from the context.
type givenID struct{}

// NewIDs implements sdktrace.IDGenerator.
func (givenID) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	t, _ := ctx.Value(selfKey{}).(api.Trace)
	return traceID(t), spanID(t)
}

// NewSpanID implements sdktrace.IDGenerator.
func (givenID) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	t, _ := ctx.Value(selfKey{}).(api.Trace)
	return spanID(t)
}
