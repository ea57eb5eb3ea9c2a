package graph

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// neuronLinks returns random links between neurons: generated links, or a list with hubs, with and
// without weights and delays.
func neuronLinks(r *rand.Rand, agents int) edges.Links {
	longest := 1
	if r.IntN(2) == 0 {
		longest = 2 + r.IntN(edges.MaxDelay-1)
	}
	if r.IntN(2) == 0 {
		l := edges.Links{Degree: 1 + r.IntN(min(200, agents-1)), Rewire: r.Float64(), Seed: r.Uint64()}
		if longest > 1 {
			l.Delays = edges.Delays{Least: 1 + r.IntN(longest), Most: longest}
		}
		return l
	}
	rows, weighted := &edges.Rows{Offsets: []uint64{0}}, r.IntN(2) == 0
	for range agents {
		links := r.IntN(40)
		if r.IntN(200) == 0 {
			links = r.IntN(2000)
		}
		for range links {
			to := r.IntN(agents)
			if r.IntN(3) == 0 { // of the last devices, some have few neurons with many links to them
				to = agents - 1 - r.IntN(min(agents, 300))
			}
			rows.Columns = append(rows.Columns, uint32(to))
			if weighted {
				rows.Weights = append(rows.Weights, int32(r.NormFloat64()*0.2*(1<<16)))
			}
			if longest > 1 {
				rows.Delays = append(rows.Delays, uint8(1+r.IntN(longest)))
			}
		}
		rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
	}
	return edges.Links{Rows: rows}
}

// spikingCell returns a cell of neurons that spike often.
func spikingCell(t testing.TB, r *rand.Rand, group int) *cells.Addressed {
	t.Helper()
	p := map[string]float64{"weight": 0.3 * r.Float64(), "inhibitory": 0.5 * r.Float64()}
	if r.IntN(2) == 0 {
		p["noise"], p["inhibitory_noise"], p["weight"] = 9, 4, 5*r.Float64()
		return neuronsOf(t, cells.IzhikevichName, group, p)
	}
	p["noise"], p["refractory"], p["decay"] = 0.4, float64(r.IntN(4)), 0.5+0.5*r.Float64()
	return neuronsOf(t, cells.LIFName, group, p)
}

// wholePages returns all bytes of all pages.
func wholePages(t testing.TB, n *Network) (all []byte) {
	t.Helper()
	page := make([]byte, n.Layout().PageBytes)
	for i := range n.Memory().Count() {
		ok(t, n.Memory().Read(t.Context(), uint64(i), page))
		all = append(all, page...)
	}
	return all
}

// TestRegions compares networks of neurons on two to four devices with networks on one, all bytes
// of the pages: both cells, random sizes, links of all kinds, ticks that are cut differently, ticks
// of one device between ticks of several, and pages that move to another network.
func TestRegions(t *testing.T) {
	d, r := openDevice(t), rand.New(rand.NewPCG(6, 2))
	peers := peersOf(t, 3)
	rounds, spikes, seen := testkit.Of(80, 24), uint64(0), map[int]int{}
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		group := 1 + r.IntN(40)
		agents := group * (1 + (600+r.IntN(5000))/group)
		o := Options{Agents: int64(agents), Links: neuronLinks(r, agents), Seed: r.Uint64(), PageBytes: 4096}
		if r.IntN(2) == 0 {
			o.PageBytes = 32768
		}
		cell := spikingCell(t, r, group)
		alone := open(t, d, cell, o)
		o.Devices, o.Peers = 2+r.IntN(3), peers
		if r.IntN(2) == 0 {
			o.atOnce = 1 + r.Int64N(3000)
		}
		n := open(t, d, cell, o)
		seen[len(n.Devices())]++
		for range 4 {
			if r.IntN(4) == 0 { // the sums of the ticks to come are made from the pages
				n = moved(t, n, open(t, d, cell, o))
			}
			n.always = r.IntN(4) > 0
			ids, to := make([]uint32, 1+r.IntN(50)), []float32(nil)
			for i := range ids {
				ids[i], to = uint32(r.IntN(agents)), append(to, float32(r.NormFloat64()*0.2))
			}
			ok(t, errors.Join(n.Set(t.Context(), ids, to), alone.Set(t.Context(), ids, to)))
			if r.IntN(3) == 0 {
				if _, err := n.Picture(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
				n.trace.left = int64(r.IntN(9))
			}
			count, most := []int{1 + r.IntN(5), 1 + r.IntN(40)}[r.IntN(2)], 1+r.IntN(12)
			got, err := n.Tick(t.Context(), t.Context(), count, most)
			if want := tick(t, alone, count); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d neurons on %d devices: %d, %v, want %d", agents, len(n.Devices()), got, err, want)
			}
			spikes += got[1]
			if !bytes.Equal(wholePages(t, n), wholePages(t, alone)) {
				t.Fatalf("%s: %d neurons, groups of %d, %d devices, delays to %d, %d ticks, %d at a time: the pages "+
					"differ", cell.Cell.Name, agents, group, len(n.Devices()), n.slots, count, most)
			}
		}
		ok(t, errors.Join(n.Close(), alone.Close()))
	}
	if spikes < 1000 || !testing.Short() && (seen[2] == 0 || seen[3] == 0 || seen[4] == 0) {
		t.Errorf("%d spikes, and networks by devices are %v: too few", spikes, seen)
	}
}

