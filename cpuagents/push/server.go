// Package push takes rows over HTTP and stores them on the queue, where sources at push:NAME read
// them.
package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
)

// Queue is the part of the queue that an endpoint needs. Several requests call it concurrently.
type Queue interface {
	// Push stores frames of rows, all or none, and returns when they are on disk. again reports
	// that the key was stored before. It fails with jobs.ErrFull while too much waits to be read,
	// and with jobs.ErrUnavailable while the queue cannot be reached.
	Push(ctx context.Context, name, key string, frames [][]byte) (again bool, err error)
}

// Options configure Listen. The zero value of a field has the default that its comment states.
// Addr, Queue and Logger are required.
type Options struct {
	// Addr is HOST:PORT to listen on. Any host but a loopback address needs Tokens.
	Addr string
	// Cert and Key are files in PEM for TLS 1.2 or later; both, or neither for plain HTTP.
	Cert, Key string
	// Tokens refer to the secrets that may push, by name of an endpoint. A name without a token
	// takes nothing. nil: every name takes rows from everybody.
	Tokens  map[string][]string
	Secrets *access.Store // nil: secrets of the environment
	Queue   Queue
	Logger  *slog.Logger
	// MaxBody bounds a body in bytes as it arrives; 0 means 16 MiB. MaxRows bounds its rows; 0
	// means 1,000,000. The unpacked body, and its rows as JSON, are bounded by four times MaxBody
	// each.
	MaxBody int64
	MaxRows int
	// Timeout bounds the arrival of a body, and the answer of the queue, each; 0 means 30 s.
	Timeout time.Duration
	// Memory bounds the memory of bodies while they are decoded; nil for the bound of the endpoint
	// alone.
	Memory *access.Memory
	// Metrics registers the counters of the endpoint; nil for none.
	Metrics prometheus.Registerer
}

// The defaults of Options, and bounds of a whole endpoint.
const (
	defaultBody    = 16 << 20
	defaultRows    = 1_000_000
	defaultTimeout = 30 * time.Second

	// maxRest bounds in bytes the rest of a refused body that is read. It is net/http's bound.
	maxRest = 256 << 10
	// maxRequests bounds the requests in progress. maxHeld bounds their bytes, a body and its rows
	// each. A request beyond one of these is told to try again. maxParsers bounds the bodies that
	// are decoded at a time: a record batch of Arrow may unpack to 256 MiB.
	maxRequests = 512
	maxHeld     = 256 << 20
	maxParsers  = 4
	// retryAfter is the pause before a client tries again.
	retryAfter = 5 * time.Second
)

// ParseTokens parses NAME=REF, as operators write which secret may push to a name. REF is env:NAME
// or file:NAME. A name may have several tokens: each is enough. The result is nil for an empty
// list. Secrets are not read here.
func ParseTokens(list []string) (map[string][]string, error) {
	var tokens map[string][]string
	for _, t := range list {
		name, ref, ok := strings.Cut(t, "=")
		if !ok || jobs.CheckID("name", name) != nil || ref == "" {
			return nil, jobs.Errorf(
				jobs.CodeInvalid,
				"--push-token %q: write NAME=env:SECRET or NAME=file:SECRET, with a name of letters, digits, '-' "+
					"and '_'",
				name,
			)
		}
		if tokens == nil {
			tokens = map[string][]string{}
		}
		tokens[name] = append(tokens[name], ref)
	}
	return tokens, nil
}

// Server is an endpoint that takes rows over HTTP and stores them on the queue. Close ends it. The
// server of net/http calls its methods concurrently.
type Server struct {
	o      Options
	server *httpapi.Server
	addr   net.Addr
	ended  chan struct{}
	places httpapi.Gate    // of the requests in progress
	bodies *httpapi.Bodies // the bodies and their rows in memory, whose bytes are reserved of Options.Memory
	// parsers has a place for each body that is decoded.
	parsers chan struct{}
	counts  *prometheus.CounterVec
	rows    prometheus.Counter
	// dropped counts samples of remote write that are no rows.
	dropped *prometheus.CounterVec
}

func newCounts() (requests *prometheus.CounterVec, rows prometheus.Counter, dropped *prometheus.CounterVec) {
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "exoswarm", Subsystem: "push", Name: "requests_total", Help: "Requests to the push endpoint.",
	}, []string{"status"})
	rows = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "exoswarm", Subsystem: "push", Name: "rows_total",
		Help: "Rows that the push endpoint has stored. Repeated rows are not counted.",
	})
	dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "exoswarm", Subsystem: "push", Name: "dropped_samples_total",
		Help: "Samples of Prometheus remote write that are no rows.",
	}, []string{"reason"})
	return requests, rows, dropped
}

