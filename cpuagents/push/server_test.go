package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func endpoint(t testing.TB, q Queue, change func(*Options)) string {
	t.Helper()
	o := Options{Addr: "127.0.0.1:0", Queue: q, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	p, err := Listen(o)
	if err != nil {
		t.Fatalf("Listen: %v, want no error", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		p.Close(ctx)
		p.Close(ctx)
	})
	return "http://" + p.Addr() + "/v1/push/"
}

type answer struct {
	status int
	Rows   int    `json:"rows"`
	Again  bool   `json:"again"`
	Error  string `json:"error"`
	header http.Header
}

func (a answer) String() string {
	return fmt.Sprintf("%d %d %v %s", a.status, a.Rows, a.Again, a.Error)
}

// post pushes a body. The client keeps no connection, so that nothing of it outlives a test.
func post(t testing.TB, client *http.Client, url string, body io.Reader, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(fixture.Within(t), http.MethodPost, url, body)
	if err != nil {
		t.Fatalf("http.NewRequestWithContext: %v, want no error", err)
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/x-ndjson")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("client.Do: %v, want no error", err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	data, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil {
		t.Fatalf("status %d with the body %q: %v, want JSON", a.status, data, err)
	}
	return a
}

func ndjsonRows(values ...int) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "{\"timestamp\":%d,\"value\":%d}\n", v, v)
	}
	return b.String()
}

// pushSource opens what a job reads of an endpoint.
func pushSource(ctx context.Context, t testing.TB, q *natsq.Conn, id, name string, spec source.PushSpec,
	columns ...rows.ColumnSpec,
) rows.Reader {
	t.Helper()
	columns = append(columns, inputtest.OneFeature)
	from := source.Resources{Queue: q.StreamJobs(), Files: inputtest.Scratch(t)}
	r, err := from.OpenRemote(ctx, q.Swarms.Log(id, 1, swarms.In), id, 0,
		source.Series{Name: "s", URI: "push:" + name, Push: &spec}, columns[0])
	if err != nil {
		t.Fatalf("from.OpenRemote: %v, want no error", err)
	}
	return r
}

// pushed returns the rows of an endpoint as NUMBER:VALUE, and NUMBER! for a reject.
func pushed(r rows.Reader, most int) (out []string, err error) {
	for len(out) < most {
		row, rej, err := r.Next()
		switch {
		case errors.Is(err, source.ErrPause):
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		case rej != nil:
			out = append(out, fmt.Sprintf("%d!", rej.Row))
		default:
			out = append(out, fmt.Sprintf("%d:%g", row.Number, row.Values[0]))
		}
	}
	return out, nil
}

