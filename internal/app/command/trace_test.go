package command_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/otlptest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestTracing(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	clear := func() {
		for _, v := range []string{
			"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		} {
			t.Setenv(v, "")
		}
	}
	for _, c := range []struct {
		env  map[string]string
		on   bool
		want string // of the error
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}},
		{env: map[string]string{"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, want: "use otlp or none"},
		{
			env:  map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			want: "use http/protobuf",
		},
	} {
		clear()
		for k, v := range c.env {
			t.Setenv(k, v)
		}
		tr, err := command.NewTracing(t.Context(), "s", "i", quiet)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v", c.env, err)
			}
			continue
		}
		if err != nil || (tr.Provider() != nil) != c.on {
			t.Errorf("%v: %v, %v", c.env, tr, err)
			continue
		}
		tr.Close()
		tr.Close()
	}
}

// TestTracingEnd: the end of a process exports what is left, and a collector that does not answer
// cannot keep it.
func TestTracingEnd(t *testing.T) {
	spans := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", spans.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	t.Setenv("TRACEPARENT", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	quiet := slog.New(slog.DiscardHandler)
	tr, err := command.NewTracing(t.Context(), "s", "i", quiet)
	if err != nil {
		t.Fatal(err)
	}
	one := func(ctx context.Context, p trace.TracerProvider) {
		_, span := p.Tracer("t").Start(ctx, "one")
		span.End()
	}
	one(tr.Context(t.Context()), tr.Provider())
	tr.Close()
	if got := spans.Named("one"); len(got) != 1 || got[0].Parent != "0123456789abcdef" || got[0].Service != "s" {
		t.Errorf("%+v", got)
	}
	if !testkit.Long() {
		return // the rest waits for the time limit of Close
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
	if tr, err = command.NewTracing(t.Context(), "s", "i", quiet); err != nil {
		t.Fatal(err)
	}
	one(t.Context(), tr.Provider())
	tr.Close() // else it would last for an hour
}
