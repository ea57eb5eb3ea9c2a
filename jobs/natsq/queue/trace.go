package queue

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// StartSubmit starts the span of a submission.
func (q *Queue) StartSubmit(ctx context.Context, batch ...jobs.Job) (context.Context, trace.Span) {
	if q.conn.Tracer == nil {
		return ctx, tracing.NoSpan
	}
	ctx, span := q.conn.StartSpan(ctx, "submit", "send", wire.SourceOf(batch[0]).At(batch[0].Level()).Stream(),
		trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		if len(batch) == 1 {
			span.SetAttributes(attribute.String(natsconn.AttrMessage, batch[0].ID))
			span.SetAttributes(SourceAttributes(wire.SourceOf(batch[0]))...)
		} else {
			span.SetAttributes(attribute.Int(natsconn.AttrBatch, len(batch)))
		}
	}
	return ctx, span
}

// SourceAttributes returns the attributes of spans that belong to a source.
func SourceAttributes(s wire.Source) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(natsconn.AttrKind, s.Kind),
		attribute.String(natsconn.AttrLane, string(s.Lane)), attribute.String(natsconn.AttrTenant, s.Tenant),
	}
}