// TestPush: rows of every format come out as they went in, in their order, once for a key.
func TestPush(t *testing.T) {
	q := jobstest.Connected(t, natsq.Connect)
	registry := prometheus.NewRegistry()
	url := endpoint(t, q.Streams, func(o *Options) { o.Metrics = registry }) + "press"
	client := http.DefaultClient
	csv := "\xef\xbb\xbftimestamp, value ,note\n3,+3.5,a\n4,\"4\",\"b\"\"\n,c\"\n\n5,1_6,\n6,,x\n7,inf,x\n"
	for i, c := range []struct {
		body    string
		headers []string
		want    string
	}{
		{ndjsonRows(1) + "\n \n" + ndjsonRows(2), nil, "202 2 false "},
		{csv, []string{"Content-Type", "text/csv; charset=utf-8"}, "202 5 false "},
		{
			string(fixture.Gzip(t, []byte(ndjsonRows(8)))),
			[]string{"Content-Encoding", "gzip", "Idempotency-Key", "k"},
			"202 1 false ",
		},
		{ndjsonRows(9), []string{"Idempotency-Key", "k"}, "202 1 true "},
		{ndjsonRows(1) + "\n \n" + ndjsonRows(2), nil, "202 2 true "},
		{string(fixture.Zstd(t, []byte(ndjsonRows(10)))), []string{"Content-Encoding", "zstd"}, "202 1 false "},
	} {
		if got := post(t, client, url, strings.NewReader(c.body), c.headers...).String(); got != c.want {
			t.Fatalf("%d: %s, want %s", i, got, c.want)
		}
	}
	if got := post(t, client, strings.TrimSuffix(url, "press")+"other", strings.NewReader(ndjsonRows(9)),
		"Idempotency-Key", "k").String(); got != "202 1 false " {
		t.Errorf("a key of another name: %s, want %q", got, "202 1 false ")
	}
	r := pushSource(fixture.Within(t), t, q, "formats", "press", source.PushSpec{Rows: 9, BatchSeconds: 60})
	got, err := pushed(r, 100)
	if cerr := r.Close(); err != nil || cerr != nil ||
		strings.Join(got, " ") != "1:1 2:2 3:3.5 4:4 5! 6! 7! 8:8 9:10" {
		t.Errorf("rows: %q, %v, close: %v, want nine rows with rejects 5 to 7", got, err, cerr)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 || families[1].Metric[0].Counter.GetValue() != 10 {
		t.Errorf("metrics %v, error %v; want two families, the second with 10 rows", families, err)
	}
}

// TestPushTables: a table pushed in Arrow or CSV gives the rows, to the bit, that it gives as a
// file.
func TestPushTables(t *testing.T) {
	q := jobstest.Connected(t, natsq.Connect)
	base := endpoint(t, q.Streams, nil)
	for i, w := range tabletest.Files(t, fixture.HardTable()) {
		media := map[string]string{
			"csv": "text/csv", "ndjson": "application/x-ndjson",
			"arrow": "application/vnd.apache.arrow.stream",
		}[w.Format]
		if media == "" {
			continue
		}
		want, wantBad, err := inputtest.Parse(t, rows.Format(w.Format), w.Data, inputtest.TwoFeatures)
		if err != nil {
			t.Fatalf("%s: Parse: %v, want no error", w.Name, err)
		}
		name := fmt.Sprint("t", i)
		a := post(t, http.DefaultClient, base+name, bytes.NewReader(w.Data), "Content-Type", media)
		if a.status != http.StatusAccepted {
			t.Fatalf("%s: the answer is %v, want status 202", w.Name, a)
		}
		r := pushSource(fixture.Within(t), t, q, name, name, source.PushSpec{Rows: uint64(a.Rows), BatchSeconds: 60},
			inputtest.TwoFeatures)
		var got []rows.Row
		bad := 0
		for {
			row, rej, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: Next: %v, want no error", w.Name, err)
			}
			if rej != nil {
				bad++
				continue
			}
			got = append(got, row)
		}
		if err := r.Close(); err != nil {
			t.Errorf("r.Close: %v, want no error", err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(rows.Row{})); d != "" || bad != len(wantBad) {
			t.Errorf("%s: %d rejected, want %d: %s", w.Name, bad, len(wantBad), d)
		}
	}
}

// TestPushRefuses: what is broken says where, and of it nothing is stored.
func TestPushRefuses(t *testing.T) {
	t.Parallel()
	q := jobstest.Connected(t, natsq.Connect)
	base := endpoint(t, q.Streams, func(o *Options) { o.MaxBody, o.MaxRows = 64<<10, 1000 })
	arrow := tabletest.Arrow(t, tabletest.Record(fixture.HardTable()), false)
	long := strings.Repeat("x", 100<<10) // what a server reads of a body that it does not want, so that the answer is
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		status     int
		want       string
	}{
		"json":  {"a", ndjsonRows(1, 2) + "{\"x\":\n", nil, 400, "line 3: it is not valid JSON"},
		"list":  {"a", ndjsonRows(1) + "[1]\n", nil, 400, "line 2: it is not a JSON object"},
		"utf-8": {"a", "{\"\xff\":1}", nil, 400, "line 1: it is not valid UTF-8"},
		"fields": {"a", "a,b\n1,2\n1,2,3\n", []string{"Content-Type", "text/csv"}, 400, "line 3: it has 3 " +
			"fields, the header has 2"},
		"quote": {"a", "a,b\n1,2\n1,\"2\n", []string{"Content-Type", "text/csv"}, 400, "line 3: a quote"},
		"header": {"a", "a,a\n1,2\n", []string{"Content-Type", "text/csv"}, 400, "line 1: the header names a " +
			"column \"a\" twice"},
		"no header": {"a", "", []string{"Content-Type", "text/csv"}, 400, "must begin with a header"},
		"no rows":   {"a", "a,b\n", []string{"Content-Type", "text/csv"}, 400, "it has no row"},
		"empty":     {"a", "", nil, 400, "it has no row"},
		"cut arrow": {
			"a", string(arrow[:len(arrow)/2]),
			[]string{"Content-Type", "application/vnd.apache.arrow.stream"},
			400, "cut off",
		},
		"no arrow": {
			"a", ndjsonRows(1),
			[]string{"Content-Type", "application/vnd.apache.arrow.file"},
			400,
			"is it an Arrow IPC",
		},
		"cut gzip": {
			"a", string(fixture.Gzip(t, []byte(ndjsonRows(1, 2, 3)))[:20]),
			[]string{"Content-Encoding", "gzip"},
			400, "its gzip stream is damaged",
		},
		"no zstd": {"a", ndjsonRows(1), []string{"Content-Encoding", "zstd"}, 400, "its zstd stream is damaged"},
		"bomb": {
			"a", string(fixture.Gzip(t, bytes.Repeat([]byte("\n"), 1<<20))),
			[]string{"Content-Encoding", "gzip"},
			413, "unpacks to more",
		},
		"grows": {
			"a", strings.Repeat("c", 60000) + "\n" + strings.Repeat("1\n", 100),
			[]string{"Content-Type", "text/csv"},
			413, "more than 262144 bytes as JSON",
		},
		"many rows": {"a", strings.Repeat("{}\n", 1001), nil, 413, "more than 1000 rows"},
		"long":      {"a", long, nil, 413, "longer than 65536 bytes"},
		"type":      {"a", ndjsonRows(1), []string{"Content-Type", "text/plain"}, 415, "use application/x-ndjson"},
		"parquet": {
			"a", ndjsonRows(1),
			[]string{"Content-Type", "application/vnd.apache.parquet"},
			415,
			"use application/x-ndjson",
		},
		"coding": {"a", ndjsonRows(1), []string{"Content-Encoding", "br"}, 415, "use gzip"},
		"key":    {"a", ndjsonRows(1), []string{"Idempotency-Key", "a b"}, 400, "printable ASCII"},
		"long key": {
			"a", ndjsonRows(1),
			[]string{"Idempotency-Key", strings.Repeat("k", 129)},
			400,
			"printable ASCII",
		},
		"name":       {"a.b", ndjsonRows(1), nil, 404, "use 1 to 64 letters"},
		"wild name":  {"*", ndjsonRows(1), nil, 404, "use 1 to 64 letters"},
		"other host": {"a", ndjsonRows(1), []string{"Host", "evil.example"}, 403, "without tokens"},
	} {
		a := post(t, http.DefaultClient, base+c.path, strings.NewReader(c.body), c.headers...)
		if a.status != c.status || !strings.Contains(a.Error, c.want) {
			t.Errorf("%s: %v, want %d %s", name, a, c.status, c.want)
		}
	}
	// A header that promises too much, and one that hides it.
	a := post(t, http.DefaultClient, base+"a", struct{ io.Reader }{strings.NewReader(long)})
	if a.status != 413 {
		t.Errorf("%v, want status 413", a)
	}
	if a := post(t, http.DefaultClient, base+"a", strings.NewReader(ndjsonRows(5))); a.status != 202 {
		t.Fatalf("%v, want status 202", a)
	}
	r := pushSource(fixture.Within(t), t, q, "refused", "a", source.PushSpec{Rows: 1})
	defer r.Close()
	if got, err := pushed(r, 9); err != nil || strings.Join(got, " ") != "1:5" {
		t.Errorf("rows: %q, %v, want the one that was accepted", got, err)
	}
}

