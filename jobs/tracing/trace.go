// Package tracing carries W3C trace context between a context and the messages of package jobs.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/exoswarm/exoswarm/jobs"
)

// maxState is the longest tracestate that is taken, in bytes: what the specification asks everybody
// to carry.
const maxState = 512

// Of returns the trace context of ctx, the zero Trace when there is none.
func Of(ctx context.Context) (t jobs.Trace) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return t
	}
	propagation.TraceContext{}.Inject(ctx, (*carrier)(&t))
	if len(t.State) > maxState {
		t.State = ""
	}
	return t
}

// With returns ctx with the sender's trace context, whose spans are children of the sender's.
// Without a valid trace context it returns ctx. A tracestate that is too long is ignored.
func With(ctx context.Context, t jobs.Trace) context.Context {
	if t.Parent == "" {
		return ctx
	}
	if len(t.State) > maxState {
		t.State = ""
	}
	return propagation.TraceContext{}.Extract(ctx, (*carrier)(&t))
}

// Tracer returns the tracer of a package, or nil for a nil provider: then nothing is to be traced.
func Tracer(p trace.TracerProvider, name string) trace.Tracer {
	if p == nil {
		return nil
	}
	return p.Tracer(name)
}

// NoSpan is a span that records nothing.
var NoSpan trace.Span = noop.Span{}

type carrier jobs.Trace

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	switch key {
	case jobs.HeaderTraceparent:
		return c.Parent
	case jobs.HeaderTracestate:
		return c.State
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) {
	switch key {
	case jobs.HeaderTraceparent:
		c.Parent = value
	case jobs.HeaderTracestate:
		c.State = value
	}
}

// Keys implements propagation.TextMapCarrier.
func (c *carrier) Keys() []string { return []string{jobs.HeaderTraceparent, jobs.HeaderTracestate} }
