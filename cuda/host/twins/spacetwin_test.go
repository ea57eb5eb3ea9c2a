package twins_test

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// launch is what a reader of RFC 0051 sees of a launch of a step: agents without bins.
type launch struct {
	positions [][4]uint32
	speeds    [][4]int32 // of boids
	periodic  bool
	scale     [3]float32
	steered   *spaceset.SteeredBound // of boids
	circles   *spaceset.CirclesBound // of circles
	most      int                    // agents that a boid hears, the nearest; 0: all
}

// outcome is what a step leaves.
type outcome struct {
	positions, velocities []uint32
	states                []byte
	count                 uint32
	tally                 []uint64
}

// launchOf returns the agents of a launch of Boids, one of Nearest, or Circles, and its outcome.
// after is nil before the launch.
func launchOf(a *launches.Arrays, kernel string, after [][]byte) (l launch, o outcome) {
	var sorted []uint32
	var where *spaceset.NearBound
	switch kernel {
	case spaceset.Circles:
		l.circles = launches.Named[spaceset.CirclesBound](a.Params, after)
		c := l.circles
		sorted, where, o = c.Sorted, &c.NearBound, outcome{c.Positions, nil, c.States, c.Count, c.Tally}
	case spaceset.Boids:
		l.steered = &launches.Named[spaceset.BoidsBound](a.Params, after).SteeredBound
	default:
		n := launches.Named[spaceset.NearestBound](a.Params, after)
		l.steered, l.most = &n.SteeredBound, int(n.Most)
	}
	if s := l.steered; s != nil {
		sorted, where, o = s.Sorted, &s.NearBound, outcome{s.Positions, s.Velocities, s.States, s.Count, s.Tally}
	}
	for i := range where.Agents {
		l.positions = append(l.positions, [4]uint32(sorted[4*i:]))
		if l.steered != nil {
			l.speeds = append(l.speeds, [4]int32(device.Of[int32](device.Bytes(l.steered.SortedVelocities))[4*i:]))
		}
	}
	l.periodic, l.scale = where.Periodic == 1, [3]float32{where.Sx, where.Sy, where.Sz}
	return l, o
}

// apart returns the way from agent i to agent j on each axis, in steps and in radii, and its
// square. In a box that is not periodic it is the plain difference, and in one that is, the shorter
// way around.
func (l launch) apart(i, j int) (steps [3]int64, radii [3]float32, square float32) {
	for k := range 3 {
		steps[k] = int64(l.positions[j][k]) - int64(l.positions[i][k])
		if l.periodic {
			steps[k] = (steps[k]+1<<31)&(1<<32-1) - 1<<31
		}
		radii[k] = float32(steps[k]) * l.scale[k]
	}
	square = float32(radii[0]*radii[0]) + float32(radii[1]*radii[1])
	square += float32(radii[2] * radii[2])
	return steps, radii, square
}

// nearest returns the nearest integer, an even one of two.
func nearest(v float32) int64 { return int64(math.RoundToEven(float64(v))) }

// walk moves an agent on an axis, and returns its place and whether it has turned.
func (l launch) walk(i, k int, by int64, bounce bool) (to int64, turned bool) {
	const end = 1 << 32
	to = int64(l.positions[i][k]) + by
	switch {
	case l.periodic:
		return (to + end) % end, false
	case bounce && to < 0:
		return -to - 1, true
	case bounce && to >= end:
		return end - 1 - (to - end), true
	}
	return max(0, min(to, end-1)), false
}

// stepCircles makes a step of circles: it goes from each agent to all others.
func (l launch) stepCircles() (positions [][4]uint32, near []byte) {
	move := [3]float32{l.circles.Mx, l.circles.My, l.circles.Mz}
	for i, p := range l.positions {
		sums, n := [3]int64{}, 0
		for j := range l.positions {
			_, radii, square := l.apart(i, j)
			if i == j || !(square < 1) || square == 0 {
				continue
			}
			n++
			t := square + square - 1
			g := spaceset.Sine[0]
			for _, c := range spaceset.Sine[1:] {
				g = float32(g*t) + c
			}
			for k := range 3 {
				sums[k] += nearest(float32(g*spaceset.One) * radii[k])
			}
		}
		for k := range 3 {
			if n > 0 {
				of := 1 / float32(n)
				to, _ := l.walk(i, k, nearest(float32(float32(sums[k])*of)*move[k]), false)
				p[k] = uint32(to)
			}
		}
		positions, near = append(positions, p), append(near, byte(min(n, 1)))
	}
	return positions, near
}