// TestPushTokens: a name takes from who has its token, and another name's is none.
func TestPushTokens(t *testing.T) {
	t.Setenv(access.Prefix+"ONE", "first")
	t.Setenv(access.Prefix+"TWO", "second")
	q := jobstest.Connected(t, natsq.Connect)
	base := endpoint(t, q.Streams, func(o *Options) {
		var err error
		if o.Tokens, err = ParseTokens([]string{"a=env:ONE", "b=env:TWO", "a=env:TWO"}); err != nil {
			t.Fatalf("ParseTokens: %v, want no error", err)
		}
	})
	for _, c := range []struct {
		name, auth string
		status     int
	}{
		{"a", "Bearer first", 202},
		{"a", "bearer second", 202},
		{"b", "Bearer second", 202},
		{"b", "Bearer first", 401},
		{"c", "Bearer first", 401},
		{"a", "", 401},
		{"a", "Bearer ", 401},
		{"a", "Basic first", 401},
		{"a", "Bearer firs", 401},
		{"a.b", "Bearer first", 401},
	} {
		a := post(t, http.DefaultClient, base+c.name, strings.NewReader(ndjsonRows(1)), "Authorization", c.auth, "Host",
			"agents.example")
		if a.status != c.status || a.status == 401 &&
			(a.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(a.Error, "first")) {
			t.Errorf("%+v: %v, want its status, and for 401 a header and no token", c, a)
		}
	}
}

