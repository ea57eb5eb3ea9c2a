package natsq

import (
	"context"
	"time"

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

// sending starts the span of a message that is stored within a trace; outside of one there is none. destination is a stream, or what
// the names of several have in common.
func (c *Conn) sending(ctx context.Context, operation, destination string) (context.Context, trace.Span) {
	if c.tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, telemetry.NoSpan
	}
	return c.begin(ctx, operation, "send", destination, trace.WithSpanKind(trace.SpanKindProducer))
}

// processing starts the span of one attempt at a job, below that of whoever submitted it.
func (c *Conn) processing(ctx context.Context, t *task) trace.Span {
	if c.tracer == nil {
		return telemetry.NoSpan
	}
	_, span := c.begin(c.extract(ctx, t.m.Header), "process", "process", jobStream(t.src.pool), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(t.began))
	if span.IsRecording() {
		span.SetAttributes(attribute.String(attrMessage, t.id), attribute.Int(attrBodySize, len(t.m.Data)), attribute.String(attrGroup, t.src.consumer()),
			attribute.Int(attrAttempt, t.attempt))
		span.SetAttributes(t.src.attributes()...)
	}
	return span
}

// batching starts the span of one run of a batch. It is in no job's trace: links lead to the attempts, and from them to it.
func (c *Conn) batching(tasks []*task) trace.Span {
	if c.tracer == nil {
		return telemetry.NoSpan
	}
	links := make([]trace.Link, 0, len(tasks))
	for _, t := range tasks {
		if s := t.span.SpanContext(); s.IsSampled() {
			links = append(links, trace.Link{SpanContext: s})
		}
	}
	if len(links) == 0 { // nobody would find it
		return telemetry.NoSpan
	}
	_, span := c.begin(context.Background(), "process", "process", jobStream(tasks[0].src.pool), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int(attrBatch, len(tasks)), attribute.String(attrKind, tasks[0].src.kind)))
	for _, t := range tasks {
		t.span.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return span
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

// outcome says what became of an attempt that leaves no result, or of a batch.
func outcome(span trace.Span, what string, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attrOutcome, what))
	if err != nil {
		fail(span, jobs.AsError(err))
	}
}

// settled says how the job of an attempt ended.
func settled(span trace.Span, r jobs.Result) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attrOutcome, string(r.Status)), attribute.String(attrWorker, r.Worker))
	if r.Error != nil {
		fail(span, r.Error)
	}
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

func setHeader(m *nats.Msg, key, value string) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[key] = []string{value}
}
