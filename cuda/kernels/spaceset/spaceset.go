// Package spaceset has the kernels of swarms whose agents are in a box: boids, and the circles of FLAME
// GPU. Importing it adds them to the set of package kernels. Package gpuagents/space launches them, and
// cuda/host/spacetwin has their twins.
//
// A position is a word on each axis, in 2^-32 of the side, so that a periodic box needs no care. A
// velocity has units of 2^-22 radii, and pages have it as a float32 in radii, which is exact. What an
// agent adds up over the agents near it is integers: the sums are the same in every order.
//
// A tick goes over a list of agents, 16 bytes for the position and number of each and 16 for its
// velocity. It counts the agents of each bin, sorts the list by bins, where the order within a bin is
// free, and makes a step of each agent, which goes over the bins around it.
package spaceset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels.
const (
	// Place makes the first positions and velocities.
	Place = "space_place"
	// Load makes a list of the agents in the pages.
	Load = "space_load"
	// Count counts the agents of each bin.
	Count = "space_count"
	// Sum adds the counts of parts of the bins.
	Sum = "space_sum"
	// Start turns counts into places in a sorted list.
	Start = "space_start"
	// Sort sorts a list by bins.
	Sort = "space_sort"
	// Boids makes a step of boids.
	Boids = "space_boids"
	// Nearest8, Nearest16 and Nearest32 make a step of boids that hear up to as many others, the nearest.
	Nearest8  = "space_nearest_8"
	Nearest16 = "space_nearest_16"
	Nearest32 = "space_nearest_32"
	// Circles makes a step of circles.
	Circles = "space_circles"
	// Store writes a list of agents into the pages.
	Store = "space_store"
	// Dots counts the agents in each cell of a picture.
	Dots = "space_dots"
	// Flags marks the agents in a state.
	Flags = "space_flags"
	// Gather makes a list of agents.
	Gather = "space_gather"
	// Colony makes agents die and give birth.
	Colony = "space_colony"
	// Slots lists the agents without a place in the colony.
	Slots = "space_slots"
	// Born makes agents of births.
	Born = "space_born"
)

// Numbers that kernels and their callers agree on.
const (
	Block = 128     // the most threads of a block
	Units = 1 << 22 // of a velocity, in a radius
	One   = 1 << 24 // what a share of a force is in the sums
	Least = 4       // bins of an axis at the least, and radii of a side
	// MostRadii is the most radii of a side: a radius has many steps of a position.
	MostRadii = 1e6
	// MostNearest is the most agents that a boid hears if it hears the nearest alone.
	MostNearest = 32
)

// Nearest returns the kernel of a step of boids that hear the nearest others, up to MostNearest; 0: all
// within the radius.
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

// Alive is the state of an agent of a colony that is there. That of the others is 0.
const Alive = 1

// Sine is the polynomial in 2q-1 of sin(2 pi d)/d, where q is the square of d, from 0 to 1. The highest
// power comes first.
var Sine = [...]float32{
	-0.00311258319, 0.0305336472, -0.211280614, 0.994527638, -2.77231622, 3.47969532, -0.154883295, -1.36316586,
}

// First returns the position and the velocity of an agent before the first tick: dims words of each.
// Velocities are in units, up to most on each axis.
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

//go:generate go run ../internal/ptxgen spaceset

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

// kinds are those of parameters by the ends of their names.
var kinds = map[string]device.Kind{"*": device.KindBuffer, ":f": device.KindFloat32, ":l": device.KindUint64}

// params returns parameters from their names: name* is a buffer, name:f a float32, name:l a uint64, and
// another one a uint32.
func params(names string) (all []device.Param) {
	for _, text := range strings.Fields(names) {
		p := device.Param{Name: text, Kind: device.KindUint32}
		for suffix, kind := range kinds {
			if name, ok := strings.CutSuffix(text, suffix); ok {
				p = device.Param{Name: name, Kind: kind}
			}
		}
		all = append(all, p)
	}
	return all
}

func add(name, names string) {
	file := strings.TrimPrefix(name, "space_") + ".cu"
	if strings.HasPrefix(name, nearest) {
		file = "nearest.cu"
	}
	kernels.Register(kernels.Source{
		Name: name, Params: params(names), File: "spaceset/" + file, Text: func() string { return text(name, file) },
		MaxBlock:   Block,
		WholeWarps: true,
	})
}