// TestPushListens: an endpoint that would be open to other machines, or cannot be served, is
// refused at the start.
func TestPushListens(t *testing.T) {
	t.Setenv(access.Prefix+"ONE", "first")
	token := map[string][]string{"a": {"env:ONE"}}
	dir := t.TempDir()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	srv.Close()
	pair := srv.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatalf("x509.MarshalPKCS8PrivateKey: %v, want no error", err)
	}
	cert := filepath.Join(dir, "cert.pem")
	for name, b := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v, want no error", err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"open":     {func(o *Options) { o.Addr = "0.0.0.0:0" }, "--push-token"},
		"all":      {func(o *Options) { o.Addr = ":0" }, "--push-token"},
		"six":      {func(o *Options) { o.Addr = "[::]:0" }, "--push-token"},
		"a name":   {func(o *Options) { o.Addr = "localhost.example:0" }, "--push-token"},
		"no port":  {func(o *Options) { o.Addr = "127.0.0.1" }, "write HOST:PORT"},
		"secret":   {func(o *Options) { o.Tokens = map[string][]string{"a": {"env:NONE"}} }, "no such secret"},
		"half":     {func(o *Options) { o.Cert = cert }, "go together"},
		"no cert":  {func(o *Options) { o.Cert, o.Key = cert, cert }, "PEM"},
		"too much": {func(o *Options) { o.MaxBody = 1 << 30 }, "use 1 to"},
	} {
		o := Options{Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
		c.change(&o)
		p, err := Listen(o)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, error %v; want code %v and %q", name, p, err, jobs.CodeInvalid, c.want)
		}
	}
	for _, bad := range []string{"a", "a=", "=env:X", "a.b=env:X"} {
		if _, err := ParseTokens([]string{bad}); err == nil {
			t.Errorf("token %q was parsed, want an error", bad)
		}
	}
	q := jobstest.Connected(t, natsq.Connect)
	base := endpoint(t, q.Streams, func(o *Options) {
		o.Tokens, o.Cert, o.Key = token, cert, filepath.Join(dir, "key.pem")
	})
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:    roots,
		ServerName: "example.com",
	}, DisableKeepAlives: true}}
	if a := post(t, secure, strings.Replace(base, "http:", "https:", 1)+"a", strings.NewReader(ndjsonRows(1)),
		"Authorization", "Bearer first"); a.status != 202 {
		t.Errorf("%v, want status 202", a)
	}
}

// troubled answers as a queue in trouble does; a real one is not full at will.
type troubled struct{ err error }

func (q troubled) Push(context.Context, string, string, [][]byte) (bool, error) { return false, q.err }

// TestPushTrouble: a queue that is full or away is an answer that says to come again.
func TestPushTrouble(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		after  string
	}{
		{fmt.Errorf("x: %w", jobs.ErrFull), 429, "5"},
		{fmt.Errorf("x: %w", jobs.ErrUnavailable), 503, "5"},
		{context.DeadlineExceeded, 503, "5"},
		{errors.New("hunter2"), 500, ""},
	} {
		a := post(t, http.DefaultClient, endpoint(t, troubled{c.err}, nil)+"a", strings.NewReader(ndjsonRows(1)))
		if a.status != c.status || a.header.Get("Retry-After") != c.after || strings.Contains(a.Error, "hunter2") {
			t.Errorf("%v: %v, want status %d, Retry-After %q and no secret", c.err, a, c.status, c.after)
		}
	}
}

