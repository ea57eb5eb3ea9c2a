package jobs

// Headers of a message that is part of a trace, as the W3C has them.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// Trace is the trace context of a message: the values of its headers, as they came. No decision
// relies on it. Empty for none.
type Trace struct{ Parent, State string }