// Collectors returns collectors that describe the metrics of an endpoint, for documents.
func Collectors() []prometheus.Collector {
	requests, rows, dropped := newCounts()
	return []prometheus.Collector{requests, rows, dropped}
}

// Listen checks the options and serves until Close. A mistake in the options is an error of class
// jobs.CodeInvalid, and nothing listens then. It reserves memory of o.Memory for bodies until
// Close.
func Listen(o Options) (_ *Server, err error) {
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "push endpoint %s: %s", o.Addr, fmt.Sprintf(format, args...))
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultBody
	}
	if o.MaxRows == 0 {
		o.MaxRows = defaultRows
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Secrets == nil {
		o.Secrets = &access.Store{}
	}
	if o.MaxBody < 1 || o.MaxBody > maxHeld/4 || o.MaxRows < 1 || o.Timeout < 0 {
		return nil, bad(
			"bodies of %d bytes and %d rows: use 1 to %d bytes and 1 or more rows", o.MaxBody, o.MaxRows, maxHeld/4,
		)
	}
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, bad("write HOST:PORT, such as 127.0.0.1:8080")
	}
	if !httpapi.Loopback(host) && len(o.Tokens) == 0 {
		return nil, bad("whoever reaches it could push: listen on 127.0.0.1, or say who may with --push-token NAME=REF")
	}
	for name, refs := range o.Tokens {
		for _, ref := range refs {
			// A token that is missing now would show only when somebody pushes. It is read again at
			// each request, so it may change.
			if _, err := o.Secrets.Get(ref); err != nil {
				return nil, bad("the token of %s: %v", name, err)
			}
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		return nil, bad("a certificate and its key go together")
	}
	var secure *tls.Config
	if o.Cert != "" {
		cert, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, bad("%v", err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	}
	most := int64(maxHeld)
	if o.Memory != nil {
		most = max(min(most, o.Memory.Limit()/4), 4*o.MaxBody)
		// What is left must do for jobs: with nothing each of them would fail, one that reads no
		// push too.
		if !o.Memory.Reserve(most) {
			return nil, bad(
				"bodies of %s take up to %s of the %s that sources have, and too little is left for jobs: raise "+
					"--memory or lower --push-max-body",
				memory.Text(o.MaxBody), memory.Text(most), memory.Text(o.Memory.Limit()),
			)
		}
		defer func() {
			if err != nil {
				o.Memory.Unreserve(most)
			}
		}()
	}
	// The socket is opened last, so nothing can connect to an endpoint that then fails.
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, bad("%v", err)
	}
	counts, rows, dropped := newCounts()
	p := &Server{
		o: o, addr: l.Addr(), ended: make(chan struct{}), places: httpapi.NewGate(maxRequests),
		bodies: httpapi.NewBodies(most), parsers: make(chan struct{}, maxParsers),
		counts: counts, rows: rows, dropped: dropped,
	}
	if o.Metrics != nil {
		if err := errors.Join(
			o.Metrics.Register(p.counts), o.Metrics.Register(p.rows), o.Metrics.Register(p.dropped),
		); err != nil {
			_ = l.Close()
			return nil, bad("%v", err)
		}
	}
	mux := http.NewServeMux()
	httpapi.Register(mux, "/", []httpapi.Route{
		{Method: http.MethodPost, Path: "v1/push/{name}", Name: "push", Serve: p.serve},
	}, p.fail)
	if secure != nil {
		l = tls.NewListener(l, secure)
	} else if !httpapi.Loopback(host) {
		o.Logger.Warn("tokens and rows can be read on their way: give the push endpoint a certificate", "addr", o.Addr)
	}
	p.server = httpapi.Start(l, httpapi.Config{
		Handler: mux, Read: o.Timeout, Write: 3 * o.Timeout, Idle: time.Minute, MaxHeader: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), // what strangers send is no error of ours
	})
	go func() {
		defer close(p.ended)
		if o.Memory != nil {
			defer o.Memory.Unreserve(most)
		}
		if err := p.server.Err(); err != nil {
			o.Logger.Error("pushes are not taken any more", "error", err)
		}
	}()
	o.Logger.Info("taking pushes", "addr", p.addr.String(), "tls", secure != nil, "names", len(o.Tokens))
	return p, nil
}

