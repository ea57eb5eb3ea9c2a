package graph

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

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

// peersOf opens n further devices.
func peersOf(t testing.TB, n int) (all []field.Peer) {
	t.Helper()
	for i := range n {
		all = append(all, field.Peer{Device: openNamed(t, deviceAt(i+1))})
	}
	return all
}

// randomLinks returns random links: generated links, or a list with hubs, sometimes with weights.
func randomLinks(t *testing.T, r *rand.Rand, agents int) edges.Links {
	t.Helper()
	if r.IntN(2) == 0 {
		return edges.Links{Degree: 1 + r.IntN(9), Rewire: r.Float64(), Seed: r.Uint64()}
	}
	var b strings.Builder
	weighted := r.IntN(2) == 0
	for range 1 + r.IntN(6*agents) {
		from, to := r.IntN(agents), r.IntN(agents)
		if r.IntN(9) == 0 {
			to = 0
		}
		if weighted {
			fmt.Fprintf(&b, "%d,%d,%v\n", from, to, float64(r.IntN(100))/99)
		} else {
			fmt.Fprintf(&b, "%d,%d\n", from, to)
		}
	}
	list, err := edges.Read(strings.NewReader(b.String()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := list.In(int64(agents), r.IntN(2) == 0)
	if err != nil {
		t.Fatal(err)
	}
	return edges.Links{Rows: rows}
}

// TestParts compares epidemics on two to four devices with those on one, bit for bit: random sizes,
// graphs of all kinds, ticks that are cut differently, and pictures that have some ticks made by
// one device.
func TestParts(t *testing.T) {
	d, r := openDevice(t), rand.New(rand.NewPCG(6, 1))
	peers := peersOf(t, 3)
	rounds, infected, seen := testkit.Of(60, 20), uint64(0), map[int]int{}
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		group := 1 + r.IntN(40)
		agents := group * (1 + (600+r.IntN(9000))/group)
		o := Options{Agents: int64(agents), Links: randomLinks(t, r, agents), Seed: r.Uint64(), PageBytes: 4096}
		cell := sirOf(t, group, []float64{0.05, 0.3, 1}[r.IntN(3)], []float64{0.02, 0.3}[r.IntN(2)])
		alone := open(t, d, cell, o)
		o.Devices, o.Peers = 2+r.IntN(3), peers
		n := open(t, d, cell, o)
		n.always = true
		seen[len(n.Devices())]++
		for range 3 {
			ids, to := make([]uint32, 1+r.IntN(50)), []float32(nil)
			for i := range ids {
				ids[i], to = uint32(r.IntN(agents)), append(to, float32(r.IntN(3)))
			}
			if err := errors.Join(n.Set(t.Context(), ids, to), alone.Set(t.Context(), ids, to)); err != nil {
				t.Fatal(err)
			}
			if r.IntN(3) == 0 {
				if _, err := n.Picture(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
				n.trace.left = int64(r.IntN(9))
			}
			count, most := 1+r.IntN(20), 1+r.IntN(12)
			got, err := n.Tick(t.Context(), t.Context(), count, most)
			if want := tick(t, alone, count); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d agents on %d devices: %d, %v, want %d", agents, len(n.Devices()), got, err, want)
			}
			infected += got[graphset.Infected]
			if !slices.Equal(states(t, n), states(t, alone)) {
				t.Fatalf("%d agents, groups of %d, %d devices, %d ticks, %d at a time: the states differ", agents,
					group, len(n.Devices()), count, most)
			}
			one, err := alone.Ticks(t.Context())
			if all, also := n.Ticks(t.Context()); one != all || err != nil || also != nil {
				t.Fatalf("%d ticks, want %d; %v, %v", all, one, also, err)
			}
		}
		if err := errors.Join(n.Close(), alone.Close()); err != nil {
			t.Fatalf("Close: %v, want no error", err)
		}
	}
	if infected < 1000 || !testing.Short() && (seen[2] == 0 || seen[3] == 0 || seen[4] == 0) {
		t.Errorf("%d agents were infected, and networks by devices are %v: too few", infected, seen)
	}
}

// TestPartsOfWork: parts are whole warps, have about as many links each, and are fewer where there
// are too few agents.
func TestPartsOfWork(t *testing.T) {
	var b strings.Builder
	for i := range 3000 { // the first agents hear many others
		fmt.Fprintf(&b, "%d,%d\n", i%4000, i%700)
	}
	list, err := edges.Read(strings.NewReader(b.String()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := list.In(4000, true)
	if err != nil {
		t.Fatal(err)
	}
	d, peers := openDevice(t), peersOf(t, 3)
	n := open(t, d, sirOf(t, 10, 0.1, 0.1), Options{
		Agents: 4000, Links: edges.Links{Rows: rows}, Devices: 2, Peers: peers,
	})
	parts := n.model.(*epidemic).parts.all
	if got := parts[1].first; got%128 != 0 || got > 1500 || got < 1000 || parts[0].links+parts[1].links != 3000 {
		t.Errorf("the second part begins at agent %d, with %d and %d links", got, parts[0].links, parts[1].links)
	}
	for agents, want := range map[int64]int{100: 1, 200: 2, 320: 3, 400: 3, 520: 4} {
		n := open(t, d, sirOf(t, 10, 0.1, 0.1), Options{
			Agents: agents, Links: edges.Links{Degree: 2}, Devices: 4, Peers: peers,
		})
		if got := len(n.Devices()); got != want {
			t.Errorf("%d agents are on %d devices, want %d", agents, got, want)
		}
	}
}

// TestPartRoom: a peer without room for its part is not used, and budgets have all bytes back.
func TestPartRoom(t *testing.T) {
	d, peers := openDevice(t), peersOf(t, 2)
	cell := sirOf(t, 10, 0.1, 0.1)
	o := Options{Agents: 9000, Links: edges.Links{Degree: 4, Seed: 1, Rewire: 1}, Devices: 3}
	two, three := PeerBytes(cell, o, 2), PeerBytes(cell, o, 3)
	if two <= three || three < 3000*4*4 {
		t.Fatalf("a peer of two has %d bytes, one of three %d", two, three)
	}
	for _, c := range []struct {
		room []int64
		want int
	}{{[]int64{three, three}, 3}, {[]int64{three, three - 1}, 1}, {[]int64{two, 1}, 2}, {[]int64{1, two}, 2}} {
		o.Peers = nil
		for i, m := range peers {
			m.Budget = pages.NewBudget(c.room[i], 0)
			o.Peers = append(o.Peers, m)
		}
		n := open(t, d, cell, o)
		n.always = true
		if got := len(n.Devices()); got != c.want {
			t.Errorf("room %v, want %d devices: %d", c.room, c.want, got)
		}
		tick(t, n, 9)
		if err := n.Close(); err != nil {
			t.Errorf("n.Close: %v, want no error", err)
		}
		for i, m := range o.Peers {
			if m.Budget.Room() != c.room[i] {
				t.Errorf("%d bytes of %d are back", m.Budget.Room(), c.room[i])
			}
		}
	}
}

// TestPartFaults: an error of any call of any device ends the tick with a gpubatch.ErrDevice, which
// names the device if it is a peer. The end of the context ends it too. The network can be closed
// then.
func TestPartFaults(t *testing.T) {
	of := []*faults.Device{
		faults.New(openNamed(t, deviceAt(0))), faults.New(openNamed(t, deviceAt(1))),
		faults.New(openNamed(t, deviceAt(2))),
	}
	o := Options{Agents: 900, Links: edges.Links{Degree: 4, Seed: 1, Rewire: 1}, Devices: 3, PageBytes: 4096}
	o.Peers = []field.Peer{{Device: of[1]}, {Device: of[2]}}
	failed := 0
	for which, f := range of {
		for _, op := range []faults.Op{faults.Launch, faults.Wait, faults.Peer} {
			for skip := range 10 {
				for _, cause := range []error{device.ErrTransient, device.ErrSticky} {
					n, err := New(of[0], nil, sirOf(t, 10, 0.5, 0.1), o)
					if err != nil {
						t.Fatal(err)
					}
					n.always = true
					if err := n.Memory().Open(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					infect(t, n, 1, 2, 3)
					f.Fail(op, skip, 1, cause)
					_, err = n.Tick(t.Context(), t.Context(), 8, 3)
					f.Heal()
					_ = n.Close()
					if err == nil {
						continue // there are fewer calls of this kind
					}
					failed++
					var peer *field.PeerError
					named := errors.As(err, &peer)
					if !errors.Is(err, gpubatch.ErrDevice) || !errors.Is(err, cause) || named != (which > 0) ||
						named && peer.Device != f {
						t.Fatalf("%v %d of device %d: %v", op, skip, which, err)
					}
				}
			}
		}
	}
	if failed < 100 {
		t.Errorf("%d calls have failed: too few", failed)
	}
	n := open(t, of[0], sirOf(t, 10, 0.5, 0.1), o)
	n.always = true
	ctx, cancel := context.WithCancelCause(t.Context())
	want := errors.New("drained")
	cancel(want)
	if _, err := n.Tick(ctx, t.Context(), 1000, 64); !errors.Is(err, want) {
		t.Errorf("n.Tick: %v, want the cause of the end of its context", err)
	}
}

// TestGains: several devices make the ticks of large graphs, by the arithmetic of RFC 0060.
func TestGains(t *testing.T) {
	for _, c := range []struct {
		link           field.Link
		rate           float64
		agents, links  int64
		devices, count int
		want           bool
		what           string
	}{
		{field.Direct, bytesOnGPU, 100e6, 1e9, 2, 50, true, "50 ticks of the epidemic of the benchmark"},
		{field.Direct, bytesOnGPU, 100e6, 1e9, 2, 1, false, "one tick of it"},
		{field.ByHost, bytesOnGPU, 100e6, 1e9, 2, 50, false, "50 ticks by way of the host"},
		{field.Direct, bytesOnGPU, 1e6, 1e7, 2, 10_000, false, "a tick that is faster than an exchange"},
		{field.OnTheCPU, bytesOnHost, 115_584, 1_155_840, 3, 40, true, "40 ticks of host devices"},
		{field.OnTheCPU, bytesOnHost, 100, 500, 3, 40, false, "40 ticks of a small epidemic of host devices"},
	} {
		if got := gains(c.link, c.rate, c.agents, c.links, c.devices, c.count); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
