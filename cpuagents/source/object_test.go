package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/internal/base/objectstore/cloud"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// over makes a fetcher of any bucket.
func over(t testing.TB, b *blob.Bucket, prefix string, spec WatchSpec, h *hooked) *watcher {
	t.Helper()
	spec.Every, spec.Backoff = 0.1, 0.001
	f, err := newWatcher("a bucket", "", &spec)
	if err != nil {
		t.Fatalf("newWatcher: %v, want no error", err)
	}
	f.whole = true
	h.watchable = &bucket{remote.NewStore("a bucket", cloud.Blob(b), prefix), f.wanted}
	f.src = h
	return f
}

// TestObjects: of a bucket of files and of one in memory, each object is read once, in the order of
// the keys.
func TestObjects(t *testing.T) {
	for name, open := range map[string]func() (*blob.Bucket, error){
		"memory": func() (*blob.Bucket, error) { return memblob.OpenBucket(nil), nil },
		"files":  func() (*blob.Bucket, error) { return fileblob.OpenBucket(t.TempDir(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := open()
			if err != nil {
				t.Fatalf("open: %v, want no error", err)
			}
			ctx := fixture.Within(t)
			put := func(key string, from, to int) {
				t.Helper()
				var text strings.Builder
				fixture.Page(&text, from, to)
				if err := b.WriteAll(ctx, key, []byte(text.String()), nil); err != nil {
					t.Errorf("b.WriteAll: %v, want no error", err)
				}
			}
			put("in/c.csv", 4, 6)
			put("in/a/z.csv", 0, 2)
			put("in/b.csv", 2, 4)
			put("in/big.csv", 0, 300)
			put("in/notes.txt", 0, 1)
			put("in/.part.csv", 0, 1)
			put("other/a.csv", 666, 667)
			put("in/gone.csv", 666, 667)
			put("in/grows.csv", 6, 7)
			if err := b.WriteAll(ctx, "in/empty.csv", nil, nil); err != nil {
				t.Fatalf("b.WriteAll: %v, want no error", err)
			}
			h := &hooked{look: func(n int) {
				switch n {
				case 1:
					put("in/b.csv", 7, 50)
					put("in/a.csv", 8, 9) // before the other objects
				case 2:
					put("in/b.csv", 7, 60)
				}
			}}
			h.read = func(key string) {
				switch {
				case key == "in/gone.csv":
					if err := b.Delete(ctx, key); err != nil {
						t.Errorf("b.Delete: %v, want no error", err)
					}
				case key == "in/grows.csv" && h.n == 1:
					put(key, 9, 10+h.n)
				}
			}
			r := remoteOf(ctx, t, jobstest.Connected(t, natsq.Connect), "objects",
				over(t, b, "in/", WatchSpec{Polls: 3, MaxBytes: 1000}, h))
			got, err := toldFiles(r, 1000)
			if cerr := r.Close(); err != nil || cerr != nil {
				t.Fatalf("rows %q, %v, close: %v, want no error", got, err, cerr)
			}
			want := []string{
				"1:0", "2:1", "-", "3:2", "4:3", "-", "in/big.csv 0 it has 2196 bytes; max_bytes allows 1000", "5:4",
				"6:5", "-", "in/gone.csv 0 it vanished before it was read",
				"7:8", "-", "in/b.csv 0 " + whyChanged, "8:9", "9:10", "-",
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("difference (-want +got):\n%s", d)
			}
		})
	}
}

func s3Of(t testing.TB, s *servertest.S3, spec ObjectSpec) *watcher {
	t.Helper()
	t.Setenv(access.Prefix+"ID", "AKID")
	t.Setenv(access.Prefix+"KEY", "hunter2")
	t.Setenv(access.Prefix+"TOKEN", "TOKEN")
	t.Setenv("AWS_ACCESS_KEY_ID", "the agent's own")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the agent's own")
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	spec.Endpoint, spec.Region, spec.AccessKey, spec.SecretKey, spec.SessionToken = srv.URL, "eu-west-1", "env:ID",
		"env:KEY", "env:TOKEN"
	spec.Every, spec.Backoff = 0.1, 0.001
	f, err := newObjectWatcher("s3://bucket/in/", "", &spec, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newObjectWatcher: %v, want no error", err)
	}
	return f
}

// TestS3: over the protocol, page by page; an attempt after another reads what that one read, and
// no object twice.
func TestS3(t *testing.T) {
	s := &servertest.S3{Busy: 2}
	for i := range 5 {
		s.Put(fmt.Sprintf("in/%d.csv", i), 10*i, 10*i+1)
	}
	s.Put("in/x y+é.csv", 70, 71)
	q := jobstest.Connected(t, natsq.Connect)
	for stop := 1; stop < 12; stop += 5 {
		s.Gets = 0
		id := fmt.Sprint("s3-", stop)
		before, got := twice(t, q, id, stop, func() fetcher { return s3Of(t, s, ObjectSpec{}) })
		want := "1:0 - 2:10 - 3:20 - 4:30 - 5:40 - 6:70"
		if strings.Join(got, " ") != want || !strings.HasPrefix(want, strings.Join(before, " ")) || s.Gets != 6 {
			t.Errorf("stop after %d: %q, then %q with %d reads, want %q and 6 reads", stop, before, got, s.Gets, want)
		}
	}
	for _, b := range s.Bad {
		t.Errorf("a request that the store refuses: %s", b)
	}
}

// TestS3Hostile: whatever a store answers is rows, an error, or a reason, and never another place.
func TestS3Hostile(t *testing.T) {
	status := func(code int) func(http.ResponseWriter) bool {
		return func(w http.ResponseWriter) bool { w.WriteHeader(code); return true }
	}
	text := func(body string) func(http.ResponseWriter) bool {
		return func(w http.ResponseWriter) bool { _, _ = w.Write([]byte(body)); return true }
	}
	for name, c := range map[string]struct {
		list func(http.ResponseWriter) bool
		get  func(http.ResponseWriter, string) bool
		code jobs.Code
		want string
	}{
		"denied":  {status(403), nil, jobs.CodeInput, "answers 403"},
		"missing": {status(404), nil, jobs.CodeInput, "answers 404"},
		"down":    {status(500), nil, jobs.CodeIO, "answers 500"},
		"no time": {
			text("<ListBucketResult><Contents><Key>in/a.csv</Key></Contents></ListBucketResult>"), nil,
			jobs.CodeInput, "not the answer of an object store",
		},
		"disorder": {
			text("<ListBucketResult><Contents><Key>in/b.csv</Key><LastModified>" +
				"2026-01-02T03:04:05Z</LastModified></Contents><Contents><Key>in/a.csv</Key><LastModified>" +
				"2026-01-02T03:04:05Z</LastModified></Contents></ListBucketResult>"), nil, jobs.CodeInput,
			"not in the order",
		},
		"no XML":  {text("hello"), nil, jobs.CodeInput, "not the answer of an object store"},
		"nothing": {text(""), nil, jobs.CodeInput, "not the answer of an object store"},
		"empty":   {text("<ListBucketResult/>"), nil, "", ""},
		"endless": {func(w http.ResponseWriter) bool {
			_, _ = w.Write([]byte("<ListBucketResult>"))
			for range 17 << 4 {
				if _, err := w.Write([]byte("<X>" + strings.Repeat("x", 64<<10) + "</X>")); err != nil {
					break
				}
			}
			return true
		}, nil, jobs.CodeIO, "list s3://bucket/in/"},
		"away": {func(w http.ResponseWriter) bool {
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, nil, jobs.CodeInput, "check region"},
		"gone":  {nil, func(w http.ResponseWriter, _ string) bool { return status(404)(w) }, "", "it vanished"},
		"other": {nil, func(w http.ResponseWriter, _ string) bool { return status(412)(w) }, "", whyGrowing},
		"long": {
			nil, func(w http.ResponseWriter, _ string) bool { return text(strings.Repeat("1,1\n", 1000))(w) }, "",
			whyGrowing,
		},
		"short": {
			nil, func(w http.ResponseWriter, _ string) bool { return text("timestamp,value\n")(w) }, "",
			whyGrowing,
		},
		"cut": {nil, func(w http.ResponseWriter, _ string) bool {
			w.Header().Set("Content-Length", "20")
			return text("timestamp,value\n")(w)
		}, jobs.CodeIO, "get"},
		"no key": {
			nil, func(w http.ResponseWriter, _ string) bool { return status(403)(w) }, jobs.CodeInput,
			"answers 403",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &servertest.S3{List: c.list, Get: c.get}
			s.Put("in/a.csv", 0, 1)
			r := remoteOf(fixture.Within(t), t, jobstest.Connected(t, natsq.Connect), "hostile",
				s3Of(t, s, ObjectSpec{WatchSpec: WatchSpec{Tries: 2}}))
			defer r.Close()
			got, err := toldFiles(r, 100)
			var e *jobs.Error
			switch {
			case c.code == "" && (err != nil || !strings.Contains(strings.Join(got, " "), c.want)):
				t.Errorf("rows %q, %v, want %q", got, err, c.want)
			case c.code != "" && (!errors.As(err, &e) || e.Code != c.code || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "hunter2")):
				t.Errorf("rows %q, %v, want code %s with %q and no secret", got, err, c.code, c.want)
			}
			for _, b := range s.Bad {
				t.Errorf("a request that the store refuses: %s", b)
			}
		})
	}
}

