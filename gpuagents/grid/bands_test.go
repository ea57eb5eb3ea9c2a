package grid

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// peersOf opens n further devices.
func peersOf(t testing.TB, n int) (all []field.Peer) {
	t.Helper()
	for i := range n {
		all = append(all, field.Peer{Device: openNamed(t, deviceAt(i+1))})
	}
	return all
}

// randomGroup returns a group that divides the width.
func randomGroup(r *rand.Rand, width int) int {
	group := width
	for group > 1 && (width%group != 0 || r.IntN(3) == 0) {
		group--
	}
	for width%group != 0 {
		group--
	}
	return group
}

// TestBands compares grids of random sizes on two to four devices with grids on one, bit for bit:
// both kernels, odd heights, bands that are lower than the ghost rows, and ticks that are cut
// differently.
func TestBands(t *testing.T) {
	d, r := openDevice(t), rand.New(rand.NewPCG(6, 0))
	peers := peersOf(t, 3)
	kernels := map[string]int{}
	rounds := testkit.Of(60, 20)
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		width, devices := 1+r.IntN(90), 2+r.IntN(3)
		if r.IntN(2) == 0 {
			width = 16 * (1 + r.IntN(8))
		}
		height := devices + r.IntN(300)
		o := Options{Width: int64(width), Height: int64(height), Periodic: r.IntN(2) == 0, PageBytes: 4096}
		group := randomGroup(r, width)
		alone := open(t, d, group, o)
		o.Devices, o.Peers = devices, peers
		p := open(t, d, group, o)
		p.always = true
		if got := len(p.Devices()); got != devices {
			t.Fatalf("%d x %d cells are on %d devices, want %d", width, height, got, devices)
		}
		kernels[p.bands.kernel()]++
		for range 3 {
			ids, to := make([]uint32, 1+r.IntN(width*height)), []byte(nil)
			for i := range ids {
				ids[i], to = uint32(r.IntN(width*height)), append(to, byte(r.IntN(2)))
			}
			set(t, alone, ids, to)
			set(t, p, ids, to)
			n, most := 1+r.IntN(50), 1+r.IntN(20)
			if r.IntN(4) == 0 {
				n = 200 + r.IntN(100) // more than there are ghost rows
			}
			got, err := p.Tick(t.Context(), t.Context(), n, most)
			if want := tick(t, alone, n); err != nil || got[1] != want || got[0]+got[1] != uint64(width*height) {
				t.Fatalf("%+v: %d, %v, want %d alive", o, got, err, want)
			}
			if got, want := states(t, p), states(t, alone); !slices.Equal(got, want) {
				t.Fatalf("%d x %d, periodic %v, groups of %d, %d devices, %d ghost rows, %d ticks, %d at a "+
					"time:\n%swant\n%s", width, height, o.Periodic, group, devices, p.bands.ghost, n, most,
					picture(got, width), picture(want, width))
			}
		}
		if err := errors.Join(p.Close(), alone.Close()); err != nil {
			t.Fatalf("Close: %v, want no error", err)
		}
	}
	if testing.Short() {
		return
	}
	if kernels[gridset.LifeRows] == 0 || kernels[gridset.LifeCells] == 0 {
		t.Errorf("the kernels are %v, want both", kernels)
	}
}

// TestFewRows: a grid of fewer rows than devices is on fewer devices, and one of a row is on one.
func TestFewRows(t *testing.T) {
	d, peers := openDevice(t), peersOf(t, 3)
	for height := range int64(6) {
		p := open(t, d, 4, Options{Width: 8, Height: height + 1, PageBytes: 4096, Devices: 4, Peers: peers})
		if got, want := len(p.Devices()), int(min(4, height+1)); got != want {
			t.Errorf("%d rows are on %d devices, want %d", height+1, got, want)
		}
	}
}

