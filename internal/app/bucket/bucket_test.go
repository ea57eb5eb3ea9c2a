package bucket_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"gocloud.dev/blob/memblob"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/objectstore/cloud"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// buckets returns one bucket of each kind. The object store is in memory, behind the same interface
// and below a prefix.
func buckets(t *testing.T) map[string]bucket.Bucket {
	t.Helper()
	dir := t.TempDir()
	plain, err := bucket.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	byURL, err := bucket.Open(t.Context(), "file://"+filepath.Join(dir, "made", "for", "it"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bucket.Bucket{
		"folder": plain, "file URL": byURL,
		"object store": bucket.Below(cloud.Blob(memblob.OpenBucket(nil)), "below/", 1), "Google's": googles(t),
	}
	t.Cleanup(func() {
		for name, b := range all {
			if err := b.Close(); err != nil {
				t.Error(name, err)
			}
		}
	})
	return all
}

// googles is a bucket of a server of Google's protocol in this process.
func googles(t *testing.T) bucket.Bucket {
	t.Helper()
	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request,
	) {
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true, ExternalURL: front.URL,
		PublicHost: strings.TrimPrefix(front.URL, "http://"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	handler = s.HTTPHandler()
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bucket"})
	b, err := bucket.Open(t.Context(), "gs://bucket/below/it?anonymous=true&endpoint="+front.URL)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b bucket.Bucket, name, text string) snapshot.Object {
	t.Helper()
	o, err := b.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(o, text); err != nil {
		t.Fatal(err)
	}
	return o
}

func get(t *testing.T, b bucket.Bucket, name string) (string, error) {
	t.Helper()
	in, err := b.Open(t.Context(), name)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(in)
	return string(text), errors.Join(err, in.Close())
}

// TestBuckets: an object is there when it is committed and not before, in place of an earlier one,
// and not at all when it was given up.
func TestBuckets(t *testing.T) {
	for kind, b := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			if _, err := get(t, b, "a/x"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := b.Sweep(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			o := put(t, b, "a/x", "one")
			if text, err := get(t, b, "a/x"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%q, %v before it is committed", text, err)
			}
			if err := o.Commit(); err != nil {
				t.Fatal(err)
			}
			o.Abort()
			if text, err := get(t, b, "a/x"); err != nil || text != "one" {
				t.Fatalf("%q, %v", text, err)
			}
			o = put(t, b, "a/x", "two")
			o.Abort()
			o.Abort()
			if text, err := get(t, b, "a/x"); err != nil || text != "one" {
				t.Fatalf("%q, %v after another was given up", text, err)
			}
			// Two at once: each is whole, and the last one stays.
			first, second := put(t, b, "a/x", "first"), put(t, b, "a/x", "second")
			if err := errors.Join(second.Commit(), first.Commit()); err != nil {
				t.Fatal(err)
			}
			if text, err := get(t, b, "a/x"); err != nil || text != "first" {
				t.Fatalf("%q, %v", text, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			late, err := b.Create(ctx, "c/late")
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			_, werr := io.WriteString(late, "x")
			if err := errors.Join(werr, late.Commit()); err == nil {
				t.Error("it is committed after its context has ended")
			}
			late.Abort()
			if _, err := get(t, b, "c/late"); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			if err := put(t, b, "b/y", "y").Commit(); err != nil {
				t.Fatal(err)
			}
			names, err := b.Folders(t.Context())
			// folders without an object
			names = slices.DeleteFunc(names, func(n string) bool { return n == "c" || n == "made" })
			slices.Sort(names)
			if err != nil || !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("%q: %v", names, err)
			}
			if err := put(t, b, "a/"+snapshot.ManifestName, "{}").Commit(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.Remove(t.Context(), "a"), b.Remove(t.Context(), "a")); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"a/x", "a/" + snapshot.ManifestName} {
				if _, err := get(t, b, name); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s after its folder was removed: %v", name, err)
				}
			}
			if text, err := get(t, b, "b/y"); err != nil || text != "y" {
				t.Errorf("%q, %v after another folder was removed", text, err)
			}
			if err := put(t, b, "b/z", "z").Commit(); err != nil {
				t.Fatal(err)
			}
			defer put(t, b, "b/begun", "x").Abort()
			names, err = b.Names(t.Context(), "b")
			slices.Sort(names)
			if err != nil || !slices.Equal(names, []string{"y", "z"}) {
				t.Errorf("the names %q: %v", names, err)
			}
			if err := errors.Join(b.Drop(t.Context(), "b/y"), b.Drop(t.Context(), "b/y"),
				b.Drop(t.Context(), "none/x")); err != nil {
				t.Error(err)
			}
			if names, err = b.Names(t.Context(), "b"); err != nil || !slices.Equal(names, []string{"z"}) {
				t.Errorf("the names %q: %v, after one was removed", names, err)
			}
			if names, err = b.Names(t.Context(), "none"); err != nil || len(names) != 0 {
				t.Errorf("the names %q: %v, of no folder", names, err)
			}
		})
	}
}

// TestGoogleAnswers: a list is asked for again while the store is busy, and an answer that is no
// list is an error at once.
func TestGoogleAnswers(t *testing.T) {
	const good = `{"items":[{"name":"below/a/x","size":"1","generation":"7"}]}`
	for name, c := range map[string]struct {
		answers []string // empty for 503
		asked   int
		want    []string
	}{
		"good":     {[]string{good}, 1, []string{"x"}},
		"busy":     {[]string{"", "", good}, 3, []string{"x"}},
		"null":     {[]string{`{"items":[null]}`}, 1, nil},
		"no name":  {[]string{`{"items":[{"size":"1"}]}`}, 1, nil},
		"too long": {[]string{`{"items":[{"name":"below/a/x","size":"9999999999999999999"}]}`}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				text := c.answers[min(int(asked.Add(1)), len(c.answers))-1]
				if text == "" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, text)
			}))
			defer s.Close()
			b, err := bucket.Open(t.Context(), "gs://bucket/below?anonymous=true&endpoint="+s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			got, err := b.Names(t.Context(), "a")
			if (err == nil) != (c.want != nil) || !slices.Equal(got, c.want) || int(asked.Load()) != c.asked {
				t.Errorf("after %d calls: %q, %v", asked.Load(), got, err)
			}
		})
	}
}

