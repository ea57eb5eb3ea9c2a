package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers" // of databases and object stores
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaksParallel(m, 8)
}

// quick is a spec that does not wait.
func quick(s HTTPSpec) *HTTPSpec {
	s.Backoff, s.Rate, s.Every = 0.001, 1000, 0.1
	return &s
}

// remoteOf opens a remote source over a journal.
func remoteOf(ctx context.Context, t testing.TB, q *natsq.Conn, id string, src fetcher) *documentReader {
	t.Helper()
	j, err := openJournal(ctx, q.Swarms.Log(id, 1, swarms.In), 0)
	if err != nil {
		t.Fatalf("openJournal: %v, want no error", err)
	}
	return &documentReader{
		ctx: ctx, name: "s", spec: inputtest.OneFeature, files: inputtest.Scratch(t), journal: j,
		src: src,
	}
}

// told is what a source told: its rows as NUMBER:VALUE, a reject as NUMBER!, and - where it paused.
func told(r rows.Reader, most int) ([]string, error) {
	return toldWith(r, most, func(rej *rows.Reject) string { return fmt.Sprintf("%d!", rej.Row) })
}

// toldWith is told with another text for a reject.
func toldWith(r rows.Reader, most int, rejected func(*rows.Reject) string) (out []string, err error) {
	for len(out) < most {
		row, rej, err := r.Next()
		switch {
		case errors.Is(err, ErrPause):
			out = append(out, "-")
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		case rej != nil:
			out = append(out, rejected(rej))
		default:
			out = append(out, fmt.Sprintf("%d:%g", row.Number, row.Values[0]))
		}
	}
	return out, nil
}

// TestHTTPSource: each way of going on reads every row once.
func TestHTTPSource(t *testing.T) {
	t.Parallel()
	q := jobstest.Connected(t, natsq.Connect)
	var mu sync.Mutex
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("/once", func(w http.ResponseWriter, _ *http.Request) { fixture.Page(w, 0, 3) })
	mux.HandleFunc("/cursor", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("after"))
		if n < 6 {
			w.Header().Set("X-Next", strconv.Itoa(n+2))
		}
		fixture.Page(w, n, n+2)
	})
	mux.HandleFunc("/link", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("p"))
		w.Header().Add("Link", `</link?p=0>; rel="first"`)
		if n < 4 {
			w.Header().Add("Link", fmt.Sprintf(`<https://x/>; rel=last, </link?p=%d>; foo=bar; rel="prefetch next"`,
				n+2))
		}
		fixture.Page(w, n, n+2)
	})
	mux.HandleFunc("/since", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("since")) // with the row that was the last
		fixture.Page(w, n, n+3)
	})
	mux.HandleFunc("/tag", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		tag := strconv.Itoa(asked / 2)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fixture.Page(w, 0, 2+asked/2)
	})
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
		w.Header().Set("Content-Encoding", "gzip")
		if r.Header.Get("Accept-Encoding") != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write(fixture.Gzip(t, []byte(`{"timestamp":1,"value":5}`+"\n"+`{"timestamp":1,"value":"x"}`)))
	})
	mux.HandleFunc("/empty", func(http.ResponseWriter, *http.Request) {})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for name, c := range map[string]struct {
		path string
		spec HTTPSpec
		want string
	}{
		"once": {"/once", HTTPSpec{}, "1:0 2:1 3:2"},
		"cursor": {
			"/cursor",
			HTTPSpec{CursorParam: "after", CursorFrom: "header:X-Next"},
			"1:0 2:1 - 3:2 4:3 - 5:4 6:5 - 7:6 8:7",
		},
		"link": {"/link", HTTPSpec{CursorFrom: "link"}, "1:0 2:1 - 3:2 4:3 - 5:4 6:5"},
		"timestamp": {
			"/since",
			HTTPSpec{CursorParam: "since", CursorFrom: "timestamp", Polls: 3},
			"1:0 2:1 3:2 - 4:3 5:4 - 6:5 7:6",
		},
		"tag":   {"/tag", HTTPSpec{Polls: 5}, "1:0 2:1 - 3:2 - 4:3"},
		"json":  {"/json", HTTPSpec{}, "1:5 2!"},
		"empty": {"/empty", HTTPSpec{Polls: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := newHTTPFetcher(srv.URL+c.path, "", quick(c.spec), fixture.Loopback(t), nil)
			if err != nil {
				t.Fatalf("newHTTPFetcher: %v, want no error", err)
			}
			r := remoteOf(fixture.Within(t), t, q, "source-"+name, f)
			got, err := told(r, 100)
			if cerr := r.Close(); err != nil || cerr != nil {
				t.Fatalf("%s: rows %q, %v, close: %v, want no error", name, got, err, cerr)
			}
			// What becomes of the last poll, nothing new, is no document.
			if d := cmp.Diff(c.want, strings.TrimSuffix(strings.Join(got, " "), " -")); d != "" {
				t.Errorf("difference (-want +got):\n%s", d)
			}
		})
	}
}

