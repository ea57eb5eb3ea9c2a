package command_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{}
	command.MetricsFlag(cmd.Flags())
	log := slog.New(slog.DiscardHandler)
	var sick atomic.Bool
	healthy := func(context.Context) error {
		if sick.Load() {
			return errors.New("the device is lost")
		}
		return nil
	}
	silent, err := command.NewMetrics(cmd, log)
	if err != nil || silent.Addr() != "" {
		t.Fatalf("%q, %v", silent.Addr(), err)
	}
	silent.Close()
	if err := cmd.Flags().Set("metrics", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	m, err := command.NewMetrics(cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	m.Require("devices", func(context.Context) error { return errors.New("replaced below") })
	m.Require("devices", healthy)
	url := "http://" + m.Addr()
	if code, body := get(t, url+"/metrics"); code != 200 || !strings.Contains(body, "go_goroutines") ||
		!strings.Contains(body, "go_build_info") || !strings.Contains(body, `exoswarm_build_info{go_version="go1.`) {
		t.Errorf("%d: %s", code, body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/livez"} {
		if code, body := get(t, url+path); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d: %s", path, code, body)
		}
	}
	if _, body := get(t, url+"/metrics"); !strings.Contains(body, "\nexoswarm_ready 1\n") {
		t.Errorf("the process is ready, and the metrics do not say so: %s", body)
	}
	sick.Store(true)
	// a check that hangs
	m.Require("queue", func(ctx context.Context) error { <-ctx.Done(); return errors.New("no answer") })
	t.Run("sick", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			t.Run(path, func(t *testing.T) {
				t.Parallel() // each waits for the check that hangs
				code, body := get(t, url+path)
				switch {
				case path == "/metrics":
					if !strings.Contains(body, "\nexoswarm_ready 0\n") {
						t.Errorf("the process is not ready, and the metrics do not say so: %s", body)
					}
				case code != 503 || body != "devices: the device is lost\nqueue: no answer\n":
					t.Errorf("%d: %s", code, body)
				}
			})
		}
	})
	if code, body := get(t, url+"/livez"); code != 200 {
		t.Errorf("/livez of a process that is alive but not ready: %d: %s", code, body)
	}
	if err := cmd.Flags().Set("metrics", m.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := command.NewMetrics(cmd, log); err == nil || !strings.Contains(err.Error(), m.Addr()) {
		t.Errorf("a port twice: %v", err)
	}
	m.Close()
	m.Close()
}

// TestOpenMetrics: a client that accepts OpenMetrics gets it, with the trace of a sampled span as
// an exemplar; another one gets the text format. Log lines are counted by level.
func TestOpenMetrics(t *testing.T) {
	cmd := &cobra.Command{Annotations: map[string]string{command.ProgramAnnotation: "whole"}}
	command.MetricsFlag(cmd.Flags())
	command.LogFlags(cmd.Flags())
	cmd.SetErr(io.Discard)
	if err := cmd.Flags().Set("metrics", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	before := slog.Default()
	defer slog.SetDefault(before)
	log, err := command.Logger(cmd)
	if err != nil {
		t.Fatal(err)
	}
	m, err := command.NewMetrics(cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "exoswarm_test_seconds", Help: "Test."})
	m.MustRegister(h)
	span := trace.SpanContextFromContext(tracing.With(t.Context(), jobs.Trace{
		Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}))
	tracing.Observe(h, 0.1, trace.SpanFromContext(trace.ContextWithSpanContext(t.Context(), span)))
	tracing.Observe(h, 0.2, nil)
	log.Warn("count me")
	fetch := func(accept string) (string, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.Addr()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Get("Content-Type"), string(body)
	}
	kind, body := fetch("application/openmetrics-text; version=1.0.0")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(body, "# EOF\n") ||
		!strings.Contains(body, `trace_id="0af7651916cd43dd8448eb211c80319c"`) ||
		!strings.Contains(body, `span_id="b7ad6b7169203331"`) || strings.Count(body, "trace_id") != 1 {
		t.Errorf("%s: %s", kind, body)
	}
	if strings.Contains(body, `exoswarm_log_messages_total{level="warn"} 0.0`) ||
		!strings.Contains(body, `exoswarm_log_messages_total{level="warn"} `) {
		t.Errorf("the line of level warn is not counted: %s", body)
	}
	if !strings.Contains(body, `program="whole"`) {
		t.Errorf("the program of the annotation is not named: %s", body)
	}
	kind, body = fetch("text/plain")
	if !strings.HasPrefix(kind, "text/plain") || strings.Contains(body, "# EOF") || strings.Contains(body, "trace_id") {
		t.Errorf("%s: %s", kind, body)
	}
}
