package command

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// flushPatience is how long the last spans of a process may take on their way: a collector that is
// away must not hold up a drain.
const flushPatience = 5 * time.Second

// Tracing exports the spans of a process where the standard OTEL_* variables say so.
type Tracing struct {
	provider *sdktrace.TracerProvider // nil: off
	log      *slog.Logger
	once     sync.Once
	client   *otlpClient // nil without a provider
}

// NewTracing reads the environment. Spans go to a collector, as OTLP over HTTP, when
// OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp is
// set; otherwise, and with OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none, there are none.
// service and instance name the process unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES do.
func NewTracing(ctx context.Context, service, instance string, log *slog.Logger) (*Tracing, error) {
	t := &Tracing{log: log}
	if on, err := tracingWanted(os.Getenv); !on {
		return t, err
	}
	client, err := newOTLPClient(os.Getenv)
	if err != nil {
		return nil, Usage("the OTEL_EXPORTER_OTLP_* variables: %v", err)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, Usage("the OTEL_EXPORTER_OTLP_* variables: %v", err)
	}
	named, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.instance.id", instance)), resource.WithFromEnv())
	if err != nil {
		return nil, Usage("OTEL_RESOURCE_ATTRIBUTES: %v", err)
	}
	// The library tells of what it could not export, and of variables that it does not understand,
	// through this one handler.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing", "error", err) }))
	t.client = client
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(named))
	return t, nil
}

// tracingWanted says whether spans are to be exported.
func tracingWanted(env func(string) string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "otlp":
	case "":
		if env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return false, nil
		}
	default:
		return false, Usage("OTEL_TRACES_EXPORTER=%q: use otlp or none", exporter)
	}
	if p := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf"); p != "http/protobuf" {
		return false, Usage("OTEL_EXPORTER_OTLP_PROTOCOL=%q: use http/protobuf, which collectors take on port 4318", p)
	}
	return true, nil
}

// Provider is what makes the spans; nil when there are to be none.
func (t *Tracing) Provider() trace.TracerProvider {
	if t.provider == nil {
		return nil
	}
	return t.provider
}

// Context returns ctx within the trace that the environment names by TRACEPARENT and TRACESTATE, if
// there is one.
func (t *Tracing) Context(ctx context.Context) context.Context {
	if t.provider == nil {
		return ctx
	}
	return tracing.With(ctx, jobs.Trace{Parent: os.Getenv("TRACEPARENT"), State: os.Getenv("TRACESTATE")})
}

// Close exports what is left, for up to 5 s. A second call does nothing.
func (t *Tracing) Close() {
	if t.provider == nil {
		return
	}
	t.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
		defer cancel()
		if err := t.provider.Shutdown(ctx); err != nil {
			t.log.Warn("the last spans were not exported", "error", err)
		}
		close(t.client.stopped)
	})
}