// TestSnapshots: a snapshot goes through every kind of bucket.
func TestSnapshots(t *testing.T) {
	l, err := kernels.NewLayout([]kernels.Var{{Name: "row", Elem: kernels.F32, Width: 3}}, 5, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for kind, b := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			page := make([]byte, 4096)
			p := &snapshot.Pages{
				Layout: l, Groups: 9,
				Read:  func(_ uint64, buf []byte) error { copy(buf, page); return nil },
				Write: func(_ uint64, content []byte) error { copy(page, content); return nil },
			}
			page[l.Offsets[0]] = 42
			m, digest, err := snapshot.Save(t.Context(), b,
				snapshot.Manifest{Name: "kept", Swarm: snapshot.Origin{ID: "x"}, Entry: 1, Spec: []byte("{}")}, p)
			if err != nil {
				t.Fatal(err)
			}
			if read, again, err := snapshot.ReadManifest(t.Context(), b, "kept"); err != nil || again != digest ||
				read.Bytes() != m.Bytes() {
				t.Fatal(read, again, err)
			}
			clear(page)
			if err := errors.Join(snapshot.Verify(t.Context(), b, m, nil),
				snapshot.Load(t.Context(), b, m, p)); err != nil || page[l.Offsets[0]] != 42 {
				t.Fatal(err)
			}
		})
	}
}

// TestFolder: a sweep removes what was begun and nothing else, and no name leads out of the folder.
func TestFolder(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "in")
	b, err := bucket.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := put(t, b, "a/x", "x").Commit(); err != nil {
		t.Fatal(err)
	}
	begun := put(t, b, "a/x", "written meanwhile")
	left := filepath.Join(dir, "a", "x.LEFT.partial") // by a process that was killed
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Sweep(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed process has left: %v", err)
	}
	if err := begun.Commit(); err != nil {
		t.Errorf("what was being written is swept away: %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "a", "*")); err != nil || len(names) != 1 {
		t.Errorf("%v: %v", names, err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../secret", "out/secret", "a/../../secret"} {
		if text, err := get(t, b, name); err == nil {
			t.Errorf("%s is read: %q", name, text)
		}
		if o, err := b.Create(t.Context(), name+"2"); err == nil {
			o.Abort()
			t.Errorf("%s2 can be written", name)
		}
	}
}

// TestOpen: a place that is none is refused with what to write instead.
func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for place, says := range map[string]string{
		"": "name a folder, s3://", "gs://": "or gs://BUCKET", "gs://bucket/x?color=red": "unknown query parameter",
		"gs://bucket?endpoint=nowhere": "endpoint", "ftp://x/y": "name a folder, file:///FOLDER, s3://",
		"s3://": "name a folder", "file://host/x": "name a folder",
		"://": "missing protocol", file: "not a directory", "s3://bucket/prefix?color=red": "unknown query parameter",
	} {
		b, err := bucket.Open(t.Context(), place)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, bucket.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %s", place, err, says)
		}
	}
	// Nothing is asked of an object store until it is used.
	b, err := bucket.Open(t.Context(), "s3://bucket/a/prefix?region=us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