// TestPushAway: while the server is gone a push is refused in time. The same push is stored once
// when the server is back.
func TestPushAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(port int) *server.Server {
		s, err := server.Start(t.Context(), server.Options{Dir: dir, Port: port})
		if err != nil {
			t.Fatalf("server.Start: %v, want no error", err)
		}
		return s
	}
	srv := start(0)
	var port int
	if _, err := fmt.Sscanf(srv.URL(), "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatalf("the URL %q has no port: %v", srv.URL(), err)
	}
	q, err := natsq.Connect(t.Context(), natsconn.Options{URL: srv.URL(), Name: "test"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v, want no error", err)
	}
	t.Cleanup(q.Close)
	url := endpoint(t, q.Streams, func(o *Options) { o.Timeout = time.Second }) + "a"
	client := http.DefaultClient
	until := func(want int, body, key string) {
		t.Helper()
		for ctx := fixture.Within(t); ; {
			var headers []string
			if key != "" {
				headers = []string{"Idempotency-Key", key}
			}
			a := post(t, client, url, strings.NewReader(body), headers...)
			if a.status == want {
				return
			}
			if a.status != 503 && a.status != 202 || ctx.Err() != nil {
				t.Fatalf("%v, want status 503 or 202 in time", a)
			}
		}
	}
	until(202, ndjsonRows(1), "one")
	srv.Close()
	until(503, ndjsonRows(2), "") // without a key the body is the key
	srv = start(port)
	t.Cleanup(srv.Close)
	until(202, ndjsonRows(2), "")
	until(202, ndjsonRows(2), "")
	until(202, ndjsonRows(1), "one") // the server remembers it over its restart
	until(202, ndjsonRows(3), "three")
	r := pushSource(fixture.Within(t), t, q, "away", "a", source.PushSpec{Rows: 3, BatchSeconds: 60})
	defer r.Close()
	if got, err := pushed(r, 9); err != nil || strings.Join(got, " ") != "1:1 2:2 3:3" {
		t.Errorf("rows: %q, %v, want each of the three once", got, err)
	}
}

// TestPushMany: a hundred clients push at once over two endpoints, each body twice under its key,
// in one frame or several. Every row is there once, and the rows of a body are consecutive.
func TestPushMany(t *testing.T) {
	t.Parallel()
	q := jobstest.Connected(t, natsq.Connect)
	bases := []string{endpoint(t, q.Streams, nil), endpoint(t, q.Streams, nil)}
	const clients, small, large = 100, 3, 30
	pad := strings.Repeat("x", 40<<10)
	count := func(c int) int {
		if c%10 == 0 {
			return large // 1.2 MB: three frames
		}
		return small
	}
	var all sync.WaitGroup
	answers := make([][2]answer, clients)
	total := 0
	for c := range clients {
		total += count(c)
		var body strings.Builder
		for i := range count(c) {
			fmt.Fprintf(&body, "{\"timestamp\":1,\"value\":%d,\"pad\":%q}\n", 1000*c+i, pad[:len(pad)*(count(c)/large)])
		}
		all.Add(2)
		for try := range 2 {
			go func() {
				defer all.Done()
				for {
					a := post(t, http.DefaultClient, bases[try]+"a", strings.NewReader(body.String()),
						"Idempotency-Key", fmt.Sprint("c", c))
					if a.status != 429 && a.status != 503 {
						answers[c][try] = a
						return
					}
				}
			}()
		}
	}
	all.Wait()
	for c, a := range answers {
		if a[0].status != 202 || a[1].status != 202 || a[0].Rows != count(c) || a[1].Rows != count(c) || a[0].Again &&
			a[1].Again {
			t.Errorf("%d: %v and %v, want 202 twice with %d rows, and at most one again", c, a[0], a[1], count(c))
		}
	}
	r := pushSource(fixture.Within(t), t, q, "many", "a", source.PushSpec{Rows: uint64(total), BatchSeconds: 60})
	defer r.Close()
	seen := map[int]int{}
	last := -1
	for {
		row, rej, err := r.Next()
		switch {
		case errors.Is(err, source.ErrPause):
			continue
		case errors.Is(err, io.EOF):
			if len(seen) != total {
				t.Errorf("%d rows of %d", len(seen), total)
			}
			for v, n := range seen {
				if n != 1 {
					t.Errorf("row %d came %d times", v, n)
				}
			}
			return
		case err != nil || rej != nil:
			t.Fatalf("Next: reject %v, %v, want a row", rej, err)
		}
		v := int(row.Values[0])
		if v%1000 != 0 && v != last+1 {
			t.Errorf("row %d stands behind %d", v, last)
		}
		last = v
		seen[v]++
	}
}