// TestBandRoom: a device without room for its windows, by its budget or by its memory, is skipped,
// and others are used. All budgets have all bytes back at the end. The budget of the first device
// fits to the byte.
func TestBandRoom(t *testing.T) {
	d, peers := openDevice(t), peersOf(t, 2)
	o := Options{Width: 64, Height: 99, Periodic: true, PageBytes: 4096, Devices: 3}
	two, three := PeerBytes(o, 2), PeerBytes(o, 3)
	if two <= three {
		t.Fatalf("a peer of two has %d bytes, one of three %d", two, three)
	}
	for _, c := range []struct {
		room []int64
		want int
	}{
		{[]int64{three, three}, 3},
		{[]int64{three, three - 1}, 1},
		{[]int64{two, three - 1}, 2},
		{[]int64{1, two}, 2},
		{[]int64{two - 1, 1}, 1},
	} {
		for _, limited := range []bool{false, true} {
			o.Peers = nil
			for i, m := range peers {
				m.Budget = pages.NewBudget(c.room[i], 0)
				if limited { // the device says it, not the budget
					f := faults.New(m.Device)
					f.Room(c.room[i])
					m.Device, m.Budget = f, nil
				}
				o.Peers = append(o.Peers, m)
			}
			p := open(t, d, 16, o)
			if got := len(p.Devices()); got != c.want {
				t.Errorf("room %v, want %d devices: %d", c.room, c.want, got)
			}
			p.always = true
			tick(t, p, 9)
			if err := p.Close(); err != nil {
				t.Errorf("p.Close: %v, want no error", err)
			}
			for i, m := range o.Peers {
				if m.Budget != nil && m.Budget.Room() != c.room[i] {
					t.Errorf("%d bytes of %d are back", m.Budget.Room(), c.room[i])
				}
			}
		}
	}
}

// TestBandFaults: an error of any call of any device ends the tick with a gpubatch.ErrDevice, which
// names the device if it is a peer. The grid can be closed then, and nothing is left.
func TestBandFaults(t *testing.T) {
	of := []*faults.Device{
		faults.New(openNamed(t, deviceAt(0))), faults.New(openNamed(t, deviceAt(1))),
		faults.New(openNamed(t, deviceAt(2))),
	}
	failed, skips, least := 0, 12, 150
	if testing.Short() {
		skips, least = 2, 30
	}
	for which, f := range of {
		for _, op := range []faults.Op{faults.Launch, faults.Wait, faults.Peer, faults.Alloc} {
			for skip := range skips {
				for _, cause := range []error{device.ErrTransient, device.ErrSticky} {
					o := Options{Width: 32, Height: 90, Periodic: true, PageBytes: 4096, Devices: 3}
					o.Peers = []field.Peer{{Device: of[1]}, {Device: of[2]}}
					if op == faults.Alloc {
						f.Fail(op, skip, 1, cause)
					}
					err := ticked(t, of[0], o, func() {
						if op != faults.Alloc {
							f.Fail(op, skip, 1, cause)
						}
					})
					f.Heal()
					if err == nil {
						continue // there are fewer calls of this kind
					}
					failed++
					var peer *field.PeerError
					named := errors.As(err, &peer)
					marked := errors.Is(err, gpubatch.ErrDevice) || which == 0 && op == faults.Alloc
					if !marked || !errors.Is(err, cause) || named != (which > 0) || named && peer.Device != f {
						t.Fatalf("%v %d of device %d: %v", op, skip, which, err)
					}
				}
			}
		}
	}
	if failed < least {
		t.Errorf("%d calls have failed: too few", failed)
	}
}

// ticked makes a grid and a tick, before which begin is called.
func ticked(t *testing.T, d device.Device, o Options, begin func()) error {
	t.Helper()
	p, err := New(d, nil, lifeOf(t, 16), o)
	if err != nil {
		return err
	}
	p.always = true
	defer func() {
		_ = p.Close() // a broken device says so again
	}()
	err = errors.Join(p.Memory().Open(t.Context(), nil), p.Set(t.Context(), []uint32{3, 4, 5}, ones(3)))
	if err != nil {
		return err
	}
	begin()
	_, err = p.Tick(t.Context(), t.Context(), 60, 25)
	return err
}