// heard returns the agents that boid i hears: all that are near, or the nearest of them. tie says
// that another one is as far away as the last of these.
func (l launch) heard(i int) (all []int, tie bool) {
	var squares []float32
	for j := range l.positions {
		_, _, square := l.apart(i, j)
		if squares = append(squares, square); i != j && square < 1 {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(squares[a], squares[b]), cmp.Compare(l.positions[a][3], l.positions[b][3]))
	})
	if l.most > 0 && len(all) > l.most {
		tie = squares[all[l.most-1]] == squares[all[l.most]]
		all = all[:l.most]
	}
	return all, tie
}

// boids makes a step of boids in the same way.
func (l launch) boids() (positions [][4]uint32, speeds [][4]int32, near []byte) {
	a := l.steered
	cohesion, move := [3]float32{a.Cx, a.Cy, a.Cz}, [3]float32{a.Mx, a.My, a.Mz}
	for i, p := range l.positions {
		var way, speed, push [3]int64
		heard, _ := l.heard(i)
		n, own := len(heard), l.speeds[i]
		for _, j := range heard {
			steps, radii, square := l.apart(i, j)
			for k := range 3 {
				way[k] += steps[k]
				speed[k] += int64(l.speeds[j][k])
				if square < a.Within {
					w := float32(1-float32(square*a.Inverse)) * spaceset.One
					push[k] += nearest(w * radii[k])
				}
			}
		}
		var v [3]float32
		for k := range 3 {
			if v[k] = float32(own[k]); n == 0 {
				continue
			}
			of := 1 / float32(n)
			v[k] = v[k] + float32(float32(float32(way[k])*of)*cohesion[k])
			v[k] = v[k] + float32((float32(float32(speed[k])*of)-float32(own[k]))*a.Alignment)
			v[k] = v[k] - float32(float32(push[k])*a.Separation)
		}
		length := float32(v[0]*v[0]) + float32(v[1]*v[1])
		length += float32(v[2] * v[2])
		scale := float32(1)
		if length > a.Fastest*a.Fastest {
			scale = a.Fastest / float32(math.Sqrt(float64(length)))
		} else if length < a.Slowest*a.Slowest && length > 0 {
			scale = a.Slowest / float32(math.Sqrt(float64(length)))
		}
		now := [4]int32{}
		for k := range 3 {
			now[k] = int32(nearest(v[k] * scale))
			to, turned := l.walk(i, k, nearest(float32(now[k])*move[k]), true)
			if p[k] = uint32(to); turned {
				now[k] = -now[k]
			}
		}
		positions, speeds, near = append(positions, p), append(speeds, now), append(near, byte(min(n, 1)))
	}
	return positions, speeds, near
}

func flat[T any](of [][4]T) (all []T) {
	for _, four := range of {
		all = append(all, four[:]...)
	}
	return all
}