// BenchmarkPushBody takes bodies of 4096 rows apart.
func BenchmarkPushBody(b *testing.B) {
	table := fixture.HardTable()
	for len(table) < 4096 {
		table = append(table, table...)
	}
	table = table[:4096]
	for _, w := range []fixture.File{
		{Format: "ndjson", Data: fixture.NDJSON(table)},
		{Format: "csv", Data: fixture.CSV(table)},
		{Format: "arrow", Data: tabletest.Arrow(b, tabletest.Record(table), false)},
	} {
		b.Run(w.Format, func(b *testing.B) {
			b.SetBytes(int64(len(w.Data)))
			for b.Loop() {
				f := &bodyParser{maxRows: 1e6, maxSize: 64 << 20}
				if err := f.read(bytes.NewReader(w.Data), rows.Format(w.Format), ""); err != nil || f.rows != 4096 {
					b.Fatalf("%d rows, %v, want 4096", f.rows, err)
				}
			}
			b.ReportMetric(float64(4096*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkPush pushes bodies of 4096 rows over loopback to a stream on the disk, which a job does
// not read, one after another and from 16 clients at a time.
func BenchmarkPush(b *testing.B) {
	var body strings.Builder
	for i := range 4096 {
		body.WriteString(ndjsonRows(i))
	}
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			url := endpoint(b, jobstest.Connected(b, natsq.Connect).Streams, nil) + "a"
			b.ResetTimer()
			var all sync.WaitGroup
			each := make(chan struct{})
			for range clients {
				all.Go(func() {
					for range each {
						if a := post(b, http.DefaultClient, url, strings.NewReader(body.String())); a.status != 202 {
							b.Errorf("%v, want status 202", a)
						}
					}
				})
			}
			for range b.N {
				each <- struct{}{}
			}
			close(each)
			all.Wait()
			b.ReportMetric(float64(4096*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// FuzzPushBody: whatever a body is, it is frames of whole rows within the limits, or a reason
// without any.
func FuzzPushBody(f *testing.F) {
	formats, codings := []rows.Format{"ndjson", "csv", "arrow"}, []string{"", "gzip", "zstd"}
	table := fixture.HardTable()
	for i, data := range [][]byte{
		fixture.NDJSON(table), fixture.CSV(table),
		tabletest.Arrow(f, tabletest.Record(table), false), tabletest.Arrow(f, tabletest.Record(table), true),
	} {
		kind := uint8(min(i, 2))
		f.Add(kind, data)
		f.Add(kind+3, fixture.Gzip(f, data))
		f.Add(kind+6, fixture.Zstd(f, data))
		f.Add(kind, data[:len(data)/2])
	}
	f.Add(uint8(1), []byte("a,\"b\n\",c\n1,2,3\n"))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		fr := &bodyParser{maxRows: 1000, maxSize: 1 << 20}
		err := fr.read(bytes.NewReader(data), formats[kind%3], codings[kind/3%3])
		if err != nil {
			if len(fr.frames) > 0 || err.Error() == "" {
				t.Fatalf("%d frames and %v", len(fr.frames), err)
			}
			return
		}
		n, size := 0, int64(0)
		for _, frame := range fr.frames {
			size += int64(len(frame))
			if len(frame) == 0 || len(frame) > maxFrame || frame[len(frame)-1] != '\n' {
				t.Fatalf("a frame of %d bytes", len(frame))
			}
			for line := range bytes.SplitSeq(frame[:len(frame)-1], []byte{'\n'}) {
				if problem := rows.CheckObject(line); problem != "" {
					t.Fatalf("%q: %s, want a valid row", line, problem)
				}
				n++
			}
		}
		if n != fr.rows || n == 0 || n > 1000 || size != fr.size || size > 1<<20 {
			t.Fatalf("%d rows of %d, %d bytes of %d", n, fr.rows, size, fr.size)
		}
	})
}

// TestPushLeavesMemory: an endpoint whose bodies may take all of the memory of inputs is refused.
// With it, no job found room for its manifest.
func TestPushLeavesMemory(t *testing.T) {
	m, err := access.NewMemory(1<<30, 4)
	if err != nil {
		t.Fatalf("inputmem.New: %v, want no error", err)
	}
	p, err := Listen(Options{
		Memory: m, Queue: jobstest.Connected(t, natsq.Connect).Streams, Logger: slog.New(slog.DiscardHandler),
		Addr: "127.0.0.1:0", MaxBody: m.Limit() / 4, MaxRows: 1,
	})
	if err == nil {
		p.Close(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "lower --push-max-body") {
		t.Errorf("bodies that take %d bytes: %v", m.Limit(), err)
	}
	if n := m.Used(); n != 0 {
		t.Errorf("%d bytes stay in use", n)
	}
}