// Addr returns the address on which it listens. With port 0 in Options.Addr it has the port that
// the system chose.
func (p *Server) Addr() string { return p.addr.String() }

// Close refuses new requests and lets the requests in progress finish until ctx ends; then it
// closes their connections. A second call does nothing. The memory of bodies is free when it
// returns. It does not end the queue.
func (p *Server) Close(ctx context.Context) {
	p.server.Close(ctx)
	<-p.ended
}

// refuse returns an answer with a status of HTTP and a text, which the client sees. Trying again
// does not help.
func refuse(status int, format string, args ...any) error {
	return httpapi.Errorf(status, format, args...)
}

// serve answers one request with JSON. Every answer says whether rows were stored: 202 means all of
// them, and any other status none, except that after 503 the client learns it by the same request
// with the same key.
func (p *Server) serve(w http.ResponseWriter, r *httpapi.Request) error {
	rows, again, err := p.take(w, r.Request)
	if err != nil {
		return err
	}
	answer := map[string]any{"rows": rows}
	if again {
		answer["again"] = true
	} else {
		p.rows.Add(float64(rows))
	}
	p.count(http.StatusAccepted)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	httpapi.WriteJSON(w, http.StatusAccepted, answer)
	return nil
}

// fail answers a request that was refused. Retry-After has the pause in seconds, if trying again
// helps.
func (p *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	// net/http reads no rest of a body whose client asked for a closed connection. The rest is read
	// here, up to a bound, or the client gets a reset in place of the answer.
	_, _ = io.CopyN(io.Discard, r.Body, maxRest)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	answer := p.class(r, err)
	p.count(answer.Status)
	answer.Write(w)
}

func (p *Server) count(status int) { p.counts.WithLabelValues(strconv.Itoa(status)).Inc() }

