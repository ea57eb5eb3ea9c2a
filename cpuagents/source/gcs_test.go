package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func gcsOf(t *testing.T, g *servertest.GCS, spec ObjectSpec) *watcher {
	t.Helper()
	spec.Endpoint, spec.Account = g.URL, "env:ACCOUNT"
	spec.Every, spec.Backoff = 0.1, 0.001
	f, err := newObjectWatcher("gs://bucket/in/", "", &spec, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newObjectWatcher: %v, want no error", err)
	}
	return f
}

// twice reads a source by an attempt that stops after some rows, and by the next one.
func twice(t *testing.T, q *natsq.Conn, id string, stop int, open func() fetcher) (before, got []string) {
	t.Helper()
	read := func(most int) []string {
		t.Helper()
		r := remoteOf(fixture.Within(t), t, q, id, open())
		out, err := toldFiles(r, most)
		if cerr := r.Close(); err != nil || cerr != nil {
			t.Fatalf("an attempt: %v, close: %v, want no error", err, cerr)
		}
		return out
	}
	return read(stop), read(100)
}

// TestGCS: over the protocol; an attempt after another reads what that one read, and no object
// twice.
func TestGCS(t *testing.T) {
	g := servertest.NewGCS(t)
	g.Busy = 2
	for i := range 5 {
		g.Put(fmt.Sprintf("in/%d.csv", i), 10*i, 10*i+1)
	}
	g.Put("in/x y+é.csv", 70, 71)
	g.Put("other/a.csv", 666, 667)
	q := jobstest.Connected(t, natsq.Connect)
	for stop := 1; stop < 12; stop += 5 {
		id := fmt.Sprint("gs-", stop)
		before, got := twice(t, q, id, stop, func() fetcher { return gcsOf(t, g, ObjectSpec{}) })
		want := "1:0 - 2:10 - 3:20 - 4:30 - 5:40 - 6:70"
		if strings.Join(got, " ") != want || !strings.HasPrefix(want, strings.Join(before, " ")) {
			t.Errorf("stop after %d: %q, then %q, want %q of both", stop, before, got, want)
		}
	}
	g.Check(t)
	if g.Tokens == 0 {
		t.Error("nobody has logged in")
	}
}

// TestGCSChanged: an object that another takes the place of between the list and the reading is
// read as neither.
func TestGCSChanged(t *testing.T) {
	g := servertest.NewGCS(t)
	g.Put("in/a.csv", 0, 1)
	f := gcsOf(t, g, ObjectSpec{})
	defer f.close()
	src, ok := f.src.(*bucket)
	if !ok {
		t.Fatal("no objects")
	}
	list, err := src.list(fixture.Within(t), 10)
	if err != nil || len(list) != 1 || list[0].tag == "" || list[0].tag == "0" {
		t.Fatalf("list: %+v, %v, want one file with a tag", list, err)
	}
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	if err := src.copy(fixture.Within(t), list[0], doc); err != nil {
		t.Fatalf("src.copy: %v, want no error", err)
	}
	g.Put("in/a.csv", 1, 2) // as long, and another
	if err := src.copy(fixture.Within(t), list[0], doc); !errors.Is(err, errWritten) {
		t.Errorf("another object: %v", err)
	}
	g.Check(t)
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
			_,
				_ = w.Write([]byte(`{"error":{"code":429,"message":"slow ` +
				`down","errors":[{"reason":"rateLimitExceeded"}]}}`))
		}, jobs.CodeIO, `answers 429 "rateLimitExceeded"`},
		"no JSON": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, jobs.CodeIO,
			"list gs://bucket/in/",
		},
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
			err := fetchGCS(fixture.Within(t), t, "gs://bucket/in/", s.URL)
			var e *jobs.Error
			if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("fetch: %v, want code %s with %q", err, c.code, c.want)
			}
		})
	}
}

// fetchGCS fetches the first document of a bucket at an endpoint, with two tries.
func fetchGCS(ctx context.Context, t *testing.T, uri, endpoint string) error {
	t.Helper()
	f, err := newObjectWatcher(uri, "", &ObjectSpec{
		StoreSpec: remote.StoreSpec{Endpoint: endpoint}, Timeout: 3600, WatchSpec: WatchSpec{Tries: 2, Backoff: 0.001},
	}, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newObjectWatcher: %v, want no error", err)
	}
	defer f.close()
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	_, err = f.fetch(ctx, position{}, "", doc)
	return err
}

// TestGCSRefuses: what is no bucket or account, and what the operator does not allow. A key is
// never shown.
func TestGCSRefuses(t *testing.T) {
	t.Setenv(access.Prefix+"KEY", "hunter2")
	t.Setenv(access.Prefix+"AWAY",
		`{"type":"service_account","client_email":"a@b","private_key":"hunter2","token_uri":"http://10.0.0.1/token"}`)
	at := remote.StoreSpec{Endpoint: "http://127.0.0.1:1"}
	with := func(fn func(*remote.StoreSpec)) remote.StoreSpec { s := at; fn(&s); return s }
	for name, c := range map[string]struct {
		uri  string
		spec remote.StoreSpec
		want string
	}{
		"no bucket": {"gs://", at, "write gs://BUCKET/PREFIX"},
		"capitals":  {"gs://UPPER/x", at, "write gs://"},
		"query":     {"gs://bucket/x?generation=hunter2", at, "write gs://"},
		"host":      {"gs://bucket/x", remote.StoreSpec{}, "egress"},
		"private":   {"gs://bucket/x", remote.StoreSpec{Endpoint: "http://10.0.0.1/"}, "egress"},
		"region":    {"gs://bucket/x", with(func(s *remote.StoreSpec) { s.Region = "eu" }), "are for s3://"},
		"access key": {"gs://bucket/x", with(func(s *remote.StoreSpec) {
			s.AccessKey, s.SecretKey = "env:KEY",
				"env:KEY"
		}), "are for s3://"},
		"no account": {"gs://bucket/x", with(func(s *remote.StoreSpec) { s.Account = "env:NONE" }), "NONE"},
		"no JSON": {
			"gs://bucket/x", with(func(s *remote.StoreSpec) { s.Account = "env:KEY" }),
			"use the key of a service account",
		},
		"token away": {"gs://bucket/x", with(func(s *remote.StoreSpec) { s.Account = "env:AWAY" }), "token_uri"},
		"s3": {
			"s3://bucket/x", with(func(s *remote.StoreSpec) { s.Account = "env:KEY" }),
			"account is for gs://",
		},
	} {
		_, err := newObjectWatcher(c.uri, "", &ObjectSpec{StoreSpec: c.spec}, fixture.Loopback(t), nil)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want code %s with %q and no secret", name, err, jobs.CodeInvalid, c.want)
		}
	}
}

// silentServer starts a server that does not answer before the end of the test. asked receives when
// it has a request.
func silentServer(t *testing.T) (s *httptest.Server, asked <-chan struct{}) {
	t.Helper()
	block, first := make(chan struct{}), make(chan struct{}, 1)
	s = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case first <- struct{}{}:
		default:
		}
		<-block
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(block) })
	return s, first
}

// TestGCSWaitEnds: a store that does not answer ends with the context.
func TestGCSWaitEnds(t *testing.T) {
	s, asked := silentServer(t)
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	go func() { <-asked; cancel(jobs.ErrFinish) }()
	if err := fetchGCS(ctx, t, "gs://bucket/", s.URL); !errors.Is(err, jobs.ErrFinish) {
		t.Errorf("f.fetch: %v, want %v", err, jobs.ErrFinish)
	}
}
