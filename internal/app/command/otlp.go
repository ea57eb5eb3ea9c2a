package command

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/exoswarm/exoswarm/internal/base/retry"
)

// otlpClient sends spans to a collector, as protobuf over HTTP. It implements otlptrace.Client. The
// client of OpenTelemetry (otlptracehttp) links gRPC and its gateway for the type of one answer, and
// takes 11 MB of downloads.
type otlpClient struct {
	url     string
	headers http.Header
	gzip    bool
	client  *http.Client
	stopped chan struct{} // closed when no upload may go on; nobody sends
}

// maxCollectorAnswer bounds what is read of an answer, in bytes.
const maxCollectorAnswer = 4 << 10

// collectorRetries takes 15 s at most; a batch of spans has 30 s.
var collectorRetries = retry.Policy{Tries: 5, Base: 500 * time.Millisecond}

// newOTLPClient reads the variables OTEL_EXPORTER_OTLP_NAME and OTEL_EXPORTER_OTLP_TRACES_NAME, of
// which the latter comes first.
func newOTLPClient(env func(string) string) (*otlpClient, error) {
	get := func(name string) string {
		return cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_"+name), env("OTEL_EXPORTER_OTLP_"+name))
	}
	at := env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if at == "" {
		at = strings.TrimRight(cmp.Or(env("OTEL_EXPORTER_OTLP_ENDPOINT"), "https://localhost:4318"), "/") + "/v1/traces"
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q: write a URL such as http://127.0.0.1:4318", at)
	}
	c := &otlpClient{
		url: u.String(), headers: http.Header{"Content-Type": {"application/x-protobuf"}}, stopped: make(chan struct{}),
	}
	for pair := range strings.SplitSeq(get("HEADERS"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, errors.New("HEADERS: write name=value,name=value with values as in a URL")
		}
		c.headers.Set(name, value)
	}
	switch v := get("COMPRESSION"); v {
	case "gzip":
		c.gzip = true
		c.headers.Set("Content-Encoding", "gzip")
	case "", "none":
	default:
		return nil, fmt.Errorf("COMPRESSION=%q: use gzip or none", v)
	}
	timeout := 10 * time.Second
	if v := get("TIMEOUT"); v != "" {
		ms, err := strconv.ParseInt(v, 10, 32)
		if err != nil || ms < 1 {
			return nil, fmt.Errorf("TIMEOUT=%q: write milliseconds, 1 or more", v)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = collectorTLS(get); err != nil {
		return nil, err
	}
	c.client = &http.Client{Transport: transport, Timeout: timeout}
	return c, nil
}

// collectorTLS returns the settings of TLS; nil for the settings of the system.
func collectorTLS(get func(string) string) (*tls.Config, error) {
	ca, cert, key := get("CERTIFICATE"), get("CLIENT_CERTIFICATE"), get("CLIENT_KEY")
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	o := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("CERTIFICATE: %w", err)
		}
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("CERTIFICATE: %s has no certificate in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("CLIENT_CERTIFICATE and CLIENT_KEY: %w", err)
		}
		o.Certificates = []tls.Certificate{pair}
	}
	return o, nil
}

// Start implements otlptrace.Client.
func (*otlpClient) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *otlpClient) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It repeats what a collector refuses for the moment
// until ctx ends or stopped is closed. The library gives a context that outlasts its own shutdown.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	// TracesData has the bytes of the request of a collector.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(body)
		if err := errors.Join(err, z.Close()); err != nil {
			return fmt.Errorf("pack spans: %w", err)
		}
		body = b.Bytes()
	}
	return collectorRetries.Do(ctx, func() (time.Duration, error) { return c.post(ctx, body) })
}

// post sends a request once. It returns how long the collector asks to wait.
func (c *otlpClient) post(ctx context.Context, body []byte) (wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, retry.Permanent(err)
	}
	r.Header = c.headers.Clone()
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, fmt.Errorf("send spans: %w", err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxCollectorAnswer)) // for the message alone
	if resp.StatusCode/100 == 2 {
		return 0, nil
	}
	err = fmt.Errorf("send spans to %s: %s: %q", r.URL.Redacted(), resp.Status, bytes.TrimSpace(text))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		s, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 for a date
		return time.Duration(min(max(s, 0), 60)) * time.Second, err
	}
	return 0, retry.Permanent(err)
}

var _ otlptrace.Client = (*otlpClient)(nil)
