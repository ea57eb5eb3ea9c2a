package tracing

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Observe adds a value to a histogram. If the span is sampled, its ids are the exemplar of the
// value, so that a dashboard leads from the value to the trace. A nil span has none.
func Observe(h prometheus.Observer, v float64, span trace.Span) {
	if span != nil {
		if s := span.SpanContext(); s.IsSampled() {
			if e, ok := h.(prometheus.ExemplarObserver); ok {
				e.ObserveWithExemplar(v, prometheus.Labels{
					"trace_id": s.TraceID().String(), "span_id": s.SpanID().String(),
				})
				return
			}
		}
	}
	h.Observe(v)
}