// TestBandsEnd: a tick of several devices ends with its context, and the streams are empty then.
func TestBandsEnd(t *testing.T) {
	p := open(t, openDevice(t), 16, Options{Width: 64, Height: 90, Devices: 2, Peers: peersOf(t, 1)})
	p.always = true
	set(t, p, []uint32{3, 4, 5}, ones(3))
	ctx, cancel := context.WithCancelCause(t.Context())
	want := errors.New("drained")
	cancel(want)
	if _, err := p.Tick(ctx, t.Context(), 1000, 64); !errors.Is(err, want) {
		t.Errorf("p.Tick: %v, want the cause of the end of its context", err)
	}
	if err := p.Reset(t.Context()); err != nil {
		t.Errorf("p.Reset: %v, want no error", err)
	}
}

// TestGains: ticks of several devices are long ones of large grids, by the arithmetic of RFC 0060.
func TestGains(t *testing.T) {
	const large = 16384 * 16384
	gpus := func(l field.Link) speed { return speed{cellsOnGPU, 5 * time.Microsecond, l} }
	host := speed{cellsOnHost, 5 * time.Microsecond, field.OnTheCPU}
	for _, c := range []struct {
		v          speed
		cells      int64
		devices, n int
		want       bool
		what       string
	}{
		{gpus(field.Direct), large, 2, 1000, true, "1,000 generations of the grid of the benchmark"},
		{gpus(field.Direct), large, 2, 1, false, "one generation"},
		{gpus(field.Direct), large, 8, 1000, true, "eight devices"},
		{gpus(field.Direct), 1024 * 1024, 2, 100_000, false, "a grid that a device makes faster than an exchange"},
		{gpus(field.ByHost), large, 2, 100, false, "100 generations by way of the host"},
		{gpus(field.ByHost), large, 2, 5000, true, "5,000 generations by way of the host"},
		{host, 512 * 512, 2, 20, true, "20 generations of a small grid of host devices"},
		{host, 32 * 32, 2, 20, false, "20 generations of a tiny grid of host devices"},
	} {
		if got := c.v.gains(c.cells, c.devices, c.n, ghostFor(16384)); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	for width, want := range map[int64]int64{1: 256, 16384: 39, 1024: 157, 1 << 30: 4} {
		if got := ghostFor(width); got != want {
			t.Errorf("%d columns: %d ghost rows, want %d", width, got, want)
		}
	}
}

// TestShortTicks: a tick that gains nothing from the others is made by the first device alone, with
// the same bits, and a long one by all.
func TestShortTicks(t *testing.T) {
	if *opentest.Name != "host" {
		t.Skip("GPUs make this grid faster than they exchange rows")
	}
	f := faults.New(openNamed(t, deviceAt(1)))
	p := open(t, openDevice(t), 512, Options{Width: 512, Height: 512, Devices: 2, Peers: []field.Peer{{Device: f}}})
	set(t, p, []uint32{3, 4, 5}, ones(3))
	before := f.Calls(faults.Launch)
	tick(t, p, 1)
	if got := f.Calls(faults.Launch); got != before {
		t.Errorf("a tick of a generation has %d launches on the peer, want none", got-before)
	}
	tick(t, p, 40)
	if got := f.Calls(faults.Launch); got != before+40 {
		t.Errorf("a tick of 40 generations has %d launches on the peer, want 40", got-before)
	}
}

var deviceNames = flag.String("devices", "", "the devices of tests and benchmarks of several, between commas; empty: "+
	"the device of -device, opened several times")

// deviceAt returns the name of device number i. Names come again, so that tests run with fewer
// devices than they open.
func deviceAt(i int) string {
	if *deviceNames == "" {
		return *opentest.Name
	}
	names := strings.Split(*deviceNames, ",")
	return names[i%len(names)]
}
