package tracing_test

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// FuzzTrace: a stranger's trace context is taken on as it is, or ignored, and what is passed on is
// bounded.
func FuzzTrace(f *testing.F) {
	f.Add("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "a=b,c@d=e")
	f.Add("cc-0123456789abcdef0123456789abcdef-0123456789abcdef-01-what-the-future-will-be",
		strings.Repeat("a=b,", 200))
	f.Add("ff-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "=")
	f.Add("00-00000000000000000000000000000000-0000000000000000-00", ",,,")
	var long []string // each member valid, all together too long
	for i := range 20 {
		long = append(long, fmt.Sprintf("key%d=%s", i, strings.Repeat("v", 40)))
	}
	f.Add("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", strings.Join(long, ","))
	f.Fuzz(func(t *testing.T, parent, state string) {
		ctx := tracing.With(t.Context(), jobs.Trace{Parent: parent, State: state})
		s := trace.SpanContextFromContext(ctx)
		out := tracing.Of(ctx)
		if !s.IsValid() {
			if ctx != t.Context() && s.HasTraceID() || out != (jobs.Trace{}) {
				t.Fatalf("%+v of what is no trace context", out)
			}
			return
		}
		if !s.IsRemote() || len(out.Parent) != 55 || len(out.State) > 512 || len(s.TraceState().String()) > 512 ||
			!strings.Contains(out.Parent, s.TraceID().String()) {
			t.Fatalf("%+v", out)
		}
		if again := tracing.Of(tracing.With(t.Context(), out)); again != out {
			t.Fatalf("%+v, then %+v", out, again)
		}
	})
}
