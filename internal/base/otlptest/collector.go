// Package otlptest is a collector of OpenTelemetry spans for tests: it takes what an exporter sends
// over HTTP.
package otlptest

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one span that was exported.
type Span struct {
	Trace, ID, Parent string // hexadecimal; Parent is empty for a root
	Name, Service     string
	Kind              tracepb.Span_SpanKind
	Failed            bool
	State             string // tracestate
	Text              map[string]string
	Number            map[string]int64
	Links             []string // ids of spans
}

// Collector takes spans until its test ends. Its methods may be called from several goroutines.
type Collector struct {
	// URL is for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu    sync.Mutex
	spans []Span
	bad   []string
	more  chan struct{} // closed and made anew with every export
}

// Start starts a collector on loopback.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{more: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(c.take))
	c.URL = s.URL
	t.Cleanup(func() {
		s.Close()
		for _, b := range c.bad {
			t.Error(b)
		}
	})
	return c
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req tracepb.TracesData // the same on the wire as the request that has it
	if err == nil {
		err = proto.Unmarshal(body, &req)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.bad = append(c.bad, "an export to "+r.URL.Path+" of type "+r.Header.Get("Content-Type")+" is not OTLP")
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	for _, rs := range req.ResourceSpans {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, read(service, s))
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
}

func read(service string, s *tracepb.Span) Span {
	out := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
		Parent: hex.EncodeToString(s.ParentSpanId),
		Name:   s.Name, Service: service, Kind: s.Kind,
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, State: s.TraceState,
		Text: map[string]string{}, Number: map[string]int64{},
	}
	for _, a := range s.Attributes {
		out.Text[a.Key] = a.Value.GetStringValue()
		out.Number[a.Key] = a.Value.GetIntValue()
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.SpanId))
	}
	return out
}

// Named returns the spans of a name so far.
func (c *Collector) Named(name string) (all []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

// Wait waits until n spans of a name are there.
func (c *Collector) Wait(t testing.TB, name string, n int) []Span {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		c.mu.Lock()
		more := c.more
		c.mu.Unlock()
		if all := c.Named(name); len(all) >= n {
			return all
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("%d spans %q, want %d", len(c.Named(name)), name, n)
		}
	}
}
