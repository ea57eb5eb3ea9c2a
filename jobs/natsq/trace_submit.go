package natsq

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
)

// submitting starts the span of a submission.
func (c *Conn) submitting(ctx context.Context, batch ...jobs.Job) (context.Context, trace.Span) {
	if c.tracer == nil {
		return ctx, telemetry.NoSpan
	}
	ctx, span := c.begin(ctx, "submit", "send", jobStream(batch[0].Pool), trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		if len(batch) == 1 {
			span.SetAttributes(attribute.String(attrMessage, batch[0].ID))
			span.SetAttributes(sourceOf(batch[0]).attributes()...)
		} else {
			span.SetAttributes(attribute.Int(attrBatch, len(batch)))
		}
	}
	return ctx, span
}

// received makes the span of a wait for a result: of the waiter's trace, or else of the job's.
func (c *Conn) received(ctx context.Context, r jobs.Result, h nats.Header, began time.Time) {
	if c.tracer == nil {
		return
	}
	from := trace.SpanContextFromContext(c.extract(context.Background(), h))
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	}
	o := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began)}
	if from.IsValid() {
		o = append(o, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	_, span := c.begin(ctx, "receive", "receive", resultStream, o...)
	if span.IsRecording() {
		span.SetAttributes(attribute.String(attrMessage, r.JobID))
	}
	span.End()
}

// attributes of a source.
func (s source) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String(attrKind, s.kind), attribute.String(attrLane, string(s.lane)), attribute.String(attrTenant, s.tenant)}
}