// TestRegionsOfWork: regions are whole warps, and have about as many links to them each.
func TestRegionsOfWork(t *testing.T) {
	rows := &edges.Rows{Offsets: []uint64{0}}
	for i := range 4000 { // most links go to the last neurons
		for k := range 400 {
			rows.Columns = append(rows.Columns, uint32(3000+(i+k)%1000))
		}
		rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
	}
	d, peers := openDevice(t), peersOf(t, 3)
	n := open(t, d, lifOf(t, 10, nil), Options{Agents: 4000, Links: edges.Links{Rows: rows}, Devices: 2, Peers: peers})
	all := n.model.(*spiking).regions.all
	if first := all[1].first; first%128 != 0 || first < 3300 || first > 3500 {
		t.Errorf("the second region begins at neuron %d, with %d links", first, all[1].links)
	}
	for agents, want := range map[int64]int{100: 1, 200: 2, 320: 3, 400: 3, 520: 4} {
		n := open(t, d, lifOf(t, 10, nil), Options{
			Agents: agents, Links: edges.Links{Degree: 2}, Devices: 4, Peers: peers,
		})
		if got := len(n.Devices()); got != want {
			t.Errorf("%d neurons are on %d devices, want %d", agents, got, want)
		}
	}
}

// TestRegionRoom: a peer without room for its region is not used, a device takes what was said
// before, and budgets have all bytes back.
func TestRegionRoom(t *testing.T) {
	d, peers := openDevice(t), peersOf(t, 2)
	cell := lifOf(t, 10, nil)
	for _, delays := range []edges.Delays{{}, {Least: 1, Most: 9}} {
		o := Options{Agents: 9000, Links: edges.Links{Degree: 40, Seed: 1, Rewire: 1, Delays: delays}, Devices: 3}
		two, three := PeerBytes(cell, o, 2), PeerBytes(cell, o, 3)
		if two <= three || three < 3000*40*4 {
			t.Fatalf("a peer of two has %d bytes, one of three %d", two, three)
		}
		for _, c := range []struct {
			room []int64
			want int
		}{{[]int64{three, three}, 3}, {[]int64{three, three / 2}, 1}, {[]int64{two, 1}, 2}, {[]int64{1, two}, 2}} {
			o.Peers = nil
			for i, m := range peers {
				m.Budget = pages.NewBudget(c.room[i], 0)
				o.Peers = append(o.Peers, m)
			}
			first := pages.NewBudget(Beside(cell, o)+4<<20, 0)
			whole := first.Room()
			n, err := New(d, first, cell, o)
			ok(t, err)
			ok(t, n.Memory().Open(t.Context(), nil))
			n.always = true
			if got := len(n.Devices()); got != c.want {
				t.Errorf("room %v, want %d devices: %d", c.room, c.want, got)
			}
			tick(t, n, 9)
			ok(t, n.Close())
			for i, m := range o.Peers {
				if m.Budget.Room() != c.room[i] {
					t.Errorf("%d bytes of %d are back", m.Budget.Room(), c.room[i])
				}
			}
			if first.Room() != whole {
				t.Errorf("%d bytes of %d of the first device are back", first.Room(), whole)
			}
		}
	}
}