// class returns the answer to an error. An unknown error is logged, and the client gets no detail
// of it. The answer says whether trying again helps: 429 and 503 have a pause, every other error
// needs another request.
func (p *Server) class(r *http.Request, err error) *httpapi.Error {
	var no *httpapi.Error
	var long *http.MaxBytesError
	var large tooLarge
	var ended access.Interrupted
	var over access.OverLimit
	switch {
	case errors.As(err, &no):
		return no
	case errors.As(err, &long):
		return httpapi.Errorf(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes: push less at a time",
			p.o.MaxBody)
	case errors.As(err, &ended), errors.Is(err, httpapi.ErrBusy): // no memory came free in time
		return errBusy
	case errors.As(err, &over):
		return httpapi.Errorf(http.StatusRequestEntityTooLarge, "%v", over)
	case errors.As(err, &large):
		return httpapi.Errorf(http.StatusRequestEntityTooLarge, "the body: %v", large)
	case errors.Is(err, jobs.ErrFull):
		return later(http.StatusTooManyRequests, "too much waits to be read: come again later")
	case errors.Is(err, jobs.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return later(http.StatusServiceUnavailable, "the queue cannot be reached: come again later with the same body "+
			"and Idempotency-Key, if it had one: it is stored once")
	case errors.Is(err, httpapi.ErrSlow):
		return httpapi.Errorf(http.StatusRequestTimeout, "the body did not come in time")
	case errors.Is(err, httpapi.ErrCut):
		return httpapi.Errorf(http.StatusBadRequest, "the body was cut off")
	}
	p.o.Logger.Error("a push was not stored", "name", r.PathValue("name"), "error", err)
	return httpapi.Errorf(http.StatusInternalServerError, "it was not stored: the agent's log says why")
}

func later(status int, text string) *httpapi.Error {
	return &httpapi.Error{Status: status, After: retryAfter, Text: text}
}

// errBusy: there is no room for another request.
var errBusy = later(http.StatusTooManyRequests, "too many are pushing at a time: come again later")

// take checks a request and stores its rows, all or none. The checks are in the order of their
// cost: a place, the token, the name, the headers, the body. again reports that the key was stored
// before. The memory of the body and of its rows is released when it returns. The store continues
// after the client has left.
func (p *Server) take(w http.ResponseWriter, r *http.Request) (rows int, again bool, err error) {
	if !p.places.Enter() {
		return 0, false, errBusy
	}
	defer p.places.Leave()
	// The token comes before the name, so that a stranger does not learn which names are valid.
	name := r.PathValue("name")
	if err := p.allow(r, name); err != nil {
		return 0, false, err
	}
	if err := jobs.CheckID("name", name); err != nil {
		return 0, false, refuse(http.StatusNotFound, "%v", err)
	}
	key, format, coding, err := readHeaders(r)
	if err != nil {
		return 0, false, err
	}
	body, free, err := p.bodies.Read(w, r, p.o.MaxBody)
	if err != nil {
		return 0, false, err
	}
	defer free()
	h := p.o.Memory.Hold(r.Context(), "the body")
	defer h.Release()
	f := &bodyParser{hold: h, maxRows: p.o.MaxRows, maxSize: 4 * p.o.MaxBody}
	select {
	case p.parsers <- struct{}{}:
	case <-r.Context().Done():
		return 0, false, httpapi.ErrCut
	}
	// The place of a parser is free before the queue is asked, which may take long.
	if key == "" {
		key = bodyKey(format, coding, body)
	}
	if format == formatRemoteWrite {
		err = f.remoteWrite(body)
	} else {
		err = f.read(bytes.NewReader(body), format, coding)
	}
	<-p.parsers
	var large tooLarge
	if err != nil && !errors.As(err, &large) && !access.IsMemory(err) {
		err = refuse(http.StatusBadRequest, "the body: %s", strings.TrimPrefix(err.Error(), "the body: "))
	}
	if err != nil {
		return 0, false, err
	}
	for reason, n := range map[string]int{"not_finite": f.notFinite, "histogram": f.histograms} {
		if n > 0 { // endpoints without remote write have no such series
			p.dropped.WithLabelValues(reason).Add(float64(n))
		}
	}
	if f.rows == 0 { // remote write has requests without samples
		return 0, false, nil
	}
	if err := p.bodies.Reserve(f.size); err != nil {
		return 0, false, err
	}
	defer p.bodies.Release(f.size)
	// What the client does meanwhile changes nothing: it learns under the same key what became of
	// it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), p.o.Timeout)
	defer cancel()
	again, err = p.o.Queue.Push(ctx, name, key, f.frames)
	return f.rows, again, err
}

// allow returns nil if the client may push to a name. With tokens a client needs a token of the
// name. Without tokens only clients of this machine reach the endpoint, and the Host header must
// say so. A refusal does not tell whether the name exists.
func (p *Server) allow(r *http.Request, name string) error {
	if p.o.Tokens == nil {
		// A page in a browser of this machine must not push by a host name that resolves to this
		// machine.
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !httpapi.Loopback(strings.Trim(host, "[]")) {
			return refuse(http.StatusForbidden, "host %s: without tokens it is open to 127.0.0.1 and localhost",
				access.Quote(host))
		}
		return nil
	}
	given, ok := httpapi.Bearer(r)
	if !ok || given == "" {
		return unknown("say who you are: Authorization: Bearer TOKEN")
	}
	// Every token is compared, so that the time does not tell which one is right.
	found := false
	for _, ref := range p.o.Tokens[name] {
		v, err := p.o.Secrets.Get(ref)
		if err != nil {
			p.o.Logger.Error("a token of the push endpoint is not there", "name", name, "error", err)
			continue
		}
		found = httpapi.SameSecret(given, v.Reveal()) || found
	}
	if !found { // whether there is such a name is not said
		return unknown("the token may not push to " + access.Quote(name))
	}
	return nil
}

func unknown(text string) error {
	return &httpapi.Error{Status: http.StatusUnauthorized, Bearer: true, Text: text}
}

const maxKey = 128

// readHeaders returns the idempotency key, the format and the coding of a body. Each refusal is an
// answer of status 400 or 415 that names the header.
func readHeaders(r *http.Request) (key string, format rows.Format, coding string, err error) {
	key = r.Header.Get("Idempotency-Key")
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' || len(key) > maxKey {
			return "", "", "", refuse(
				http.StatusBadRequest, "Idempotency-Key: use 1 to %d printable ASCII characters", maxKey,
			)
		}
	}
	media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media == mediaProtobuf {
		return key, formatRemoteWrite, "snappy", remoteWriteHeaders(r, params)
	}
	if format = rows.FormatOfMedia(media); format == "" || format == "parquet" {
		return "", "", "", refuse(http.StatusUnsupportedMediaType,
			"Content-Type %s: use application/x-ndjson, text/csv or application/vnd.apache.arrow.stream",
			access.Quote(media))
	}
	switch coding = strings.ToLower(r.Header.Get("Content-Encoding")); coding {
	case "", "identity", "gzip", "zstd":
		return key, format, coding, nil
	}
	return "", "", "", refuse(
		http.StatusUnsupportedMediaType, "Content-Encoding %s: use gzip, zstd or none", access.Quote(coding),
	)
}
