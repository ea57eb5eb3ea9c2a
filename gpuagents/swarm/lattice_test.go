package swarm

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
)

// onLattice returns the text of a swarm with a custom cell on a grid: keys of the cell, and of the
// swarm.
func onLattice(cell, swarm string) string {
	return "name: x\naddressed: agent\ncell:\n  kind: custom\n  state: {u: f32, alive: u8, n: u64}\n" + cell +
		"  step: |\n    " + lattice.StepSignature + " { self.u = p.rate; }\n" + swarm
}

// TestOnLattice: what a specification leaves out is filled in, and the record has what the text
// has.
func TestOnLattice(t *testing.T) {
	s, err := Parse("a.yaml", []byte(onLattice("  params: {rate: 2}\n  hear: {mean: [u, alive], count: [alive]}\n",
		"neighbours: {width: 6000, height: 20, depth: 3, faces: true, periodic: true}\n")))
	if err != nil {
		t.Fatal(err)
	}
	if s.Agents != 360000 || s.AgentsPerGroup != 3000 || s.Residency != ResidencyGPU ||
		!slices.Equal(s.Features, []string{"alive", "n", "u"}) ||
		!slices.Equal(s.Vote.Candidates, []string{"zero", "set"}) {
		t.Errorf("the specification became %+v", s)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := FromJSON(data)
	if err != nil || !reflect.DeepEqual(s, again) {
		t.Errorf("the record gives %+v, %v", again, err)
	}
	if got := s.Neighbours.String(); got != "6000 x 20 x 3, faces, periodic" || s.Neighbours.Rows() != 60 {
		t.Errorf("the neighbours are %s", got)
	}
	cell, err := s.Address()
	if err != nil {
		t.Fatal(err)
	}
	if !cell.OnLattice() || !cell.HearsNeighbours() || cell.Vars()[cell.Voted()].Name != "alive" {
		t.Errorf("the cell is %+v", cell)
	}
	for _, define := range []string{"#define LATTICE_DIMENSIONS 3\n", "#define LATTICE_FACES 1\n"} {
		if !strings.Contains(cell.Cell.Source, define) {
			t.Errorf("the text has no %s", define)
		}
	}
	// 13 bytes an agent, so that a page of 2 MiB has 53 rows of 3,000 groups, and 8 bytes for each
	// group.
	if pages := s.PageBytes(s.Groups()); pages != 3*(2<<20) {
		t.Errorf("pages have %d bytes", pages)
	}
	flat, err := Parse("a.yaml", []byte(onLattice("  params: {rate: 2}\n",
		"neighbours: {width: 6, height: 2}\nfeatures: [u]\nvote: {by: alive, candidates: [a, b, c]}\n")))
	if err != nil {
		t.Fatal(err)
	}
	if flat.Neighbours.String() != "6 x 2" || flat.Topology().Name != TopologyCustomGrid ||
		!slices.Equal(flat.Features, []string{"u"}) {
		t.Errorf("the specification became %+v", flat)
	}
}

// TestLatticeOnGraph: a custom cell is on a graph too.
func TestLatticeOnGraph(t *testing.T) {
	s, err := Parse("a.yaml", []byte(onLattice("  params: {rate: 2}\n  hear: {weighted: [u], count: [alive]}\n",
		"agents: 6000\nneighbours: {random: {degree: 3}}\n")))
	if err != nil {
		t.Fatal(err)
	}
	cell, err := s.Address()
	if err != nil {
		t.Fatal(err)
	}
	if !cell.OnLattice() || cell.Cell.Kernel != lattice.LinksKernel || s.AgentsPerGroup != 3000 ||
		s.Topology().Name != TopologyCustomGraph {
		t.Errorf("the specification became %+v, %s", s, cell.Cell.Kernel)
	}
	if s.PageBytes(2) != 2<<20 {
		t.Errorf("pages have %d bytes", s.PageBytes(2))
	}
}

func TestLatticeErrors(t *testing.T) {
	const grid = "neighbours: {width: 6, height: 2}\n"
	const rate = "  params: {rate: 2}\n"
	for text, want := range map[string]string{
		onLattice("  hear: {mean: [w]}\n", grid): `a.yaml:6: invalid reduction over neighbours: mean: the state has ` +
			`no variable "w"`,
		onLattice("  hear: {mean: [n]}\n", grid): "a.yaml:6: invalid reduction over neighbours: mean: n is a u64, " +
			"whose sum wraps: use u32 or f32 for it",
		onLattice("  hear: {sum: [u, u]}\n", grid): "a.yaml:6: invalid reduction over neighbours: sum: u is there " +
			"twice",
		onLattice("  hear: {median: [u]}\n", grid):     `a.yaml:6: unknown key "cell.hear.median": did you mean`,
		onLattice("  params: {rate: 1.0e+99}\n", grid): "a.yaml:6: invalid cell parameter: custom: rate = 1e+99, want",
		onLattice("  params: {for: 1}\n", grid):        `a.yaml:6: invalid cell parameter: name "for"`,
		onLattice(rate+"  embedding: [u]\n", grid):     "a.yaml:7: embedding: agents on a grid have none",
		onLattice("", ""): "a.yaml:4: neighbours: agents of a custom cell that are addressed are " +
			"on a grid or a graph: write neighbours: {width: 512",
		onLattice("", "agents: 4\nneighbours: {ring: {reach: 1}, depth: 2}\n"): "a.yaml:9: neighbours: agents of the " +
			"cell custom are on a graph: write random, ring or graph, and no width",
		onLattice("", "neighbours: {ring: {reach: 1}}\n"): "a.yaml: agents 0: a graph has 2 or more",
		onLattice("", "agents: 4\nneighbours: {random: {degree: 1, delay: 2}}\n"): "a.yaml:9: neighbours: delay: it " +
			"is for spikes",
		onLattice("", "agents: 3000000000\nagents_per_group: 1000\nneighbours: {ring: {reach: 1}}\n"): "a.yaml:8: " +
			"agents 3000000000: a custom cell has fewer than 2^31",
		onLattice("  hear: {weighted: [u]}\n", grid): "a.yaml:6: invalid reduction over neighbours: weighted: agents " +
			"on a grid have no weights: use sum",
		onLattice("", "agents: 4\nneighbours: {space: {size: [9, 9], radius: 1}}\n"): "a.yaml:9: neighbours: space: " +
			"it is for the cells",
		onLattice("", "neighbours: {width: 0, height: 2}\n"): "a.yaml:8: neighbours: width 0: use 1 or more",
		onLattice("", "neighbours: {width: 6, height: 0, depth: 3}\n"): "a.yaml:8: neighbours: height 0: use 1 to " +
			"715827882",
		onLattice("", "neighbours: {width: 6, height: 2, depth: -1}\n"): "a.yaml:8: neighbours: depth -1: use 1 or " +
			"more, or leave it out",
		onLattice("", "neighbours: {width: 65536, height: 1024, depth: 65}\n"): "a.yaml:8: neighbours: depth 65: use " +
			"1 to 63",
		onLattice("", "neighbours: {width: 65536, height: 1024, depth: 33}\n"): "a.yaml:8: neighbours: the grid of " +
			"65536 x 1024 x 33 has 2214592512 agents: a custom cell has fewer than 2^31",
		onLattice("", "agents: 9\n"+grid): "a.yaml:8: agents 9: the grid of 6 x 2 has 12: write that",
		onLattice("", "agents_per_group: 4\n"+grid): "a.yaml:8: agents_per_group 4: on a grid it divides the width, " +
			"6",
		onLattice("", "shards: 2\n"+grid):  "a.yaml:8: shards 2: a grid has one",
		onLattice("", "devices: 2\n"+grid): "a.yaml:8: devices 2: several make the ticks of agents of the cells life",
		onLattice(rate, "hear: [group]\n"+grid): "a.yaml:9: invalid cell parameter: custom: an agent hears its " +
			"neighbours alone",
		onLattice(rate, grid+"features: [v]\n"): `a.yaml:10: invalid feature: "v": an observation sets variables`,
		onLattice(rate, grid+"vote: {by: w}\n"): `a.yaml:10: invalid vote: by: the state has no variable "w"`,
		onLattice(rate, grid+"vote: {by: u, candidates: [a, b, c]}\n"): "a.yaml:10: invalid vote: by: u is a float, " +
			"by which agents vote between two candidates",
		onLattice(rate, "neighbours: {width: 100000, height: 2}\npage_size: 64KiB\n"): "a.yaml:10: a page " +
			"of 65536 bytes has",
		strings.Replace(onLattice(rate, grid), "u: f32", "u: 'f32[3]'", 1): "a.yaml:5: invalid cell state: u: agents " +
			"that hear neighbours have no arrays",
		strings.Replace(onLattice(rate, grid), "u: f32", "ticks: f32", 1): "a.yaml:5: invalid cell state: ticks: the " +
			"number of ticks",
		strings.Replace(onLattice(rate, grid), "  state: {u: f32, alive: u8, n: u64}\n", "", 1): "a.yaml:3: invalid " +
			"cell state: an agent has no variable",
		strings.Replace(onLattice(rate, grid), "void step(", "void steps(", 1): "a.yaml:7: invalid step: it has no " +
			"__device__ void step(Agent &self",
		"name: x\naddressed: agent\ncell: {kind: life}\nneighbours: {width: 6, height: 2, depth: 3}": "a.yaml:4: " +
			"neighbours: depth and faces: they are for the cell custom",
		"name: x\naddressed: agent\nagents: 9\ncell: {kind: sir}\nneighbours: {ring: {reach: 1}, faces: true}": "" +
			"a.yaml:5: neighbours: agents of the cell sir are on a graph",
		"name: x\naddressed: agent\nagents: 512\ncell: {hear: {sum: [u]}}\nvote: {candidates: [a, b]}": "" +
			"a.yaml:4: hear: it is for a custom cell on a grid or a graph",
		"name: x\nvote: {by: u}": `a.yaml:2: by "u": it is for a custom cell on a grid or a graph`,
	} {
		_, err := Parse("a.yaml", []byte(text))
		checkSpecError(t, text, err, want)
	}
}
