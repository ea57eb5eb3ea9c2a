package policy

import (
	"bufio"
	"compress/gzip"
	fifo "container/list"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// play asks for pages in order, with guesses acted on at once and kept for keep further demands. It
// returns how many demands found their page guessed, and how many guesses were in vain.
func play(p *Predictor, trace []uint64, keep int) (hits, wasted int) {
	type fetched struct {
		at     int
		source GuessSource
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
		if hits, wasted := play(NewPredictor(PredictorOptions{}), trace, 64); hits < 990 || wasted > 0 {
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
	if hits, wasted := play(NewPredictor(PredictorOptions{}), trace, 400); hits < 1900 || wasted > 0 {
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
	p := NewPredictor(PredictorOptions{})
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

// TestScore: a page is guessed after another one if it followed that in more than four fifths of
// the times, and at least three times are known.
func TestScore(t *testing.T) {
	for times := 1; times < mostSeen; times++ {
		for followed := range times + 1 {
			p := NewPredictor(PredictorOptions{})
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
	p := NewPredictor(PredictorOptions{})
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
	p := NewPredictor(PredictorOptions{})
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
		p := NewPredictor(PredictorOptions{Depth: 8, Entries: 16})
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
	p := NewPredictor(PredictorOptions{})
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

// TestPredictorTable prints how many of the page faults of an LRU are left with guesses, on
// recorded traces, which are no part of the repository.
func TestPredictorTable(t *testing.T) {
	testkit.OnlyLong(t)
	dir := os.Getenv("EXOSWARM_TRACES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.txt.gz"))
	if err != nil || len(names) == 0 {
		t.Skip("no access traces: set EXOSWARM_TRACES to a directory of *.txt.gz, one page number a line")
	}
	for _, name := range names {
		trace := readTrace(t, name)
		alone, guessed := faults(nil, trace, 200), faults(NewPredictor(PredictorOptions{}), trace, 200)
		t.Logf("%-24s %7d faults, %7d with guesses", filepath.Base(name), alone, guessed)
		if guessed > alone {
			t.Errorf("%s: %d faults with guesses, %d without", name, guessed, alone)
		}
	}
}

func readTrace(t *testing.T, name string) (trace []uint64) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		if page, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
			trace = append(trace, page)
		}
	}
	return trace
}

// faults returns how often an LRU of some pages, which fetches guesses, does not have a page that
// is asked for. p may be nil.
func faults(p *Predictor, trace []uint64, capacity int) (n int) {
	type entry struct {
		page   uint64
		source int // of a guess without a use, or -1
	}
	order, at := fifo.New(), map[uint64]*fifo.Element{}
	put := func(page uint64, source int) {
		at[page] = order.PushFront(&entry{page, source})
		if order.Len() > capacity {
			old := order.Remove(order.Back()).(*entry)
			if delete(at, old.page); old.source >= 0 {
				p.Outcome(GuessSource(old.source), false)
			}
		}
	}
	for _, page := range trace {
		learns := true
		if e, here := at[page]; here {
			v := e.Value.(*entry)
			if learns = v.source >= 0; learns {
				p.Outcome(GuessSource(v.source), true)
				v.source = -1
			}
			order.MoveToFront(e)
		} else {
			n++
			put(page, -1)
		}
		if p == nil || !learns {
			continue
		}
		for _, g := range p.Demand(page, nil) {
			if at[g.Page] == nil {
				put(g.Page, int(g.Source))
			}
		}
	}
	return n
}
