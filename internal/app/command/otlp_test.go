package command

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestCollectorVariables: the variables of traces come before the general ones, and a wrong one is
// refused with what to write.
func TestCollectorVariables(t *testing.T) {
	for _, c := range []struct{ env, url, want string }{
		{"", "https://localhost:4318/v1/traces", ""},
		{"ENDPOINT=http://a:1/", "http://a:1/v1/traces", ""},
		{"ENDPOINT=http://a:1 TRACES_ENDPOINT=https://b/x", "https://b/x", ""},
		{"ENDPOINT=a:1", "", "write a URL"},
		{"COMPRESSION=zstd", "", "use gzip or none"},
		{"TIMEOUT=1s", "", "write milliseconds"},
		{"HEADERS=key", "", "write name=value"},
		{"CERTIFICATE=/none", "", "CERTIFICATE: open /none"},
		{"CLIENT_KEY=/none", "", "CLIENT_CERTIFICATE and CLIENT_KEY"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env["OTEL_EXPORTER_OTLP_"+name] = value
		}
		got, err := newOTLPClient(func(name string) string { return env[name] })
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %s", c.env, err, c.want)
		case c.want == "" && (err != nil || got.url != c.url):
			t.Errorf("%q: %+v, %v, want %s", c.env, got, err, c.url)
		}
	}
}

// TestCollector: spans reach a collector packed and with headers. A collector that is busy is asked
// again, and one that refuses is not.
func TestCollector(t *testing.T) {
	var calls, status atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		var got tracepb.TracesData
		if err := errors.Join(err, proto.Unmarshal(body, &got)); err != nil || len(got.ResourceSpans) != 1 ||
			r.Header.Get("X-Key") != "a b" || r.URL.Path != "/v1/traces" {
			t.Errorf("the collector got %s with %v, %v", r.URL, r.Header, err)
		}
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("no such tenant"))
	}))
	defer s.Close()
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b",
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip",
	}
	c, err := newOTLPClient(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	spans := []*tracepb.ResourceSpans{{SchemaUrl: "u"}}
	status.Store(http.StatusOK)
	if err := c.UploadTraces(t.Context(), spans); err != nil || calls.Load() != 2 {
		t.Errorf("a busy collector: %v after %d calls, want 2", err, calls.Load())
	}
	status.Store(http.StatusForbidden)
	if err := c.UploadTraces(t.Context(), spans); err == nil || !strings.Contains(err.Error(), "no such tenant") ||
		calls.Load() != 3 {
		t.Errorf("a refusal: %v after %d calls, want 3", err, calls.Load())
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
