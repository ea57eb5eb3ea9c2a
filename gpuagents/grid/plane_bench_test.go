package grid

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
)

var benchSide = flag.Int64("side", 0, "columns and rows of BenchmarkLife; 0: 16384, and 1024 on the host device")

// benchGenerations is the number of generations that BenchmarkLife compares with the host device,
// and benchTimes the number of measurements.
const (
	benchGenerations = 11
	benchTimes       = 20
)

// BenchmarkLife measures generations of a periodic grid beside copies of as many bytes on the
// device: a generation reads each byte of the state once and writes it once, and so does a copy.
// Before that it makes generations of random cells, and compares all of them with the host device.
// Times are device times, medians of benchTimes with 2*b.N generations or copies in each.
func BenchmarkLife(b *testing.B) {
	d := openDevice(b)
	side := *benchSide
	if side == 0 {
		if side = 16384; d.Properties().ComputeMajor == 0 {
			side = 1024
		}
	}
	o := Options{Width: side, Height: side, Periodic: true}
	p := open(b, d, int(min(side, 4096)), o)
	compare(b, p, o)
	ok(b, p.Columns.Ready(b.Context()))
	buffer, err := d.Alloc(p.Second.Size(), "copy")
	ok(b, err)
	defer buffer.Close()
	from, err := d.NewEvent()
	ok(b, err)
	defer from.Close()
	to, err := d.NewEvent()
	ok(b, err)
	defer to.Close()
	size := side * side
	median := func(f func(i int) error) time.Duration {
		var all []time.Duration
		for range benchTimes {
			ok(b, p.Stream.Record(from))
			for i := range 2 * b.N {
				ok(b, f(i))
			}
			ok(b, p.Stream.Record(to))
			ok(b, p.Stream.Sync(b.Context()))
			took, err := to.Since(from)
			ok(b, err)
			all = append(all, took/time.Duration(2*b.N))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	b.ResetTimer()
	launch := func(i int, count bool) error {
		from, to := p.Pair(i)
		return p.launch(from, to, count)
	}
	step := median(func(i int) error { return launch(i, false) })
	counted := median(func(i int) error { return launch(i, true) })
	copied := median(func(i int) error {
		if i%2 == 0 {
			return p.Stream.Copy(buffer, 0, p.Second, 0, size)
		}
		return p.Stream.Copy(p.Second, 0, buffer, 0, size)
	})
	b.StopTimer()
	rate := func(took time.Duration) float64 { return 2 * float64(size) / float64(took.Nanoseconds()) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(step.Nanoseconds())/1e3, "generation-us")
	b.ReportMetric(float64(counted.Nanoseconds())/1e3, "counted-us")
	b.ReportMetric(rate(step), "life-GB/s")
	b.ReportMetric(rate(copied), "copy-GB/s")
	b.ReportMetric(100*rate(step)/rate(copied), "%-of-copy")
}

// compare gives a grid random cells, and compares its generations with the host device.
func compare(b *testing.B, p *Plane, o Options) {
	host, err := cuda.Open(b.Context(), "host", cuda.Options{})
	ok(b, err)
	defer host.Close()
	twin, err := New(host, nil, lifeOf(b, p.Layout().Agents), o)
	ok(b, err)
	defer twin.Close()
	ok(b, twin.Memory().Open(b.Context(), nil))
	r := rand.New(rand.NewPCG(7, 7))
	content, other := make([]byte, p.Layout().PageBytes), make([]byte, p.Layout().PageBytes)
	for page := range p.Memory().Count() {
		for i, words := 0, device.Of[uint64](content); i < len(words); i++ {
			words[i] = r.Uint64() & 0x0101010101010101
		}
		clear(content[min(int64(p.PerPage()), p.Len()-int64(page)*int64(p.PerPage())):])
		ok(b, p.Memory().Write(b.Context(), uint64(page), content))
		ok(b, twin.Memory().Write(b.Context(), uint64(page), content))
	}
	got, want := tick(b, p, benchGenerations), tick(b, twin, benchGenerations)
	if got != want {
		b.Fatalf("%d cells are alive, want %d", got, want)
	}
	for page := range p.Memory().Count() {
		ok(b, p.Memory().Read(b.Context(), uint64(page), content))
		ok(b, twin.Memory().Read(b.Context(), uint64(page), other))
		if n := min(int64(p.PerPage()), p.Len()-int64(page)*int64(p.PerPage())); !bytes.Equal(content[:n], other[:n]) {
			b.Fatalf("page %d differs from the host device", page)
		}
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v, want no error", err)
	}
}
