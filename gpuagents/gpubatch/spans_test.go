package gpubatch

import (
	"sync"
	"testing"
	"time"
)

// TestRing: the ring keeps the newest spans, in their order.
func TestRing(t *testing.T) {
	r := NewRing()
	track := r.Track("s", 3, "gru")
	start := time.Now().Add(-time.Hour)
	for i := range MaxSpans + 100 {
		track.Of(uint64(i), uint64(i+1))
		track.Add(StageKernel, start.Add(time.Duration(i)*time.Millisecond), time.Millisecond, i)
	}
	all := r.Since(time.Time{})
	if len(all) != MaxSpans {
		t.Fatalf("%d spans, want %d", len(all), MaxSpans)
	}
	for i, s := range all {
		if s.First != uint64(i+100) || s.Last != s.First+1 || s.Bytes != int64(s.First) || s.Swarm != "s" ||
			s.Shard != 3 || s.Stage != StageKernel {
			t.Fatalf("span %d is %+v", i, s)
		}
	}
	if sum := r.Totals()["gru"][StageKernel]; sum != (MaxSpans+100)*time.Millisecond ||
		r.Totals()["gru"][StagePage] != 0 {
		t.Errorf("the kernels took %v, want %v", sum, (MaxSpans+100)*time.Millisecond)
	}
	if late := r.Since(start.Add((MaxSpans + 50) * time.Millisecond)); len(late) != 50 {
		t.Errorf("%d late spans, want 50", len(late))
	}
}

// TestNilTrack: without a ring nothing is measured.
func TestNilTrack(t *testing.T) {
	var r *Ring
	track := r.Track("s", 0, "gru")
	track.Of(1, 2)
	if began := track.Now(); !track.End(StagePage, began, 1).IsZero() || len(r.Since(time.Time{})) != 0 {
		t.Error("a nil ring measures")
	}
}

// TestRingAllocatesNothing: spans are added on the path of every batch.
func TestRingAllocatesNothing(t *testing.T) {
	track := NewRing().Track("s", 0, "gru")
	if n := testing.AllocsPerRun(1000, func() { track.End(StageUpload, track.Now(), 9) }); n != 0 {
		t.Errorf("%v allocations a span, want none", n)
	}
}

// TestRingOfManyGoroutines: tracks of several goroutines share a ring.
func TestRingOfManyGoroutines(t *testing.T) {
	r := NewRing()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			track := r.Track("s", i, "gru")
			for range 200 {
				track.End(StageFetch, track.Now(), 0)
				r.Since(time.Now())
			}
		})
	}
	all.Wait()
	counts := map[int]int{}
	for _, s := range r.Since(time.Time{}) {
		counts[s.Shard]++
	}
	for i := range 8 {
		if counts[i] != 200 {
			t.Errorf("%d spans of goroutine %d, want 200", counts[i], i)
		}
	}
}

// BenchmarkSpan is the cost of a span; a batch has seven, and takes 100 us of a GPU or more.
func BenchmarkSpan(b *testing.B) {
	track := NewRing().Track("s", 0, "gru")
	for b.Loop() {
		track.End(StageKernel, track.Now(), 1)
	}
}
