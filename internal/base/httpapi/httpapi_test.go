package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// TestServer: a drain lets a request finish, and a drain that takes too long cuts it off.
func TestServer(t *testing.T) {
	for _, c := range []struct {
		name   string
		finish bool
	}{{"finished", true}, {"cut off", false}} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			began, end := make(chan struct{}), make(chan struct{})
			s := Start(l, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(began)
				select {
				case <-end:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "done")
			})})
			answer := make(chan string, 1)
			go func() {
				res, err := http.Get("http://" + l.Addr().String())
				if err != nil {
					answer <- "cut"
					return
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				answer <- string(body)
			}()
			<-began
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			want := "cut"
			if c.finish {
				want = "done"
				close(end)
			} else {
				cancel()
			}
			s.Close(ctx)
			s.Close(ctx)
			if got := <-answer; got != want {
				t.Errorf("the request got %q, want %q", got, want)
			}
			if err := s.Err(); err != nil {
				t.Errorf("Err returns %v after Close, want nil", err)
			}
		})
	}
}

// TestRegister: parameters are checked before a route serves, errors have their status, and
// requests with the same parameters have the same key.
func TestRegister(t *testing.T) {
	var keys []string
	routes := []Route{{
		Method: http.MethodGet, Path: "things/{id}", Name: "getThing",
		Params: []Param{
			{Name: "id", In: "path", Kind: "string"},
			{Name: "n", In: "query", Kind: "integer", Default: "3", Min: 1, Max: 9},
			{Name: "all", In: "query", Kind: "boolean", Default: "false"},
			{Name: "of", In: "query", Kind: "string", Values: []string{"", "a"}},
		},
		Admit: func(_ http.ResponseWriter, r *http.Request) error {
			if _, ok := Bearer(r); !ok {
				return &Error{Status: http.StatusUnauthorized, Bearer: true, Text: "say who you are"}
			}
			return nil
		},
		Serve: func(w http.ResponseWriter, r *Request) error {
			keys = append(keys, r.Key)
			switch r.Params["id"] {
			case "busy":
				return &Error{Status: http.StatusServiceUnavailable, After: 2 * time.Second, Text: "come again"}
			case "none":
				return fmt.Errorf("thing: %w", io.EOF)
			}
			WriteJSON(w, http.StatusOK, r.Params.Int("n"))
			return nil
		},
	}}
	mux := http.NewServeMux()
	classes := []Class{{http.StatusNotFound, Is(io.ErrNoProgress, io.EOF)}}
	Register(mux, "/v1/", routes, func(w http.ResponseWriter, _ *http.Request, err error) {
		var e *Error
		if !errors.As(err, &e) {
			e = Errorf(StatusOf(err, classes), "%v", err)
		}
		e.Write(w)
	})
	for _, c := range []struct {
		path, login string
		status      int
		body        string
	}{
		{"things/x", "", 401, "say who"},
		{"things/x", "bearer t", 200, "3"},
		{"things/x?n=3", "Bearer t", 200, "3"},
		{"things/x?n=10", "Bearer t", 400, "use 1 to 9"},
		{"things/x?all=yes", "Bearer t", 400, "true or false"},
		{"things/x?of=b", "Bearer t", 400, "use one of"},
		{"things/busy", "Bearer t", 503, "come again"},
		{"things/" + strings.Repeat("x", 300), "Bearer t", 400, "longer"},
		{"things/none", "Bearer t", 404, "thing: EOF"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/"+c.path, nil)
		r.Header.Set("Authorization", c.login)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%.40s: %d %s, want %d with %q", c.path, w.Code, w.Body, c.status, c.body)
		}
		if after := w.Header().Get("Retry-After"); (after == "2") != (c.status == 503) {
			t.Errorf("%.40s: Retry-After %q", c.path, after)
		}
		if ask := w.Header().Get("WWW-Authenticate"); (ask == "Bearer") != (c.status == 401) {
			t.Errorf("%.40s: WWW-Authenticate %q", c.path, ask)
		}
	}
	if len(keys) < 2 || keys[0] != keys[1] {
		t.Errorf("a default and the same value have the keys %q", keys)
	}
}

// TestBodies: a body is read up to its limit, with memory that is given back, and a body without
// memory is refused.
func TestBodies(t *testing.T) {
	b := NewBodies(128 << 10)
	read := func(size int, known bool, limit int64) (int, func(), error) {
		r := httptest.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			"/",
			strings.NewReader(strings.Repeat("x", size)),
		)
		if !known {
			r.ContentLength = -1
		}
		data, free, err := b.Read(httptest.NewRecorder(), r, limit)
		return len(data), free, err
	}
	for _, known := range []bool{true, false} {
		for _, size := range []int{0, 1, 100_000} {
			n, free, err := read(size, known, 100_000)
			if err != nil || n != size {
				t.Fatalf("a body of %d bytes: %d, %v", size, n, err)
			}
			free()
		}
		var long *http.MaxBytesError
		if _, _, err := read(1001, known, 1000); !errors.As(err, &long) {
			t.Errorf("a body beyond its limit: %v", err)
		}
		if _, _, err := read(200_000, known, 1<<20); !errors.Is(err, ErrBusy) {
			t.Errorf("a body beyond the memory: %v, want ErrBusy", err)
		}
	}
	if err := b.Reserve(128 << 10); err != nil {
		t.Errorf("memory is not given back: %v", err)
	}
	if _, _, err := read(1, true, 10); !errors.Is(err, ErrBusy) {
		t.Errorf("a body without memory: %v, want ErrBusy", err)
	}
	b.Release(128 << 10)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader("x"),
		cut{}))
	if _, _, err := b.Read(httptest.NewRecorder(), r, 10); !errors.Is(err, ErrCut) {
		t.Errorf("a body that was cut off: %v, want ErrCut", err)
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLoopback: only addresses of this machine count.
func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true,
		"LocalHost": true,
		"":          false, "0.0.0.0": false, "::": false, "example.org": false, "10.0.0.1": false, "::1%lo": false,
	} {
		if got := Loopback(host); got != want {
			t.Errorf("Loopback(%q) is %v, want %v", host, got, want)
		}
	}
}
