package cpuagents

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
	"github.com/exoswarm/exoswarm/jobs"
)

// gcsServer is a server of Google's storage protocol in this process, which knows one service account.
type gcsServer struct {
	*fakestorage.Server
	http *httptest.Server
	url  string

	mu     sync.Mutex
	tokens int // that were asked for
	bad    []string
	busy   int // answers 503 to so many requests
}

const googleToken = "a-token-of-the-account"

// newGCS starts the store with an empty bucket, and sets the account's key as the secret env:ACCOUNT.
func newGCS(t *testing.T) *gcsServer {
	t.Helper()
	g := &gcsServer{}
	// The store's own handler, with a look at who asks before it.
	var handler http.Handler
	g.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		if r.URL.Path == "/token" {
			g.tokens++
			g.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"` + googleToken + `","token_type":"Bearer","expires_in":3600}`))
			return
		}
		if a := r.Header.Get("Authorization"); a != "Bearer "+googleToken {
			g.bad = append(g.bad, r.Method+" "+r.URL.Path+" with authorization "+a)
		}
		if g.busy > 0 {
			g.busy--
			g.mu.Unlock()
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		g.mu.Unlock()
		if want := r.URL.Query().Get("ifGenerationMatch"); want != "" && r.Method == http.MethodGet && !g.stands(r.URL.Path, want) {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(g.http.Close)
	g.url = g.http.URL
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, ExternalURL: g.url, PublicHost: strings.TrimPrefix(g.url, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	g.Server, handler = s, s.HTTPHandler()
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bucket"})
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "agent@example.com", "private_key_id": "1", "token_uri": g.url + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(secret.Prefix+"ACCOUNT", string(account))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/the/agent's/own")
	return g
}

// stands says whether an object is still of a generation, which the store does not look at when it is read.
func (g *gcsServer) stands(path, generation string) bool {
	o, err := g.GetObject("bucket", strings.TrimPrefix(path, "/storage/v1/b/bucket/o/"))
	return err == nil && strconv.FormatInt(o.Generation, 10) == generation
}

func (g *gcsServer) put(key string, from, to int) {
	var b strings.Builder
	page(&b, from, to)
	g.CreateObject(fakestorage.Object{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "bucket", Name: key}, Content: []byte(b.String())})
}

func (g *gcsServer) check(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.bad {
		t.Error(b)
	}
}

func (g *gcsServer) fetcher(t *testing.T, spec ObjectSpec) *listFetcher {
	t.Helper()
	spec.Endpoint, spec.Account = g.url, "env:ACCOUNT"
	spec.Every, spec.Backoff = 0.1, 0.001
	f, err := newObjectFetcher("gs://bucket/in/", "", &spec, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGCS: over the protocol; an attempt after another reads what that one read, and no object twice.
func TestGCS(t *testing.T) {
	g := newGCS(t)
	g.busy = 2
	for i := range 5 {
		g.put(fmt.Sprintf("in/%d.csv", i), 10*i, 10*i+1)
	}
	g.put("in/x y+é.csv", 70, 71)
	g.put("other/a.csv", 666, 667)
	q := fixture.Queue(t)
	for stop := 1; stop < 12; stop += 5 {
		id := fmt.Sprint("gs-", stop)
		first := remoteOf(fixture.Within(t), t, q, id, g.fetcher(t, ObjectSpec{}))
		before, err := toldFiles(first, stop)
		if cerr := first.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		second := remoteOf(fixture.Within(t), t, q, id, g.fetcher(t, ObjectSpec{}))
		got, err := toldFiles(second, 100)
		if cerr := second.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		want := "1:0 - 2:10 - 3:20 - 4:30 - 5:40 - 6:70"
		if strings.Join(got, " ") != want || !strings.HasPrefix(want, strings.Join(before, " ")) {
			t.Error(stop, before, got)
		}
	}
	g.check(t)
	if g.tokens == 0 {
		t.Error("nobody has logged in")
	}
}

// TestGCSChanged: an object that another takes the place of between the list and the reading is read as neither.
func TestGCSChanged(t *testing.T) {
	g := newGCS(t)
	g.put("in/a.csv", 0, 1)
	f := g.fetcher(t, ObjectSpec{})
	defer f.close()
	src, ok := f.src.(*objects)
	if !ok {
		t.Fatal("no objects")
	}
	list, err := src.list(fixture.Within(t), 10)
	if err != nil || len(list) != 1 || list[0].tag == "" || list[0].tag == "0" {
		t.Fatal(list, err)
	}
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	if err := src.copy(fixture.Within(t), list[0], doc); err != nil {
		t.Fatal(err)
	}
	g.put("in/a.csv", 1, 2) // as long, and another
	if err := src.copy(fixture.Within(t), list[0], doc); !errors.Is(err, errChanged) {
		t.Errorf("another object: %v", err)
	}
	g.check(t)
}

// TestGCSPut: a part is there whole under its name, with its type, in place of one before.
func TestGCSPut(t *testing.T) {
	g := newGCS(t)
	o, err := openStore("a store", "gs://bucket/out/", StoreSpec{Endpoint: g.url, Account: "env:ACCOUNT"}, maxListBytes, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, text := range []string{"one", "another"} {
		if err := o.Put(fixture.Within(t), "part-1.csv", "text/csv", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := g.GetObject("bucket", "out/part-1.csv"); err != nil || string(got.Content) != text || got.ContentType != "text/csv" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	g.mu.Lock()
	g.busy = 1
	g.mu.Unlock()
	if err := o.Put(fixture.Within(t), "x", "text/csv", []byte("x")); !jobs.Retryable(err) && jobs.AsError(err).Code != jobs.CodeIO {
		t.Errorf("a store that is busy: %v", err)
	}
	g.check(t)
}

// TestGCSSink: a stream's sink, put again where the store was busy.
func TestGCSSink(t *testing.T) {
	s, q, _, _ := sinkStreamer(t)
	g := newGCS(t)
	g.busy = 3
	tapSuite(t, q, s, place{
		spec: func(id string) SinkSpec {
			return SinkSpec{URI: "gs://bucket/out/" + id + "/", Format: "parquet", PartRows: 50, Backoff: 0.001, Object: &StoreSpec{Endpoint: g.url, Account: "env:ACCOUNT"}}
		},
		read: func(id string) string {
			all, err := g.ListObjectsWithOptionsPaginated("bucket", fakestorage.ListOptions{Prefix: "out/" + id + "/"})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, o := range all.Objects {
				whole, err := g.GetObject("bucket", o.Name)
				if err != nil || whole.ContentType != "application/vnd.apache.parquet" {
					t.Fatal(whole.ContentType, err)
				}
				fmt.Fprintf(&b, "%s\n%s\n", strings.TrimPrefix(o.Name, "out/"+id+"/"), whole.Content)
			}
			return b.String()
		},
	})
	g.check(t)
}

// TestGCSHostile: whatever a store answers is an error of its class, and never another place.
func TestGCSHostile(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   jobs.Code
		want   string
	}{
		"denied":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, jobs.CodeInput, "answers 403"},
		"missing": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, jobs.CodeInput, "answers 404"},
		"down":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, jobs.CodeIO, "answers 500"},
		"reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(429)
			_, _ = w.Write([]byte(`{"error":{"code":429,"message":"slow down","errors":[{"reason":"rateLimitExceeded"}]}}`))
		}, jobs.CodeIO, `answers 429 "rateLimitExceeded"`},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, jobs.CodeIO, "list gs://bucket/in/"},
		"away": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, jobs.CodeInput, "answers 307"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"items":[`))
			for range 17 << 4 {
				if _, err := w.Write([]byte(`{"name":"` + strings.Repeat("x", 64<<10) + `"},`)); err != nil {
					break
				}
			}
		}, jobs.CodeIO, "list gs://bucket/in/"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.answer)
			defer s.Close()
			f, err := newObjectFetcher("gs://bucket/in/", "", &ObjectSpec{StoreSpec: StoreSpec{Endpoint: s.URL}, WatchSpec: WatchSpec{Tries: 2, Backoff: 0.001}}, fixture.Loopback(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			doc := fixture.TempFile(t, nil)
			defer doc.Close()
			_, err = f.fetch(fixture.Within(t), position{}, "", doc)
			var e *jobs.Error
			if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestGCSRefuses: what is no bucket or account, and what the operator does not allow. A key is never shown.
func TestGCSRefuses(t *testing.T) {
	t.Setenv(secret.Prefix+"KEY", "hunter2")
	t.Setenv(secret.Prefix+"AWAY", `{"type":"service_account","client_email":"a@b","private_key":"hunter2","token_uri":"http://10.0.0.1/token"}`)
	at := StoreSpec{Endpoint: "http://127.0.0.1:1"}
	with := func(fn func(*StoreSpec)) StoreSpec { s := at; fn(&s); return s }
	for name, c := range map[string]struct {
		uri  string
		spec StoreSpec
		want string
	}{
		"no bucket":  {"gs://", at, "write gs://BUCKET/PREFIX"},
		"capitals":   {"gs://UPPER/x", at, "write gs://"},
		"query":      {"gs://bucket/x?generation=hunter2", at, "write gs://"},
		"host":       {"gs://bucket/x", StoreSpec{}, "egress"},
		"private":    {"gs://bucket/x", StoreSpec{Endpoint: "http://10.0.0.1/"}, "egress"},
		"region":     {"gs://bucket/x", with(func(s *StoreSpec) { s.Region = "eu" }), "are for s3://"},
		"access key": {"gs://bucket/x", with(func(s *StoreSpec) { s.AccessKey, s.SecretKey = "env:KEY", "env:KEY" }), "are for s3://"},
		"no account": {"gs://bucket/x", with(func(s *StoreSpec) { s.Account = "env:NONE" }), "NONE"},
		"no JSON":    {"gs://bucket/x", with(func(s *StoreSpec) { s.Account = "env:KEY" }), "use the key of a service account"},
		"token away": {"gs://bucket/x", with(func(s *StoreSpec) { s.Account = "env:AWAY" }), "token_uri"},
		"s3":         {"s3://bucket/x", with(func(s *StoreSpec) { s.Account = "env:KEY" }), "account is for gs://"},
	} {
		_, err := newObjectFetcher(c.uri, "", &ObjectSpec{StoreSpec: c.spec}, fixture.Loopback(t), nil)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGCSWaitEnds: a store that does not answer ends with the context.
func TestGCSWaitEnds(t *testing.T) {
	block, asked := make(chan struct{}), make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-block
	}))
	defer s.Close()
	defer close(block)
	f, err := newObjectFetcher("gs://bucket/", "", &ObjectSpec{StoreSpec: StoreSpec{Endpoint: s.URL}, Timeout: 3600, WatchSpec: WatchSpec{Tries: 2, Backoff: 0.001}}, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	go func() { <-asked; cancel(jobs.ErrFinish) }()
	if _, err := f.fetch(ctx, position{}, "", doc); !errors.Is(err, jobs.ErrFinish) {
		t.Error(err)
	}
}
