package prefetch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// play asks for pages in order, with guesses acted on at once and kept for keep further demands. It
// returns how many demands found their page guessed, and how many guesses were in vain.
func play(p *Predictor, trace []uint64, keep int) (hits, wasted int) {
	type fetched struct {
		at     int
		source Source
	}
	here := map[uint64]fetched{}
	for i, page := range trace {
		if f, ok := here[page]; ok {
			hits++
			p.Outcome(f.source, true)
			delete(here, page)
		}
		for _, g := range p.Demand(page, nil) {
			if _, ok := here[g.Page]; !ok {
				here[g.Page] = fetched{i, g.Source}
			}
		}
		for q, f := range here {
			if i-f.at > keep {
				p.Outcome(f.source, false)
				wasted++
				delete(here, q)
			}
		}
	}
	return hits, wasted
}

func TestRuns(t *testing.T) {
	for _, stride := range []int64{1, 3, -1, -2} {
		var trace []uint64
		for i := range int64(1000) {
			trace = append(trace, uint64(1<<40+i*stride))
		}
		if hits, wasted := play(New(Options{}), trace, 64); hits < 990 || wasted > 0 {
			t.Errorf("stride %d: %d of 1000 pages guessed, %d in vain", stride, hits, wasted)
		}
	}
}

// TestInterleavedRuns has five runs at once, one step each in turn.
func TestInterleavedRuns(t *testing.T) {
	var trace []uint64
	for i := range uint64(400) {
		for run := range uint64(5) {
			trace = append(trace, run<<32+i)
		}
	}
	if hits, wasted := play(New(Options{}), trace, 400); hits < 1900 || wasted > 0 {
		t.Errorf("%d of 2000 pages guessed, %d in vain", hits, wasted)
	}
}

// TestCorrelation repeats walks over pages that are far apart, in random order of the walks.
func TestCorrelation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var walks [50][]uint64
	for i := range walks {
		for range 8 {
			walks[i] = append(walks[i], rng.Uint64())
		}
	}
	var trace []uint64
	for range 2000 {
		trace = append(trace, walks[rng.IntN(len(walks))]...)
	}
	p := New(Options{})
	hits, wasted := play(p, trace, 32)
	if share := float64(hits) / float64(len(trace)); share < 0.7 {
		t.Errorf("%.2f of the pages guessed, want 0.7", share)
	}
	if wasted > hits/10 {
		t.Errorf("%d guesses in vain beside %d hits", wasted, hits)
	}
	// Another load: the old walks fade and give way.
	for i := range walks {
		rng.Shuffle(8, func(a, b int) { walks[i][a], walks[i][b] = walks[i][b], walks[i][a] })
	}
	trace = trace[:0]
	for range 2000 {
		trace = append(trace, walks[rng.IntN(len(walks))]...)
	}
	if hits, _ := play(p, trace, 32); float64(hits)/float64(len(trace)) < 0.6 {
		t.Errorf("%d of %d pages guessed after a change", hits, len(trace))
	}
}

// TestScore: a page is guessed after another one if it followed that in more than four fifths of the
// times, and at least three times are known.
func TestScore(t *testing.T) {
	for times := 1; times < mostSeen; times++ {
		for followed := range times + 1 {
			p := New(Options{})
			other := uint64(1 << 40)
			page := func() uint64 { other += 1 << 20; return other } // of no run
			for i := range times {
				p.Demand(7, nil)
				if i%times < followed {
					p.Demand(page(), nil) // it need not come at once
					p.Demand(99, nil)
				}
				for range window {
					p.Demand(page(), nil)
				}
			}
			got := slices.Contains(p.Demand(7, nil), Guess{99, Correlation})
			if want := times >= 3 && 5*followed > 4*times; got != want {
				t.Errorf("followed %d of %d times: guessed %v, want %v", followed, times, got, want)
			}
		}
	}
}

// TestThrottle has runs that break off where they have been proven: guesses stop, but for probes,
// and start again when runs go on.
func TestThrottle(t *testing.T) {
	p := New(Options{})
	rng := rand.New(rand.NewPCG(2, 2))
	var trace []uint64
	for range 20000 {
		at := rng.Uint64() >> 1
		trace = append(trace, at, at+1, at+2)
	}
	_, wasted := play(p, trace, 8)
	if wasted > len(trace)/50 {
		t.Errorf("%d guesses in vain over %d demands", wasted, len(trace))
	}
	trace = trace[:0]
	for i := range uint64(20000) {
		trace = append(trace, 7<<50+i)
	}
	if hits, _ := play(p, trace, 64); hits < 15000 {
		t.Errorf("only %d of 20000 pages of a run guessed after it was throttled", hits)
	}
}

// TestRandomAccessIsLeftAlone makes no guess to speak of where there is nothing to guess.
func TestRandomAccessIsLeftAlone(t *testing.T) {
	p := New(Options{})
	rng := rand.New(rand.NewPCG(3, 3))
	n := 0
	for range 100000 {
		n += len(p.Demand(rng.Uint64(), nil))
	}
	if n > 100 {
		t.Errorf("%d guesses on 100000 random pages", n)
	}
}

// TestBounds gives it anything: it guesses no page twice at once, none that was asked for, and no
// more than the depth.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New(Options{Depth: 8, Entries: 16})
		pages := rapid.OneOf(rapid.Uint64Range(0, 30), rapid.Uint64Range(math.MaxUint64-30, math.MaxUint64),
			rapid.Uint64())
		for range rapid.IntRange(0, 300).Draw(t, "demands") {
			page := pages.Draw(t, "page")
			out := p.Demand(page, nil)
			if len(out) > 8+chain {
				t.Fatalf("%d guesses", len(out))
			}
			for i, g := range out {
				if g.Page == page || slices.Contains(out[:i], g) {
					t.Fatalf("guesses %v after %d", out, page)
				}
				p.Outcome(g.Source, rapid.Bool().Draw(t, "used"))
			}
		}
	})
}

func BenchmarkDemand(b *testing.B) {
	p := New(Options{})
	rng := rand.New(rand.NewPCG(1, 1))
	pages := make([]uint64, 1<<14)
	for i := range pages {
		pages[i] = rng.Uint64N(1 << 20)
	}
	var out []Guess
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		out = p.Demand(pages[i&(1<<14-1)], out[:0])
		i++
	}
}