// TestSteps compares random steps with agents that examine all others, without bins.
func TestSteps(t *testing.T) {
	ref, r, met, ties := launches.Reference(t), rand.New(rand.NewPCG(5, 51)), 0, 0
	steps := []string{
		spaceset.Boids, spaceset.Circles, spaceset.Nearest8, spaceset.Nearest16, spaceset.Nearest32,
	}
	for i := range testkit.Of(1000, 120) {
		kernel := steps[i%len(steps)]
		a := launches.RandomSpace(r, kernel, r.IntN(6000))
		l, before := launchOf(a, kernel, nil)
		_, after := launchOf(a, kernel, launches.On(t, ref, kernel, a.Params))
		var positions [][4]uint32
		var near []byte
		if l.most > 0 {
			for i := range l.positions {
				if _, tie := l.heard(i); tie {
					ties++
				}
			}
		}
		if kernel == spaceset.Circles {
			positions, near = l.stepCircles()
		} else {
			var speeds [][4]int32
			positions, speeds, near = l.boids()
			if !slices.Equal(device.Of[int32](device.Bytes(after.velocities)), flat(speeds)) {
				t.Fatalf("%s, launch %d: the velocities differ from the velocities by all pairs", kernel, i)
			}
		}
		if !slices.Equal(after.positions, flat(positions)) {
			t.Fatalf("%s, launch %d: the positions differ from the positions by all pairs", kernel, i)
		}
		if !bytes.Equal(after.states, near) {
			t.Fatalf("%s, launch %d: the states differ from the states by all pairs", kernel, i)
		}
		want := []uint64{0, 0}
		for _, s := range near {
			want[s]++
			met += int(s)
		}
		for s, n := range want {
			if before.count == 0 {
				n = 0
			}
			if got := after.tally[s] - before.tally[s]; got != n {
				t.Fatalf("%s, launch %d: %d agents are in state %d, want %d", kernel, i, got, s, n)
			}
		}
	}
	if met < 1000 {
		t.Errorf("%d agents met another one: too few for a comparison", met)
	}
	if ties < 1000 {
		t.Errorf("numbers decided for %d agents: too few for a comparison", ties)
	}
}

// TestSine: the polynomial is within 4e-6 of the function, and of its values at the ends and the
// middle.
func TestSine(t *testing.T) {
	for i := range 10001 {
		q := float64(float32(float64(i) / 10000))
		want := 2 * math.Pi
		if q > 0 {
			want = math.Sin(2*math.Pi*math.Sqrt(q)) / math.Sqrt(q)
		}
		x, g := float32(2*q-1), spaceset.Sine[0]
		for _, c := range spaceset.Sine[1:] {
			g = float32(g*x) + c
		}
		if math.Abs(float64(g)-want) > 4e-6 {
			t.Fatalf("the square of the distance %v: %v, want %v", q, g, want)
		}
	}
}

// TestPlace: first positions are uniform in the box, velocities within their bounds on both sides
// of 0, and another seed gives others.
func TestPlace(t *testing.T) {
	ref := launches.Reference(t)
	const agents, most = 20_000, 1000
	place := func(seed uint32) []byte {
		content := launches.Alloc(t, ref, 28*agents+256)
		frames := launches.Alloc(t, ref, 4)
		launches.Write(t, frames, 0, make([]byte, 4))
		launches.Write(t, content, 0, make([]byte, 28*agents+256))
		s := launches.NewStream(t, ref)
		launches.Start(t, s, launches.FindKernel(t, ref, spaceset.Place), device.Geometry{Grid: 3, Block: 32},
			spaceset.PlaceArgs{PagesArgs: spaceset.PagesArgs{
				Pages: device.Ptr(content), Frames: device.Ptr(frames), PageBytes: 28*agents + 256, Per: agents,
				At: 256, Stride: 4 * agents, Dims: 3,
			}, End: agents, Most: most, Key0: seed}.Args()...)
		launches.Wait(t, s)
		return launches.Download(t, content)[256:]
	}
	got := place(1)
	for k := range 3 {
		var octants [8]int
		for _, w := range device.Of[uint32](got[4*agents*k:][:4*agents]) {
			octants[w>>29]++
		}
		for _, n := range octants { // 2,500 on average, with a deviation of 47
			if n < 2300 || n > 2700 {
				t.Errorf("axis %d: %d agents in each eighth", k, octants)
			}
		}
		sum := 0.0
		for _, v := range device.Of[float32](got[4*agents*(3+k):][:4*agents]) {
			if sum += float64(v) * spaceset.Units; v*spaceset.Units < -most || v*spaceset.Units > most {
				t.Fatalf("a velocity of %v", v)
			}
		}
		if mean := sum / agents; math.Abs(mean) > 20 { // a deviation of 4.1
			t.Errorf("axis %d: the mean velocity is %v of %d units", k, mean, most)
		}
	}
	if bytes.Equal(got, place(2)) {
		t.Error("the seed changes nothing")
	}
}

// TestSpaceKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestSpaceKernelsOnTheCPU(t *testing.T) {
	launches.Texts{
		Kernels: launches.SpaceKernels(), Random: launches.RandomSpace, Count: testkit.Of(60, 12),
		Size: func(r *rand.Rand) int { return r.IntN(8000) },
	}.Test(t)
}