func init() {
	// The first variable of a page is the states, a byte for each agent. From at on, each stride bytes,
	// there are dims positions, 2 or 3, and dims velocities behind them.
	const pages = "pages* frames* page_bytes:l per at stride dims "
	// Agents from first on, up to end, get random places and, if most is not 0, random velocities up to
	// most units on each axis.
	add(Place, pages+"first end most key0 key1")
	// An element of positions is the three words of the position, of which the third is 0 in two
	// dimensions, and the number of the agent. An element of velocities is three words in units and a 0.
	// Where moving is 0 there are no velocities.
	add(Load, pages+"agents moving positions* velocities*")
	add(Store, pages+"agents moving positions* velocities* states*")
	// Cells are on the first two axes, in rows, of which the first is at the far end of the second axis.
	// counts are added to. If living is 1, agents whose state is 0 are left out.
	add(Dots, pages+"agents living columns rows counts*")
	// Flags become 1 for the agents in a state, and 0 for others. Start turns them into places.
	add(Flags, pages+"agents state flags*")
	// The agents whose place differs from the next one get an element of positions, or of slots, there.
	add(Gather, pages+"agents places* positions*")
	add(Slots, "agents places* slots*")
	// birth, death and hunger are chances in 2^-32, of which the largest word is 1. An agent dies with the
	// chance death + hunger for each agent that is near. Else, if fewer than room are near, it gives birth
	// with the chance birth: births of it becomes 1, and children the place of the child, up to mx, my
	// and mz steps away. Draws depend on the keys, the tick and the agent.
	add(Colony, pages+"sorted* agents nx ny nz reach periodic starts* sx:f sy:f sz:f birth death hunger room mx my mz "+
		"tick key0 key1 births* children*")
	// births and empty are places that Start has made of births and of the agents of state 0. The child
	// with number k becomes agent slots[k]. Where there is none, the word at lost of the group of the
	// parent grows by 1, and group is the agents of one.
	add(Born, pages+"agents births* empty* slots* children* lost group")
	// ranks gets a number of each agent of the list in its bin. counts are 0 before.
	add(Count, "positions* agents nx ny nz counts* ranks*")
	// Sums are those of part bins each, of which part is a multiple of 32.
	add(Sum, "counts* bins part sums*")
	// starts gets the number of agents before each bin, and behind them that of all. counts become 0.
	add(Start, "counts* bins part sums* starts*")
	add(Sort, "positions* velocities* agents moving nx ny nz starts* ranks* sorted* sorted_velocities*")
	// Agents that are near are in the reach bins on both sides on the first axis, and in the bin beside on
	// the others. An axis has more than twice as many. sorted has room for 3 more elements behind the last.
	// sx, sy and sz are the steps of a position in radii, rounded up so that no agent is near that is not
	// in those bins. positions, velocities and states get what the agents are after the step, in the
	// order of the sorted list. If count is 1, the agents in each state are added to tally.
	const where = "agents nx ny nz reach periodic starts* sx:f sy:f sz:f "
	// within is the square of the distance in radii below which boids separate, and inverse is 1 over it.
	// cx, cy and cz are the cohesion in units for a step of a position, and separation is in units for
	// 1/One. slowest and fastest are speeds in units, and mx, my and mz the steps of a position in a unit.
	const boids = "sorted* sorted_velocities* " + where +
		"within:f inverse:f cx:f cy:f cz:f alignment:f separation:f slowest:f fastest:f mx:f my:f mz:f " +
		"positions* velocities* states* count tally*"
	add(Boids, boids)
	// An agent hears the most agents that are nearest, of those within a radius. Of agents at the same
	// distance, the one with the smallest number comes first. The square of a distance is a float32.
	for _, name := range []string{Nearest8, Nearest16, Nearest32} {
		add(name, boids+" most")
	}
	// mx, my and mz are the steps of a position for a force of 1/One.
	add(Circles, "sorted* "+where+"mx:f my:f mz:f positions* states* count tally*")
}

// nearest begins the names of the kernels of nearest.cu, and a number ends them.
const nearest = "space_nearest_"

// text returns the source of a kernel: the numbers, the common text and the file. A missing file is
// a mistake in this package and panics at start.
func text(name, file string) string {
	var b strings.Builder
	b.WriteString("#define UNITS 4194304.0f\n#define UNIT 2.384185791015625e-7f\n")
	parts := []string{"space.cuh", file}
	if name == Boids || name == Circles || name == Colony {
		parts = []string{"space.cuh", "near.cuh", file}
	}
	most, near := strings.CutPrefix(name, nearest)
	if near {
		parts = []string{"space.cuh", "near.cuh", "boids.cu", file}
	}
	for _, f := range parts {
		part, err := files.ReadFile(f)
		if err != nil {
			panic(fmt.Sprintf("spaceset: %v", err))
		}
		code := strings.ReplaceAll(string(part), "#pragma once\n", "")
		if near && f == "boids.cu" { // what both share is before the kernel
			code, _, _ = strings.Cut(code, "extern")
		}
		if near {
			code = strings.ReplaceAll(code, "MOST", most)
		}
		b.WriteString(code)
	}
	return b.String()
}
