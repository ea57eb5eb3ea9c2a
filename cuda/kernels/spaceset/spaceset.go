// Package spaceset has the kernels of swarms whose agents are in a box: boids, and the circles of
// FLAME GPU. Importing it adds them to the set of package kernels. Package gpuagents/space launches
// them, and cuda/host/twins has their twins.
//
// A position is a word on each axis, in 2^-32 of the side, so that a periodic box needs no care. A
// velocity has units of 2^-22 radii, and pages have it as a float32 in radii, which is exact. What
// an agent adds up over the agents near it is integers: the sums are the same in every order.
//
// A tick goes over a list of agents, 16 bytes for the position and number of each and 16 for its
// velocity. It counts the agents of each bin, sorts the list by bins, where the order within a bin
// is free, and makes a step of each agent, which goes over the bins around it.
package spaceset

import (
	"embed"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels.
//
// The first variable of a page is the states, a byte for each agent. From at on, each stride bytes,
// there are dims positions, 2 or 3, and dims velocities behind them. An element of positions is the
// three words of the position, with a third word of 0 in two dimensions, and the number of the
// agent. An element of velocities is three words in units and a 0. Where moving is 0 there are no
// velocities.
//
// A step has in sorted the sorted list, with room for 3 more elements behind the last. Agents that
// are near are in the reach bins on both sides on the first axis, and in the next bin on the other
// axes. An axis has more than twice as many. sx, sy and sz are the steps of a position in radii,
// rounded up so that all near agents are in these bins. positions, velocities and states get what
// the agents are after the step, in the order of the sorted list. If count is 1, the agents in each
// state are added to tally.
const (
	// Place makes the first positions of the agents from first on, up to end, and if most is not 0
	// random velocities up to most units on each axis.
	Place = "space_place"
	// Load makes a list of the agents in the pages.
	Load = "space_load"
	// Count counts the agents of each bin. ranks gets a number of each agent of the list in its bin.
	// counts are 0 before.
	Count = "space_count"
	// Sum adds the counts of parts of the bins: part bins each, a multiple of 32.
	Sum = "space_sum"
	// Start turns counts into places in a sorted list: starts gets the number of agents before each
	// bin, and behind them the number of all. counts become 0.
	Start = "space_start"
	// Sort sorts a list by bins.
	Sort = "space_sort"
	// Boids makes a step of boids. within is the square of the distance in radii below which boids
	// separate, and inverse is 1 over it. cx, cy and cz are the cohesion in units for a step of a
	// position, and separation is in units for 1/One. slowest and fastest are speeds in units, and mx,
	// my and mz the steps of a position in a unit.
	Boids = "space_boids"
	// Nearest8, Nearest16 and Nearest32 make a step of boids that hear the nearest others within a
	// radius. Of agents at the same distance, the one with the smallest number comes first. The
	// square of a distance is a float32.
	Nearest8  = "space_nearest_8"
	Nearest16 = "space_nearest_16"
	Nearest32 = "space_nearest_32"
	// Circles makes a step of circles. mx, my and mz are the steps of a position for a force of 1/One.
	Circles = "space_circles"
	// Store writes a list of agents into the pages.
	Store = "space_store"
	// Dots counts the agents in each cell of a picture. Cells are on the first two axes, in rows.
	// The first row is at the far end of the second axis. counts are added to. If living is 1,
	// agents whose state is 0 are left out.
	Dots = "space_dots"
	// Flags makes flags 1 for the agents in a state, and 0 for others. Start turns them into places.
	Flags = "space_flags"
	// Gather makes a list of the agents whose place differs from the next one.
	Gather = "space_gather"
	// Colony makes agents die and give birth. birth, death and hunger are chances in 2^-32; the
	// largest word is 1. An agent dies with the chance death + hunger for each agent that is near.
	// Else, if fewer than room are near, it gives birth with the chance birth: births of it becomes
	// 1, and children the place of the child, up to mx, my and mz steps away. Draws depend on the
	// keys, the tick and the agent.
	Colony = "space_colony"
	// Slots lists the agents whose place differs from the next one.
	Slots = "space_slots"
	// Born makes agents of births. births and empty are places that Start has made of births and of
	// the agents of state 0. The child with number k becomes agent slots[k]. If there is none, the
	// word at lost of the group of the parent grows by 1, and group is the agents of one.
	Born = "space_born"
)

// Numbers that kernels and their callers agree on.
const (
	Block = 128     // maximum of threads of a block
	Units = 1 << 22 // of a velocity, in a radius
	One   = 1 << 24 // what a share of a force is in the sums
	Least = 4       // bins of an axis at the least, and radii of a side
	// MostRadii is the maximum of radii of a side: a radius has many steps of a position.
	MostRadii = 1e6
	// MostNearest is the maximum of agents that a boid hears if it hears only the nearest.
	MostNearest = 32
)

// Nearest returns the kernel of a step of boids that hear the nearest others, up to MostNearest; 0:
// all within the radius.
func Nearest(others int) string {
	switch {
	case others == 0:
		return Boids
	case others <= 8:
		return Nearest8
	case others <= 16:
		return Nearest16
	}
	return Nearest32
}

// The states of an agent: whether another one was within its radius before the last tick.
const (
	Alone = iota
	Near
	States // how many there are
)

// Alive is the state of a living agent of a colony. Other agents have state 0.
const Alive = 1

// Sine is the polynomial in 2q-1 of sin(2 pi d)/d, where q is the square of d, from 0 to 1. The
// highest power comes first.
var Sine = [...]float32{
	-0.00311258319, 0.0305336472, -0.211280614, 0.994527638, -2.77231622, 3.47969532, -0.154883295, -1.36316586,
}

// First returns the position and the velocity of an agent before the first tick: dims words of
// each. Velocities are in units, up to most on each axis.
func First(seed uint64, id uint32, most uint32) (position [3]uint32, velocity [3]int32) {
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	places := kernels.Philox(key, [4]uint32{0, id})
	speeds := kernels.Philox(key, [4]uint32{1, id})
	for k := range 3 {
		position[k], velocity[k] = places[k], int32(int64(int32(speeds[k]))*int64(most)>>31)
	}
	return position, velocity
}

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen spaceset Pages=pages,frames,page_bytes,per,at,stride,dims Near=agents,nx,ny,nz,reach,periodic,starts,sx,sy,sz Steered=sorted,sorted_velocities,agents,nx,ny,nz,reach,periodic,starts,sx,sy,sz,within,inverse,cx,cy,cz,alignment,separation,slowest,fastest,mx,my,mz,positions,velocities,states,count,tally

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{
		Folder: "spaceset", Files: files, Params: paramsOf,
		Head: "#define UNITS 4194304.0f\n#define UNIT 2.384185791015625e-7f\n",
	}
	add := func(s kernels.Source, before ...string) {
		s.MaxBlock, s.WholeWarps = Block, true
		set.Register(s, before...)
	}
	for _, name := range []string{Place, Load, Count, Sum, Start, Sort, Store, Dots, Flags, Gather, Slots, Born} {
		add(kernels.Source{Name: name, File: strings.TrimPrefix(name, "space_") + ".cu"}, "space.cuh")
	}
	for _, name := range []string{Boids, Circles, Colony} {
		add(kernels.Source{Name: name, File: strings.TrimPrefix(name, "space_") + ".cu"}, "space.cuh", "near.cuh")
	}
	for _, name := range []string{Nearest8, Nearest16, Nearest32} {
		add(kernels.Source{Name: name, File: "nearest.cu", Text: func() string {
			shared, _, _ := strings.Cut(set.Text("space.cuh", "near.cuh", "boids.cu"), "extern") // before the kernel
			text := shared + kernels.Set{Folder: "spaceset", Files: files}.Text("nearest.cu")
			return strings.ReplaceAll(text, "MOST", strings.TrimPrefix(name, "space_nearest_"))
		}})
	}
}
