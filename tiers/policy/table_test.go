package policy

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// traces reads the access traces, whose place EXOSWARM_TRACES names; without it they are looked for
// beside the repository.
func traces(t testing.TB) []row {
	dir := os.Getenv("EXOSWARM_TRACES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.txt.gz"))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]int{
		"loop": {100, 512, 900}, "multi1": {200, 1000, 2000}, "multi2": {200, 1000, 3000}, "multi3": {200, 1000, 3000},
		"2_pools": {50, 200, 1000, 5000}, "ps": {100, 300, 1000}, "scan": {50, 200, 1000}, "zigzag": {100, 300, 900},
		"cpp": {50, 100, 500},
	}
	var rows []row
	for _, name := range names {
		short := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "lirs_"), ".txt.gz")
		r := row{name: short, at: at[short]}
		if r.at == nil {
			r.at = []int{100, 1000}
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(z)
		for lines.Scan() {
			if page, err := strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64); err == nil {
				r.trace = append(r.trace, page)
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// tolerance is the least share of the hits of the best expert that the adaptive policy may have.
const tolerance = 0.97

// table runs the experts and Adaptive over rows, prints what they hit, and returns Adaptive's share
// of the best a row.
func table(t *testing.T, rows []row) map[string]float64 {
	t.Helper()
	names := ""
	for _, create := range Experts() {
		names += fmt.Sprintf(" %9s", create(1, nil).Name())
	}
	t.Logf("%-28s %9s%s %9s %9s", "hit rate, %", "optimum", names, "adaptive", "of best")
	shares := map[string]float64{}
	for _, r := range rows {
		for _, capacity := range r.at {
			rate := func(n int) float64 { return 100 * float64(n) / float64(len(r.trace)) }
			line, best := "", 0
			for _, create := range Experts() {
				n := hits(create, capacity, r.trace)
				best = max(best, n)
				line += fmt.Sprintf(" %9.2f", rate(n))
			}
			got := tierHits(NewAdaptive(capacity, nil), capacity, r.trace)
			name := fmt.Sprintf("%s @%d", r.name, capacity)
			shares[name] = 1
			if best > 0 {
				shares[name] = float64(got) / float64(best)
			}
			t.Logf("%-28s %9.2f%s %9.2f %9.3f", name, rate(optimum(capacity, r.trace)), line, rate(got), shares[name])
		}
	}
	return shares
}

// TestTable holds the adaptive policy to within 3 % of the best expert on every generated row.
func TestTable(t *testing.T) {
	testkit.OnlyLong(t)
	for name, share := range table(t, generated(1)) {
		if share < tolerance {
			t.Errorf("%s: %.3f of the best expert, want %.2f", name, share, tolerance)
		}
	}
}

// TestTableOfTraces does so on the recorded traces. They are no part of the repository.
func TestTableOfTraces(t *testing.T) {
	testkit.OnlyLong(t)
	rows := traces(t)
	if len(rows) == 0 {
		t.Skip("no access traces: set EXOSWARM_TRACES to a directory of *.txt.gz, one page number a line")
	}
	for name, share := range table(t, rows) {
		if share < tolerance {
			t.Errorf("%s: %.3f of the best expert, want %.2f", name, share, tolerance)
		}
	}
}

// TestMixtures runs random sequences of random loads that no number was chosen for. Short ones with
// abrupt changes cost more than 3 %: following a change takes evidence, and evidence takes misses.
func TestMixtures(t *testing.T) {
	sum, worst, under := 0.0, 1.0, 0
	rows := mixtures(2026, testkit.Of(30, 12))
	for _, r := range rows {
		capacity, best := r.at[0], 0
		for _, create := range Experts() {
			best = max(best, hits(create, capacity, r.trace))
		}
		share := 1.0
		if best > 0 {
			share = float64(tierHits(NewAdaptive(capacity, nil), capacity, r.trace)) / float64(best)
		}
		if share < tolerance {
			under++
			t.Logf("%s@%d: %.3f of the best expert", r.name, capacity, share)
		}
		sum += share
		worst = min(worst, share)
	}
	mean := sum / float64(len(rows))
	t.Logf("%d mixtures: mean %.3f of the best expert of each, worst %.3f, %d under %.2f", len(rows), mean, worst,
		under, tolerance)
	if mean < tolerance || worst < 0.85 {
		t.Error("adaptive lost touch")
	}
}

// TestExperts holds every expert to its contract on random accesses and removals: never more pages
// than its capacity, and Contains, hits and evictions that agree.
func TestExperts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, create := range Experts() {
			capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
			held := map[uint64]bool{}
			var x Expert
			x = create(capacity, func(page uint64) {
				if !held[page] {
					t.Fatalf("%s evicted page %d, which it did not hold", x.Name(), page)
				}
				delete(held, page)
			})
			for range rapid.IntRange(0, 600).Draw(t, "accesses") {
				page := rapid.Uint64Range(0, 80).Draw(t, "page")
				if rapid.IntRange(0, 19).Draw(t, "remove") == 0 {
					x.Remove(page)
					delete(held, page)
				} else {
					before := held[page]
					held[page] = true
					if hit := x.Access(page); hit != before {
						t.Fatalf("%s: hit %v on page %d, held: %v", x.Name(), hit, page, before)
					}
				}
				if len(held) > capacity {
					t.Fatalf("%s holds %d pages of %d", x.Name(), len(held), capacity)
				}
				if x.Contains(page) != held[page] {
					t.Fatalf("%s: contains page %d: %v, want %v", x.Name(), page, x.Contains(page), held[page])
				}
			}
		}
	})
}

// TestAdaptiveBooks checks the accounts that Adaptive keeps against counting.
func TestAdaptiveBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		a := NewAdaptive(capacity, nil)
		resident := map[uint64]bool{}
		for range rapid.IntRange(0, 400).Draw(t, "accesses") {
			page := rapid.Uint64Range(0, 40).Draw(t, "page")
			switch {
			case rapid.IntRange(0, 19).Draw(t, "remove") == 0:
				a.Removed(page)
				delete(resident, page)
			case resident[page]:
				a.Access(page)
			default:
				a.Access(page)
				if len(resident) >= capacity {
					gone, ok := a.Victim(func(p uint64) bool { return p%7 != 0 || len(resident) == 1 })
					if !ok {
						continue // Everything is pinned.
					}
					if !resident[gone] {
						t.Fatalf("victim %d is not resident", gone)
					}
					a.Evicted(gone)
					delete(resident, gone)
				}
				a.Added(page)
				resident[page] = true
			}
			for _, s := range a.experts {
				missing, spare := 0, 0
				for p := range uint64(41) {
					if s.Contains(p) && !resident[p] {
						missing++
					}
					if !s.Contains(p) && resident[p] {
						spare++
					}
				}
				if s.missing != missing {
					t.Fatalf("%s: %d pages missing, counted %d", s.Name(), s.missing, missing)
				}
				if s.listed && s.order.n != spare {
					t.Fatalf("%s: %d pages to spare, counted %d", s.Name(), s.order.n, spare)
				}
			}
		}
	})
}

func BenchmarkAdaptive(b *testing.B) {
	const capacity = 65536 // 128 GiB of 2 MiB pages
	rng := rand.New(rand.NewPCG(1, 1))
	z := newZipf(4*capacity, 0.9, rng)
	trace := make([]uint64, 1<<20)
	for i := range trace {
		trace[i] = z.next()
	}
	a := NewAdaptive(capacity, nil)
	tierHits(a, capacity, trace)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		a.Access(trace[i&(len(trace)-1)])
		i++
	}
}