// TestRegionFaults: an error of any call of any device, in the opening and in ticks, is a
// gpubatch.ErrDevice, which names the device if it is a peer. The network can be closed then.
func TestRegionFaults(t *testing.T) {
	of := []*faults.Device{
		faults.New(openNamed(t, deviceAt(0))), faults.New(openNamed(t, deviceAt(1))),
		faults.New(openNamed(t, deviceAt(2))),
	}
	o := Options{
		Agents: 900, Links: edges.Links{Degree: 4, Seed: 1, Rewire: 1, Delays: edges.Delays{Least: 1, Most: 3}},
		Devices: 3, PageBytes: 4096,
	}
	o.Peers = []field.Peer{{Device: of[1]}, {Device: of[2]}}
	failed := [2]int{}
	run := func(f *faults.Device, op faults.Op, skip int, cause error, inOpening bool) error {
		if inOpening {
			f.Fail(op, skip, 1, cause)
		}
		n, err := New(of[0], nil, lifOf(t, 10, map[string]float64{"noise": 0.5}), o)
		if err != nil {
			return err
		}
		defer n.Close()
		n.always = true
		if inOpening {
			return nil
		}
		ok(t, n.Memory().Open(t.Context(), nil))
		f.Fail(op, skip, 1, cause)
		_, err = n.Tick(t.Context(), t.Context(), 8, 3)
		return err
	}
	for which, f := range of {
		for _, op := range []faults.Op{faults.Alloc, faults.Launch, faults.Wait, faults.Peer} {
			for skip := range 12 {
				for part, cause := range []error{device.ErrTransient, device.ErrSticky} {
					err := run(f, op, skip, cause, part == 0)
					f.Heal()
					if err == nil {
						continue // there are fewer calls of this kind
					}
					failed[part]++
					var peer *field.PeerError
					if !errors.Is(err, cause) {
						t.Fatalf("%v %d of device %d: %v", op, skip, which, err)
					}
					named := errors.As(err, &peer)
					if named != (which > 0) || named && peer.Device != f ||
						part == 1 && !errors.Is(err, gpubatch.ErrDevice) {
						t.Fatalf("%v %d of device %d: %v", op, skip, which, err)
					}
				}
			}
		}
	}
	if failed[0] < 40 || failed[1] < 40 {
		t.Errorf("%d calls of openings and of ticks have failed: too few", failed)
	}
}

// TestRegionGains: several devices make the ticks of large networks, by the arithmetic of RFC 0062.
func TestRegionGains(t *testing.T) {
	for _, c := range []struct {
		link           field.Link
		at             speed
		of             load
		devices, count int
		want           bool
		what           string
	}{
		{field.Direct, speedOnGPU, load{10e6, 100e6, false, 14e7}, 2, 10, true, "ticks of the benchmark"},
		{field.Direct, speedOnGPU, load{10e6, 100e6, false, 14e7}, 2, 1, false, "one tick, whose state moves twice"},
		{field.Direct, speedOnGPU, load{10e6, 1e6, false, 14e7}, 2, 1, false, "one with few spikes"},
		{field.Direct, speedOnGPU, load{10e6, 100e6, true, 14e7 + 32*4e7}, 2, 50, true, "50 with long delays"},
		{field.Direct, speedOnGPU, load{1e6, 1e6, false, 14e6}, 2, 10_000, false, "ticks faster than an exchange"},
		{field.ByHost, speedOnGPU, load{1e6, 1e6, false, 14e6}, 2, 10_000, false, "the same by way of the host"},
		{field.OnTheCPU, speedOnHost, load{115_584, 60_000, false, 2e6}, 3, 40, true, "40 ticks of host devices"},
		{field.OnTheCPU, speedOnHost, load{1000, 600, false, 2e4}, 3, 40, false, "40 of a small network"},
	} {
		if got := c.of.gains(c.link, c.at, c.devices, c.count); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
