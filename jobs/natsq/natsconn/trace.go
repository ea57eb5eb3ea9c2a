package natsconn

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// A job's trace: its submission is a producer's span, each attempt at it a consumer's span below
// that one, and the storing of the result a producer's span below the attempt. What joins them are
// the headers of the messages. Names and attributes follow OpenTelemetry's conventions for
// messaging.
//
// Without a tracer nothing is looked up, made or kept: the functions below return what they got.

const tracerName = "github.com/exoswarm/exoswarm/jobs/natsq"

// Attributes.
const (
	AttrSystem      = "messaging.system"
	attrOperation   = "messaging.operation.name"
	attrType        = "messaging.operation.type"
	AttrDestination = "messaging.destination.name"
	AttrTemplate    = "messaging.destination.template"
	AttrGroup       = "messaging.consumer.group.name"
	AttrMessage     = "messaging.message.id"
	AttrBodySize    = "messaging.message.body.size"
	AttrBatch       = "messaging.batch.message_count"
	attrErrorType   = "error.type"
	AttrKind        = "exoswarm.job.kind"
	AttrLane        = "exoswarm.job.lane"
	AttrTenant      = "exoswarm.job.tenant"
	AttrAttempt     = "exoswarm.job.attempt"
	AttrOutcome     = "exoswarm.job.outcome"
	AttrWorker      = "exoswarm.worker"
)

// MaxReason is the maximum length in bytes of a reason in a header or a span. A header and a job of
// the largest size must fit into one message.
const MaxReason = 4096

// StartSpan starts a span of an operation at a destination.
func (c *Conn) StartSpan(ctx context.Context, operation, kind, destination string,
	o ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return c.Tracer.Start(ctx, operation+" "+destination, append(o, trace.WithAttributes(
		attribute.String(AttrSystem, "nats"), attribute.String(attrOperation, operation),
		attribute.String(attrType, kind), attribute.String(AttrDestination, destination)))...)
}

// StartSend starts the span of a message that is stored within a trace; outside of one there is
// none. destination is a stream, or what the names of several have in common.
func (c *Conn) StartSend(ctx context.Context, operation, destination string) (context.Context, trace.Span) {
	if c.Tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, tracing.NoSpan
	}
	return c.StartSpan(ctx, operation, "send", destination, trace.WithSpanKind(trace.SpanKindProducer))
}

// WithSpan returns ctx with a span, so that what follows is below it.
func (c *Conn) WithSpan(ctx context.Context, span trace.Span) context.Context {
	if c.Tracer == nil || !span.SpanContext().IsValid() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, span)
}

// EndSpan ends a span, as failed unless err is nil.
func EndSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		FailSpan(span, jobs.AsError(err))
	}
	span.End()
}

// FailSpan marks a span as failed, with the code and at most MaxReason bytes of the message.
func FailSpan(span trace.Span, e *jobs.Error) {
	text := e.Message
	if len(text) > MaxReason {
		text = text[:MaxReason]
	}
	span.SetAttributes(attribute.String(attrErrorType, string(e.Code)))
	span.SetStatus(codes.Error, text)
}

// Inject writes the trace of ctx into the headers of a message.
func (c *Conn) Inject(ctx context.Context, m *nats.Msg) {
	if c.Tracer != nil {
		InjectTrace(ctx, m)
	}
}

// InjectTrace writes the trace of ctx into the headers of a message, whether or not this connection
// traces.
func InjectTrace(ctx context.Context, m *nats.Msg) {
	t := tracing.Of(ctx)
	if t.Parent == "" {
		return
	}
	SetHeader(m, jobs.HeaderTraceparent, t.Parent)
	if t.State != "" {
		SetHeader(m, jobs.HeaderTracestate, t.State)
	}
}

// Extract returns ctx with the trace of a message. Headers that make no sense are ignored.
func (c *Conn) Extract(ctx context.Context, h nats.Header) context.Context {
	if c.Tracer == nil {
		return ctx
	}
	return tracing.With(ctx, TraceOf(h))
}

// TraceOf returns the trace in the headers of a message; it is empty if they have none.
func TraceOf(h nats.Header) jobs.Trace {
	return jobs.Trace{Parent: h.Get(jobs.HeaderTraceparent), State: h.Get(jobs.HeaderTracestate)}
}

// CopyTrace has a message that is moved stay in its trace, also where the mover traces nothing.
func CopyTrace(to *nats.Msg, from nats.Header) {
	for _, k := range []string{jobs.HeaderTraceparent, jobs.HeaderTracestate} {
		if v := from.Get(k); v != "" {
			SetHeader(to, k, v)
		}
	}
}
