package grid

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

var benchSteps = flag.Int("steps", 0, "generations of a tick of BenchmarkLifeDevices; 0: 1000, and 40 on host devices")

// deviceTimes is how often BenchmarkLifeDevices measures a tick on one device and on all.
const deviceTimes = 5

// BenchmarkLifeDevices measures ticks of a periodic grid on the first of -devices and on all of
// them, in turns: the time from the call to its answer, with the copies there and back. A tick on
// all begins with the same cells as the one before, and ends with the same bytes in all pages.
// Times are medians of deviceTimes.
func BenchmarkLifeDevices(b *testing.B) {
	d := openNamed(b, deviceAt(0))
	onHost := d.Properties().ComputeMajor == 0
	side, steps, devices := *benchSide, *benchSteps, max(2, len(strings.Split(*deviceNames, ",")))
	if side == 0 {
		if side = 16384; onHost {
			side = 1024
		}
	}
	if steps == 0 {
		if steps = 1000; onHost {
			steps = 40
		}
	}
	o := Options{Width: side, Height: side, Periodic: true, Devices: devices, Peers: peersOf(b, devices-1)}
	p := open(b, d, int(min(side, 4096)), o)
	if got := len(p.Devices()); got != devices {
		b.Fatalf("the grid is on %d devices of %d", got, devices)
	}
	shared := p.bands
	var took [2][]time.Duration
	for i := range 1 + deviceTimes {
		var ends [2][][]byte
		var alive [2]uint64
		for which, by := range []*bands{nil, shared} {
			p.bands, p.always = by, by != nil
			scatter(b, p, uint64(i))
			begin := time.Now()
			tally, err := p.Tick(b.Context(), b.Context(), steps, 64)
			ok(b, err)
			if alive[which] = tally[1]; i > 0 { // the first has loads of kernels
				took[which] = append(took[which], time.Since(begin))
			}
			ends[which] = content(b, p)
		}
		p.bands = shared
		if alive[0] != alive[1] || alive[0] == 0 || !slices.EqualFunc(ends[0], ends[1], bytes.Equal) {
			b.Fatalf("%d cells are alive on one device and %d on all, or they are others", alive[0], alive[1])
		}
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Nanoseconds()) / 1e3 / float64(steps)
	}
	one, all := median(took[0]), median(took[1])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(devices), "devices")
	b.ReportMetric(float64(shared.ghost), "ghost-rows")
	b.ReportMetric(one, "one-us/generation")
	b.ReportMetric(all, "all-us/generation")
	b.ReportMetric(one/all, "x")
}

// scatter gives a grid random cells.
func scatter(b *testing.B, p *Plane, seed uint64) {
	b.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	page := make([]byte, p.Layout().PageBytes)
	for i := range p.Memory().Count() {
		for k, words := 0, device.Of[uint64](page); k < len(words); k++ {
			words[k] = r.Uint64() & 0x0101010101010101
		}
		clear(page[min(int64(p.PerPage()), p.Len()-int64(i)*int64(p.PerPage())):])
		ok(b, p.Memory().Write(b.Context(), uint64(i), page))
	}
}

// content returns the cells of all pages.
func content(b *testing.B, p *Plane) (all [][]byte) {
	b.Helper()
	for i := range p.Memory().Count() {
		page := make([]byte, p.Layout().PageBytes)
		ok(b, p.Memory().Read(b.Context(), uint64(i), page))
		all = append(all, page[:min(int64(p.PerPage()), p.Len()-int64(i)*int64(p.PerPage()))])
	}
	return all
}
