package natsq

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
)

// A job's trace: its submission is a producer's span, each attempt at it a consumer's span below that one, and the storing of the result a
// producer's span below the attempt. What joins them are the headers of the messages. Names and attributes are those of OpenTelemetry's
// conventions for messaging.
//
// Without a tracer nothing is looked up, made or kept: the functions below return what they got.

const tracerName = "github.com/exoswarm/exoswarm/jobs/natsq"

// Attributes.
const (
	attrSystem      = "messaging.system"
	attrOperation   = "messaging.operation.name"
	attrType        = "messaging.operation.type"
	attrDestination = "messaging.destination.name"
	attrTemplate    = "messaging.destination.template"
	attrGroup       = "messaging.consumer.group.name"
	attrMessage     = "messaging.message.id"
	attrBodySize    = "messaging.message.body.size"
	attrBatch       = "messaging.batch.message_count"
	attrErrorType   = "error.type"
	attrKind        = "exoswarm.job.kind"
	attrLane        = "exoswarm.job.lane"
	attrTenant      = "exoswarm.job.tenant"
	attrAttempt     = "exoswarm.job.attempt"
	attrOutcome     = "exoswarm.job.outcome"
	attrWorker      = "exoswarm.worker"
)

// begin starts a span of an operation at a destination.
func (c *Conn) begin(ctx context.Context, operation, kind, destination string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return c.tracer.Start(ctx, operation+" "+destination, append(o, trace.WithAttributes(
		attribute.String(attrSystem, "nats"), attribute.String(attrOperation, operation), attribute.String(attrType, kind), attribute.String(attrDestination, destination)))...)
}

// sending starts the span of a message that is stored within a trace; outside of one there is none. destination is a stream, or what
// the names of several have in common.
func (c *Conn) sending(ctx context.Context, operation, destination string) (context.Context, trace.Span) {
	if c.tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, telemetry.NoSpan
	}
	return c.begin(ctx, operation, "send", destination, trace.WithSpanKind(trace.SpanKindProducer))
}

// within returns ctx with a span, so that what follows is below it.
func (c *Conn) within(ctx context.Context, span trace.Span) context.Context {
	if c.tracer == nil || !span.SpanContext().IsValid() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, span)
}

// endSpan ends a span, as failed unless err is nil.
func endSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		fail(span, jobs.AsError(err))
	}
	span.End()
}

func fail(span trace.Span, e *jobs.Error) {
	text := e.Message
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	span.SetAttributes(attribute.String(attrErrorType, string(e.Code)))
	span.SetStatus(codes.Error, text)
}

// inject writes the trace of ctx into the headers of a message.
func (c *Conn) inject(ctx context.Context, m *nats.Msg) {
	if c.tracer != nil {
		injectTrace(ctx, m)
	}
}

func injectTrace(ctx context.Context, m *nats.Msg) {
	t := telemetry.Of(ctx)
	if t.Parent == "" {
		return
	}
	setHeader(m, jobs.HeaderTraceparent, t.Parent)
	if t.State != "" {
		setHeader(m, jobs.HeaderTracestate, t.State)
	}
}

// extract returns ctx with the trace of a message. Headers that make no sense are ignored.
func (c *Conn) extract(ctx context.Context, h nats.Header) context.Context {
	if c.tracer == nil {
		return ctx
	}
	return telemetry.With(ctx, traceOf(h))
}

func traceOf(h nats.Header) jobs.Trace {
	return jobs.Trace{Parent: h.Get(jobs.HeaderTraceparent), State: h.Get(jobs.HeaderTracestate)}
}

// keepTrace has a message that is moved stay in its trace, also where the mover traces nothing.
func keepTrace(to *nats.Msg, from nats.Header) {
	for _, k := range []string{jobs.HeaderTraceparent, jobs.HeaderTracestate} {
		if v := from.Get(k); v != "" {
			setHeader(to, k, v)
		}
	}
}