// TestS3Refuses: what is no bucket, and what the operator does not allow.
func TestS3Refuses(t *testing.T) {
	t.Setenv(access.Prefix+"KEY", "hunter2")
	for _, uri := range []string{
		"s3://", "s3://a/b", "s3://UPPER/x", "s3://a..b/x", "s3://a@b.c/x", "s3://bucket:80/",
		"s3://bucket/x?versionId=hunter2", "s3://bucket/" + strings.Repeat("x", 1025),
	} {
		if _, err := newObjectWatcher(uri, "", &ObjectSpec{StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1:1"}},
			fixture.Loopback(t), nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error without the secret", uri, err)
		}
	}
	for name, spec := range map[string]ObjectSpec{
		"host": {}, "endpoint": {StoreSpec: remote.StoreSpec{Endpoint: "http://10.0.0.1/"}},
		"metadata": {StoreSpec: remote.StoreSpec{Endpoint: "http://169.254.169.254/"}},
		"scheme":   {StoreSpec: remote.StoreSpec{Endpoint: "file:///etc"}},
		"query":    {StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1/?a"}},
		"region":   {StoreSpec: remote.StoreSpec{Region: "x.evil.example/"}},
		"half":     {StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1/", AccessKey: "env:KEY"}},
		"token":    {StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1/", SessionToken: "env:KEY"}},
		"secret": {StoreSpec: remote.StoreSpec{
			Endpoint: "http://127.0.0.1/", AccessKey: "env:NONE",
			SecretKey: "env:KEY",
		}}, "renamed": {
			StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1/"},
			WatchSpec: WatchSpec{Renamed: true},
		},
		"timeout": {StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1/"}, Timeout: -1},
		"polls":   {StoreSpec: remote.StoreSpec{Endpoint: "http://127.0.0.1/"}, WatchSpec: WatchSpec{Polls: -1}},
	} {
		_, err := newObjectWatcher("s3://bucket/x", "", &spec, fixture.Loopback(t), nil)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want code %v and no secret", name, err, jobs.CodeInvalid)
		}
	}
}

// TestS3WaitEnds: a store that does not answer ends with its time, or with the context.
func TestS3WaitEnds(t *testing.T) {
	s, asked := silentServer(t)
	spec := func(timeout float64) *ObjectSpec {
		return &ObjectSpec{
			StoreSpec: remote.StoreSpec{Endpoint: s.URL}, Timeout: timeout,
			WatchSpec: WatchSpec{Tries: 2, Backoff: 0.001},
		}
	}
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	f, err := newObjectWatcher("s3://bucket/", "", spec(0.1), fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newObjectWatcher: %v, want no error", err)
	}
	if _, err := f.fetch(fixture.Within(t), position{}, "", doc); !jobs.Retryable(err) {
		t.Errorf("f.fetch: %v, want an error to retry", err)
	}
	_ = f.close()
	select {
	case <-asked:
	default:
	}
	if f, err = newObjectWatcher("s3://bucket/", "", spec(3600), fixture.Loopback(t), nil); err != nil {
		t.Fatalf("newObjectWatcher: %v, want no error", err)
	}
	defer f.close()
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	go func() { <-asked; cancel(jobs.ErrFinish) }()
	if _, err := f.fetch(ctx, position{}, "", doc); !errors.Is(err, jobs.ErrFinish) {
		t.Errorf("f.fetch: %v, want %v", err, jobs.ErrFinish)
	}
}
