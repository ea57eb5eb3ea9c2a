package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestAnswers: an answer is shared while it lasts, a failure too. A caller that leaves does not end
// the question of further callers.
func TestAnswers(t *testing.T) {
	a := newAnswers()
	defer a.close()
	var asked atomic.Int64
	release := make(chan struct{})
	ask := func(ctx context.Context) (any, error) {
		n := asked.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if n == 2 {
			return nil, jobs.ErrDenied
		}
		return n, nil
	}
	gone, leave := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := a.get(gone, "k", time.Hour, ask)
		left <- err
	}()
	testkit.Until(t, "the question", func() bool { return asked.Load() == 1 })
	why := errors.New("left")
	leave(why)
	if err := <-left; !errors.Is(err, why) {
		t.Error(err)
	}
	close(release)
	for range 3 {
		got, err := a.get(t.Context(), "k", time.Hour, ask)
		if err != nil || string(got.body) != "1" || got.status != 200 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for range 3 {
		if got, err := a.get(t.Context(), "failure", time.Hour, ask); err != nil || got.status != 403 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for n := int64(3); n < 6; n++ { // answers that do not last
		got, err := a.get(t.Context(), "short", time.Nanosecond, ask)
		if err != nil || string(got.body) != fmt.Sprint(n) {
			t.Errorf("%+v, %v", got, err)
		}
		at := time.Now()
		testkit.Until(t, "the end of the answer", func() bool { return time.Since(at) > time.Microsecond })
	}
}

// TestAnswersBound: there is a largest number of answers, and of questions at a time; answers that
// have ended make room.
func TestAnswersBound(t *testing.T) {
	a := newAnswers()
	defer a.close()
	var now, most atomic.Int64
	overlap := make(chan struct{}) // closed when as many questions are asked as may be
	full := sync.OnceFunc(func() { close(overlap) })
	ask := func(ctx context.Context) (any, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == maxAsking {
			full()
		}
		select {
		case <-overlap:
			return 1, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	done := make(chan error)
	for i := range maxAnswers {
		go func() {
			_, err := a.get(t.Context(), fmt.Sprint(i), 200*time.Millisecond, ask)
			done <- err
		}()
	}
	for range maxAnswers {
		if err := <-done; err != nil && !errors.Is(err, jobs.ErrUnavailable) {
			t.Error(err)
		}
	}
	if most.Load() != maxAsking {
		t.Errorf("%d questions at a time, want %d", most.Load(), maxAsking)
	}
	crowded := newAnswers()
	for i := range maxAnswers {
		if _, err := crowded.get(t.Context(), fmt.Sprint(i), time.Hour, ask); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := crowded.get(t.Context(), "more", time.Hour, ask); !errors.Is(err, jobs.ErrUnavailable) {
		t.Error("above the bound:", err)
	}
	if _, err := crowded.get(t.Context(), "7", time.Hour, ask); err != nil {
		t.Error("one that is there:", err)
	}
	crowded.close()
	if _, err := crowded.get(t.Context(), "after", time.Hour, ask); !errors.Is(err, jobs.ErrUnavailable) &&
		!errors.Is(err, context.Canceled) {
		t.Error("after the end:", err)
	}
}

// TestAnswersClose: the end cancels questions and waits for them.
func TestAnswersClose(t *testing.T) {
	a := newAnswers()
	asking := make(chan struct{})
	got := make(chan *answer, 1)
	go func() {
		answer, _ := a.get(t.Context(), "k", time.Hour, func(ctx context.Context) (any, error) {
			close(asking)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		got <- answer
	}()
	<-asking
	a.close()
	a.close()
	if answer := <-got; answer.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", answer)
	}
}

// TestUnchanged: a browser that has an answer gets no body, and one that takes gzip gets that.
func TestUnchanged(t *testing.T) {
	r := opened(t, newFake(fakeState()), nil)
	bearer := []string{"Authorization", "Bearer " + testToken}
	for _, path := range []string{"api/v1/history?names=agents", "", site().folder + "/app.js"} {
		first, plain := r.do(t, "GET", path, "", append(bearer, "Accept-Encoding", "identity")...)
		tag := first.header.Get("ETag")
		if tag == "" || first.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v", path, first.header)
		}
		same, body := r.do(t, "GET", path, "", append(bearer, "If-None-Match", tag, "Accept-Encoding", "identity")...)
		if same.status != http.StatusNotModified || body != "" {
			t.Errorf("%s again: %d", path, same.status)
		}
		small, body := r.do(t, "GET", path, "", append(bearer, "Accept-Encoding", "gzip")...)
		if small.header.Get("Content-Encoding") != "gzip" || len(body) >= len(plain) {
			t.Errorf("%s: %d bytes, compressed %d", path, len(plain), len(body))
		}
	}
}

// TestAcceptsGzip reads the headers of browsers and of programs.
func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "gzip, deflate, br, zstd": true, "br;q=1.0, gzip;q=0.8": true, "gzip;q=0": false,
		"gzip; q=0.000": false, "identity": false, "x-gzip": false, "br, gzip ; q=0.1": true,
	} {
		r := httptest.NewRequest("GET", "/", io.NopCloser(strings.NewReader("")))
		r.Header.Set("Accept-Encoding", header)
		if acceptsGzip(r) != want {
			t.Errorf("%q: %t", header, !want)
		}
	}
}

// TestHideSecrets: texts with secrets are hidden, whatever they are nested in, and the rest stays.
func TestHideSecrets(t *testing.T) {
	for in, want := range map[string]string{
		``:                                    ``,
		`{`:                                   `null`,
		`{"a":1,"b":[true,null,"x"]}`:         `{"a":1,"b":[true,null,"x"]}`,
		`{"n":12345678901234567890.10}`:       `{"n":12345678901234567890.10}`,
		`{"url":"nats://u:p@h:4222"}`:         `{"url":"nats://h:4222"}`,
		`["postgres://u:p@h/d"]`:              `["postgres://h/d"]`,
		`{"password":"p","Secret":{"k":"v"}}`: `{"Secret":{"k":"[secret]"},"password":"[secret]"}`,
		`{"headers":{"X-A":"v"},"token":""}`:  `{"headers":{"X-A":"[secret]"},"token":""}`,
		`{"api_key":["a","b"],"seed":"1"}`:    `{"api_key":["[secret]","[secret]"],"seed":"1"}`,
	} {
		if got := string(hideSecrets([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

// FuzzHideSecrets: whatever the text is, the result is JSON or empty, and hiding again changes
// nothing.
func FuzzHideSecrets(f *testing.F) {
	for _, seed := range []string{
		``, `{"a":[1,"u://b@c"]}`, `{"headers":{"a":{"b":"c"}}}`, `"\ud800"`, `{"a":1,"a":2}`, `1 2`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out := hideSecrets(in)
		if len(out) > 0 && !json.Valid(out) {
			t.Fatalf("%q becomes %q", in, out)
		}
		if again := hideSecrets(out); string(again) != string(out) {
			t.Fatalf("%q becomes %q, then %q", in, out, again)
		}
	})
}
