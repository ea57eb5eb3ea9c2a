package natsq

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// processing starts the span of one attempt at a job, as a child of the span of its submission.
func (c *Conn) processing(ctx context.Context, t *task) trace.Span {
	if c.Tracer == nil {
		return tracing.NoSpan
	}
	_, span := c.StartSpan(c.Extract(ctx, t.m.Header), "process", "process", t.src.Stream(),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(t.began))
	if span.IsRecording() {
		span.SetAttributes(attribute.String(natsconn.AttrMessage, t.id),
			attribute.Int(natsconn.AttrBodySize, len(t.m.Data)), attribute.String(natsconn.AttrGroup, t.src.Consumer()),
			attribute.Int(natsconn.AttrAttempt, t.attempt))
		span.SetAttributes(queue.SourceAttributes(t.src)...)
	}
	return span
}

// batching starts the span of one run of a batch. The span is in no trace of a job; links connect
// it with the attempts of the jobs.
func (c *Conn) batching(tasks []*task) trace.Span {
	if c.Tracer == nil {
		return tracing.NoSpan
	}
	links := make([]trace.Link, 0, len(tasks))
	for _, t := range tasks {
		if s := t.span.SpanContext(); s.IsSampled() {
			links = append(links, trace.Link{SpanContext: s})
		}
	}
	if len(links) == 0 { // no trace would lead to it
		return tracing.NoSpan
	}
	_, span := c.StartSpan(context.Background(), "process", "process", tasks[0].src.Stream(),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int(natsconn.AttrBatch, len(tasks)),
			attribute.String(natsconn.AttrKind, tasks[0].src.Kind)))
	for _, t := range tasks {
		t.span.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return span
}

// outcome records the end of an attempt without a result, or of a batch.
func outcome(span trace.Span, what string, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(natsconn.AttrOutcome, what))
	if err != nil {
		natsconn.FailSpan(span, jobs.AsError(err))
	}
}

// settled records the result of the job of an attempt.
func settled(span trace.Span, r jobs.Result) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(natsconn.AttrOutcome, string(r.Status)),
		attribute.String(natsconn.AttrWorker, r.Worker))
	if r.Error != nil {
		natsconn.FailSpan(span, r.Error)
	}
}