// TestHTTPResume: an attempt after another reads what that one read, to the row, whatever the
// source says by then.
func TestHTTPResume(t *testing.T) {
	t.Parallel()
	q := jobstest.Connected(t, natsq.Connect)
	ctx := fixture.Within(t)
	var mu sync.Mutex
	version := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n, _ := strconv.Atoi(r.URL.Query().Get("after"))
		if n < 40 {
			w.Header().Set("X-Next", strconv.Itoa(n+10))
		}
		_, _ = io.WriteString(w, "timestamp,value\n")
		for i := range 10 {
			fmt.Fprintf(w, "%d,%d\n", n+i, 1000*version+n+i)
		}
	}))
	defer srv.Close()
	open := func(id string) *documentReader {
		f, err := newHTTPFetcher(srv.URL, "csv", quick(HTTPSpec{CursorParam: "after", CursorFrom: "header:X-Next"}),
			fixture.Loopback(t), nil)
		if err != nil {
			t.Fatalf("newHTTPFetcher: %v, want no error", err)
		}
		return remoteOf(ctx, t, q, id, f)
	}
	whole, err := told(open("resume-whole"), 1000)
	if err != nil || len(whole) != 54 {
		t.Fatalf("%d rows, %v, want 54: %q", len(whole), err, whole)
	}
	for _, stop := range []int{1, 10, 11, 12, 25} {
		mu.Lock()
		version = 0
		mu.Unlock()
		id := fmt.Sprintf("resume-%d", stop)
		first := open(id)
		before, err := told(first, stop)
		if err != nil {
			t.Fatalf("told: %v, want no error", err)
		}
		if err := first.Close(); err != nil {
			t.Fatalf("first.Close: %v, want no error", err)
		}
		// The attempt ended in the middle of storing a document.
		log := q.Swarms.Log(id, 1, swarms.In)
		last, err := log.Last(ctx)
		if err != nil {
			t.Fatalf("log.Last: %v, want no error", err)
		}
		for i, kind := range []string{entryBegin, entryPiece} {
			if err := log.Append(ctx, last.Seq+uint64(i),
				swarms.Entry{Kind: kind, Ref: last.Ref + 1, Data: []byte("timestamp,value\n0,666\n")}); err != nil {
				t.Fatalf("log.Append: %v, want no error", err)
			}
		}
		mu.Lock()
		version = 7
		mu.Unlock()
		for range 2 { // the second time there is nothing to fetch any more
			second := open(id)
			again, err := told(second, 1000)
			if err != nil {
				t.Fatalf("told: %v, want no error", err)
			}
			if err := second.Close(); err != nil {
				t.Fatalf("second.Close: %v, want no error", err)
			}
			stored := (stop-1)/11*11 + 11 // with the end of the document
			if !cmp.Equal(before, again[:stop]) || !cmp.Equal(whole[:stored], again[:stored]) ||
				again[stored] != fmt.Sprintf("%d:%d", (stop-1)/11*10+11, 7000+(stop-1)/11*10+10) ||
				len(again) != len(whole) {
				t.Fatalf("stopped after %d: %v, then %v", stop, before, again)
			}
		}
	}
}

