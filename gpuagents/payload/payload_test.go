package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/internal/leak"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) { leak.Check(m) }

// testSource fails so many times, and then fetches sevens.
type testSource struct {
	mu    sync.Mutex
	fails int
	err   error
}

func (s *testSource) Fetch(_ context.Context, _ swarms.Bulk, into []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return s.err
	}
	copy(into, bytes.Repeat([]byte{7}, len(into)))
	return nil
}

// entryOf returns an entry of n bytes.
func entryOf(t *testing.T, seq uint64, n int) swarms.Entry {
	t.Helper()
	data, err := json.Marshal(swarms.Bulk{
		Version: jobs.Version, Place: "127.0.0.1:4280", ID: strings.Repeat("0f", swarms.BulkID/2),
		Token: make([]byte, swarms.BulkToken), Bytes: n, Memory: n, Sums: swarms.BulkSums(make([]byte, n)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return swarms.Entry{Seq: seq, Kind: swarms.EntryBulk, Data: data}
}

// get is Begin and Get.
func get(ctx context.Context, g *Getter, e swarms.Entry) ([]byte, error) {
	if err := g.Begin(ctx); err != nil {
		return nil, err
	}
	return g.Get(ctx, e)
}

// value returns the sum of a family.
func value(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestGet: a source that fails is asked again, and what waits is told meanwhile.
func TestGet(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	s := &testSource{fails: 1 << 30, err: errors.New("refused " + strings.Repeat("x", 1000))}
	var log strings.Builder
	g := NewGetter(s, nil, slog.New(slog.NewTextHandler(&log, nil)), m.Of("gru"))
	g.pause = time.Millisecond
	got := make(chan []byte, 1)
	for _, seq := range []uint64{9, 7} {
		go func() {
			data, err := get(t.Context(), g, entryOf(t, seq, 100))
			if err != nil {
				t.Error(err)
			}
			got <- data
		}()
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			if w, is := g.Waiting("key"); is && w.Entry == seq {
				if w.Shard != "key" || w.Place != "127.0.0.1:4280" || len(w.Error) != maxError || w.Since.IsZero() {
					t.Errorf("waiting %+v", w)
				}
				break
			}
			if time.Since(began) > 10*time.Second {
				t.Fatal("it does not say that it waits")
			}
		}
	}
	if n := value(t, r, "exoswarm_swarm_bulk_waiting_shards"); n != 1 {
		t.Errorf("%v shards wait, want 1", n)
	}
	s.mu.Lock()
	s.fails = 0
	s.mu.Unlock()
	for range 2 {
		if data := <-got; len(data) != 100 || data[99] != 7 {
			t.Errorf("got %v", data)
		}
	}
	if w, is := g.Waiting("key"); is {
		t.Errorf("waiting %+v", w)
	}
	if n := value(t, r, "exoswarm_swarm_bulk_waiting_shards"); n != 0 {
		t.Errorf("%v shards wait, want 0", n)
	}
	if n := value(t, r, "exoswarm_swarm_bulk_bytes_total"); n != 200 {
		t.Errorf("%v bytes are counted, want 200", n)
	}
	if value(t, r, "exoswarm_swarm_bulk_failures_total") < 2 || strings.Count(log.String(), "longer") != 2 {
		t.Errorf("failures are not counted or logged: %s", log.String())
	}
}

// TestEnd: a context that ends is seen while it waits, with its cause.
func TestEnd(t *testing.T) {
	g := NewGetter(nil, nil, slog.New(slog.DiscardHandler), nil)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	if _, err := get(ctx, g, entryOf(t, 1, 5)); !errors.Is(err, why) {
		t.Errorf("error %v, want the cause", err)
	}
	if _, is := g.Waiting(""); is {
		t.Error("it still waits")
	}
	for range most {
		if err := g.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Begin(ctx); !errors.Is(err, why) {
		t.Errorf("one too many: error %v, want the cause", err)
	}
}

// TestRefused: descriptions and bytes that no agent accepts are refused.
func TestRefused(t *testing.T) {
	g := NewGetter(&testSource{}, nil, slog.New(slog.DiscardHandler), nil)
	for range 2 * most { // a refusal gives its place back
		var refused *jobs.Error
		if _, err := get(t.Context(), g, swarms.Entry{Data: []byte("{")}); !errors.As(err, &refused) {
			t.Fatalf("error %v, want a refusal", err)
		}
	}
	if w := WeightOf([]byte("{}")); w != 2 {
		t.Errorf("an entry that is none weighs %d", w)
	}
	if w := WeightOf(entryOf(t, 1, 1000).Data); w != 1000 {
		t.Errorf("an entry of 1000 bytes weighs %d", w)
	}
}

// TestReplaced: an entry that a snapshot replaces is given up, and no other one.
func TestReplaced(t *testing.T) {
	var base atomic.Uint64
	g := NewGetter(nil, base.Load, slog.New(slog.DiscardHandler), nil)
	g.pause = time.Millisecond
	base.Store(6)
	time.AfterFunc(20*time.Millisecond, func() { base.Store(7) })
	began := time.Now()
	if _, err := get(t.Context(), g, entryOf(t, 7, 5)); !errors.Is(err, ErrReplaced) || !errors.Is(err, ErrNoSource) {
		t.Errorf("error %v, want %v", err, ErrReplaced)
	}
	if time.Since(began) < 15*time.Millisecond {
		t.Error("it is given up before a snapshot replaces it")
	}
}