// TestHTTPFailures: what passes is tried again, what does not ends at once, and no error shows a
// secret.
func TestHTTPFailures(t *testing.T) {
	t.Setenv(access.Prefix+"KEY", "hunter2")
	var mu sync.Mutex
	count := map[string]int{}
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		count[r.URL.Path]++
		n := count[r.URL.Path]
		mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer hunter2":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/busy" && n < 3:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/cut" && n < 3:
			w.Header().Set("Content-Length", "1000")
			fixture.Page(w, 0, 2)
		case r.URL.Path == "/down":
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/endless":
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(w, "timestamp,value\n%d,1\n", i); err != nil {
					return
				}
			}
		case r.URL.Path == "/slow":
			<-block
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/?"+r.Header.Get("Authorization"),
				http.StatusFound)
		default:
			fixture.Page(w, 0, 2)
		}
	}))
	defer srv.Close()
	defer close(block)
	for name, c := range map[string]struct {
		spec  HTTPSpec
		code  jobs.Code
		again bool
		tries int
		want  string
	}{
		"/busy":    {HTTPSpec{}, "", false, 3, ""},
		"/cut":     {HTTPSpec{}, "", false, 3, ""},
		"/down":    {HTTPSpec{Tries: 4}, jobs.CodeIO, true, 4, "it answers 500"},
		"/gone":    {HTTPSpec{}, jobs.CodeInput, false, 1, "it answers 404 Not Found"},
		"/endless": {HTTPSpec{MaxBytes: 10000}, jobs.CodeInput, false, 1, "longer than 10000 bytes"},
		// its time may be over before it is asked,
		"/slow": {HTTPSpec{Timeout: 0.1, Tries: 2}, jobs.CodeIO, true, -1, "deadline"},
		"/away": {HTTPSpec{}, jobs.CodeInvalid, false, 1, "--egress"},
	} {
		t.Run(name[1:], func(t *testing.T) {
			spec := quick(c.spec)
			spec.Headers = map[string]string{"Authorization": "Bearer {env:KEY}"}
			f, err := newHTTPFetcher(srv.URL+name+"?token=hunter2", "csv", spec, fixture.Loopback(t), nil)
			if err != nil {
				t.Fatalf("newHTTPFetcher: %v, want no error", err)
			}
			defer f.close()
			doc := fixture.TempFile(t, nil)
			defer doc.Close()
			_, err = f.fetch(fixture.Within(t), position{}, "", doc)
			mu.Lock()
			tries := count[name]
			mu.Unlock()
			if tries != c.tries && c.tries >= 0 {
				t.Errorf("asked %d times, want %d", tries, c.tries)
			}
			if c.code == "" {
				if err != nil {
					t.Errorf("%v, want no error", err)
				}
				return
			}
			var e *jobs.Error
			if !errors.As(err, &e) || e.Code != c.code || jobs.Retryable(err) != c.again ||
				!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v (retryable: %v)", err, jobs.Retryable(err))
			}
		})
	}
	_, err := newHTTPFetcher(srv.URL, "csv", nil, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "--egress") {
		t.Errorf("an agent without an allow list: %v", err)
	}
}

// TestHTTPWaitEnds: a source that waits for its next poll ends with its context, at once.
func TestHTTPWaitEnds(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fixture.Page(w, 0, 1) }))
	defer srv.Close()
	f, err := newHTTPFetcher(srv.URL, "csv", &HTTPSpec{Polls: 2, Every: 86400}, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newHTTPFetcher: %v, want no error", err)
	}
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	r := remoteOf(ctx, t, jobstest.Connected(t, natsq.Connect), "wait", f)
	defer r.Close()
	if got, err := told(r, 2); err != nil || len(got) != 2 {
		t.Fatalf("rows: %q, %v, want 2 before the wait", got, err)
	}
	done := make(chan error)
	go func() { _, err := told(r, 1); done <- err }()
	cancel(jobs.ErrFinish)
	if err := <-done; !errors.Is(err, jobs.ErrFinish) {
		t.Errorf("the wait ends with %v, want %v", err, jobs.ErrFinish)
	}
}

func TestHTTPSpec(t *testing.T) {
	for name, s := range map[string]HTTPSpec{
		"polls": {Polls: -1}, "every": {Every: 1e9}, "bytes": {MaxBytes: 2 << 30}, "timeout": {Timeout: -1},
		"rate": {Rate: 1e9}, "tries": {Tries: 99}, "backoff": {Backoff: 61},
		"cursor": {CursorFrom: "timestamp"}, "parameter": {CursorParam: "x"},
		"link": {CursorFrom: "link", CursorParam: "x"}, "header": {CursorFrom: "header:", CursorParam: "x"},
		"host": {Headers: map[string]string{"host": "x"}}, "name": {Headers: map[string]string{"a b": "x"}},
		"no name": {Headers: map[string]string{"": "x"}},
	} {
		if _, err := newHTTPFetcher("http://127.0.0.1/", "csv", &s, fixture.Loopback(t), nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, uri := range []string{
		"http://10.0.0.1/", "https://u:hunter2@127.0.0.1/", "http://127.0.0.1:0/", "http://",
		"https://example.com/?hunter2", "http://[::1]/\x7f",
	} {
		if _, err := newHTTPFetcher(uri, "csv", nil, fixture.Loopback(t), nil); err == nil ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error without the secret", uri, err)
		}
	}
}

func TestNextLink(t *testing.T) {
	for v, want := range map[string]string{
		`<a>; rel="next"`: "a", `<a>; rel=next`: "a", `<a>; rel="prev", <b?x=1,2>; rel="next"`: "b?x=1,2",
		`<a>; REL="last next"`: "a",
		`<a>; rel="prev"`:      "", `a; rel="next"`: "", `<a`: "", "": "", `<>; rel=next`: "", `<a>`: "",
		`<a>; title="next"`: "",
	} {
		if got := nextLink([]string{v}); got != want {
			t.Errorf("link %s: %q, want %q", v, got, want)
		}
	}
}

func FuzzNextLink(f *testing.F) {
	f.Add(`<a>; rel="prev", <b>; rel="next"`)
	f.Fuzz(func(_ *testing.T, v string) { _ = nextLink([]string{v}) })
}

// TestJournalPieces: a document of any length comes back as it was.
func TestJournalPieces(t *testing.T) {
	q, ctx := jobstest.Connected(t, natsq.Connect), fixture.Within(t)
	for i, size := range []int{0, 1, journalPiece - 1, journalPiece, journalPiece + 1, 3*journalPiece + 7} {
		want := strings.Repeat("0123456789", size/10+1)[:size]
		log := q.Swarms.Log(fmt.Sprintf("pieces-%d", i), 1, swarms.In)
		j, err := openJournal(ctx, log, 0)
		if err != nil {
			t.Fatalf("openJournal: %v, want no error", err)
		}
		doc := fixture.TempFile(t, []byte(want))
		if err := j.add(ctx, doc, position{Format: "csv", State: []byte(`{"a":1}`)}); err != nil {
			t.Fatalf("j.add: %v, want no error", err)
		}
		j.close()
		if j, err = openJournal(ctx, log, 0); err != nil {
			t.Fatalf("openJournal: %v, want no error", err)
		}
		at, ok, err := j.next(ctx, doc)
		if err != nil || !ok || at.Format != "csv" || string(at.State) != `{"a":1}` {
			t.Fatalf("%d bytes: %+v %v %v", size, at, ok, err)
		}
		if got := fixture.ReadAll(t, doc); got != want {
			t.Errorf("%d bytes became %d", size, len(got))
		}
		if _, ok, err := j.next(ctx, doc); ok || err != nil {
			t.Errorf("after the last document: %t, %v, want none and no error", ok, err)
		}
		j.close()
		_ = doc.Close()
	}
}
