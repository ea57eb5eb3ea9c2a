package launches

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// AgentKernels are the kernels of agent-addressed swarms, which RandomAgents knows.
var AgentKernels = []string{
	"gru_tick_h8_f32", "gru_tick_h16_f32", "gru_tick_h32_f32", "gru_tick_h8_bf16", "gru_tick_h16_bf16",
	"gru_tick_h32_bf16",
	"gru_told_h8_f32", "gru_told_h16_f32", "gru_told_h32_f32", "gru_told_h8_bf16", "gru_told_h16_bf16",
	"gru_told_h32_bf16",
	"gru_step_h8_f32", "gru_step_h16_f32", "gru_step_h32_f32", "gru_step_h8_bf16", "gru_step_h16_bf16",
	"gru_step_h32_bf16",
	"gru_score_h8_f32", "gru_score_h16_f32", "gru_score_h32_f32", "gru_score_h8_bf16", "gru_score_h16_bf16",
	"gru_score_h32_bf16",
	"leaky_tick", "leaky_step", "step_decide", "agent_sums", "agent_learn",
	"agent_nodes",
	"quantum_tick_q1", "quantum_tick_q2", "quantum_tick_q3", "quantum_tick_q4", "quantum_tick_q5", "quantum_tick_q6",
	"quantum_step_q1", "quantum_step_q2", "quantum_step_q3", "quantum_step_q4", "quantum_step_q5", "quantum_step_q6",
}

// agentSwarm is a swarm with a random state, from which the parameters of a launch are made.
type agentSwarm struct {
	r      *rand.Rand
	layout kernels.Layout
	words  []uint32 // the parameters of the cell, by kernels.AgentCandidates and so on
	table  []uint32 // the weights of the cell as its kernel takes them
	groups int
	// candidates is the number of candidates of a vote, class the width of a GRU cell or 0 for a
	// leaky one.
	candidates, class int
	elem              kernels.Elem
	qubits            int  // of the quantum cell; 0: it is another one
	odd               bool // some of its state is not finite
	node              int  // units of a knowledge node; 0: there are none
	alike             bool // all groups have the same node
	pages             []byte
}

// RandomAgents returns a launch over a swarm of about n agents, or fewer if a step takes the host
// device long. The groups are of any size and fill several pages, the last not completely; some
// agents have never stepped. Launches of steps name some agents that do not exist, and have inputs
// that are huge, NaN or infinite.
//
// The wanted content of memory that the kernel writes is empty: the caller compares it with the
// memory of another device.
func RandomAgents(r *rand.Rand, kernel string, n int) []Param {
	c := &agentSwarm{r: r, candidates: 2 + r.IntN(kernels.AgentMostCandidates-1), elem: kernels.F32}
	leaky := strings.HasPrefix(kernel, "leaky")
	sums := kernel == "agent_sums"
	told, learns := strings.Contains(kernel, "_told"), kernel == "agent_learn"
	if sums { // of any cell
		c.odd, leaky = true, r.IntN(4) == 0
		c.elem = []kernels.Elem{kernels.F32, kernels.BF16}[r.IntN(2)]
	}
	if strings.HasSuffix(kernel, "bf16") {
		c.elem = kernels.BF16
	}
	quantum := strings.HasPrefix(kernel, "quantum")
	if quantum {
		fmt.Sscanf(kernel[len(kernel)-1:], "%d", &c.qubits) //nolint:errcheck // a name of the list above
		c.candidates = 1 << (1 + r.IntN(min(c.qubits, kernels.QuantumMostBits)))
		n = min(n, 40_000>>c.qubits)
	}
	if leaky {
		c.candidates = 2
	} else if !quantum {
		c.class = 8
		if at := strings.Index(kernel, "_h"); at >= 0 {
			fmt.Sscanf(kernel[at:], "_h%d_", &c.class) //nolint:errcheck // a name of the list above
		}
		if sums {
			c.class = 8 << r.IntN(3)
		}
		if told || learns || kernel == "agent_nodes" {
			c.node = 1 + r.IntN(kernels.AgentMostNode)
		}
		n = min(n, 40_000/c.class)
	}
	c.swarm(min(n, 20_000))
	if kernel == "agent_nodes" {
		return c.updates()
	}
	sparse := !strings.Contains(kernel, "_tick") && !told && !sums
	arena, other, frames := c.scatter(sparse)
	for page := range frames {
		if sums && r.IntN(6) == 0 {
			frames[page] = 1 << kernels.AgentHostBit
		}
	}
	host := changed(other)
	word := func(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }
	head := []Param{
		changed(arena),
		{Arg: device.Uint64(uint64(c.layout.PageBytes))},
		constant(device.Bytes(frames)),
		constant(device.Bytes(c.layout.Table())), constant(device.Bytes(c.words)),
	}
	if sums {
		return append(head, c.sums()...)
	}
	if learns {
		return append(append(head, c.learns()...), host)
	}
	scratch := make([]uint64, kernels.AgentScratch)
	for i := kernels.AgentSum; i < len(scratch); i++ { // left by earlier launches
		scratch[i] = r.Uint64()
	}
	kept, result, sequence := changed(device.Bytes(scratch)), changed(make([]byte, 8*kernels.AgentResultWords)),
		Param{Arg: device.Uint32(1 + r.Uint32N(1<<31))}
	if !sparse {
		first, count := 0, len(frames)
		if r.IntN(2) == 0 { // some of the pages, or none
			first = r.IntN(len(frames))
			count = r.IntN(len(frames) - first + 1)
		}
		steps := 1 + r.IntN(2)*r.IntN(4)
		if told || quantum && r.IntN(3) == 0 {
			steps = 1 - r.IntN(8)/7 // of none it adds up units, or draws ballots
		}
		all := append(head, constant(device.Bytes(c.table)), word(c.groups), word(first), word(count),
			word(steps), word(r.IntN(kernels.AgentTickPublish+1)),
			changed(make([]byte, c.groups)), kept, sequence, result)
		if told {
			all = append(all, c.told()...)
		}
		return all
	}
	all := c.groups * c.layout.Agents
	agents, inputs := c.observations(min(n, all))
	votes := make([]byte, len(agents))
	n, of := len(agents), []uint32{r.Uint32(), r.Uint32()} // of a launch, and of one that was recorded
	if r.IntN(3) == 0 {
		of = []uint32{uint32(n), uint32(sequence.Arg.Bits())}
		n, sequence = kernels.AgentHeaded, Param{Arg: device.Uint32(r.Uint32())}
	}
	recorded := constant(device.Bytes(of))
	if strings.HasPrefix(kernel, "gru_score") {
		table, items, number := c.items(len(agents))
		for i, a := range agents {
			if votes[i] = byte(r.IntN(c.candidates)); int64(a) >= int64(all) || r.IntN(10) == 0 {
				votes[i] = kernels.AgentNoVote
			}
		}
		return append(head, constant(device.Bytes(table)), word(c.groups), constant(device.Bytes(agents)),
			constant(device.Bytes(items)), word(n), constant(votes), word(number),
			changed(make([]byte, 4*len(agents))), host, recorded)
	}
	if kernel != "step_decide" {
		return append(head, constant(device.Bytes(c.table)), word(c.groups), constant(device.Bytes(agents)),
			constant(device.Bytes(inputs)),
			word(n), changed(votes), kept, host, recorded)
	}
	stamps := make([]uint32, c.groups)
	for i := range stamps {
		stamps[i] = r.Uint32N(3)
	}
	for i, a := range agents {
		votes[i] = byte(r.IntN(c.candidates))
		if int64(a) >= int64(all) || r.IntN(10) == 0 {
			votes[i] = kernels.AgentNoVote
		}
	}
	scratch[kernels.AgentStepped], scratch[kernels.AgentRefused] = r.Uint64N(100), r.Uint64N(100)
	kept = changed(device.Bytes(scratch))
	return append(head, word(c.groups), constant(device.Bytes(agents)), constant(votes), word(n),
		changed(device.Bytes(stamps)), changed(make([]byte, len(agents))), kept, sequence, result, host, recorded)
}

// told returns the arguments of ToldParams after the arguments of TickParams. The heard inputs are
// random and do not overlap.
func (c *agentSwarm) told() []Param {
	r := c.r
	decision, node := r.IntN(2)*(1+r.IntN(c.class)), r.IntN(4)
	if node > 0 {
		if node = 1 + r.IntN(c.class-c.node+1); decision >= node && decision < node+c.node {
			decision = 0
		}
	}
	kept := make([]int32, c.groups*(kernels.AgentMostNode+1))
	for i := range kept {
		kept[i] = r.Int32N(1<<21) - 1<<20
		if i%(kernels.AgentMostNode+1) == kernels.AgentMostNode {
			kept[i] = r.Int32N(5000) - 1
		}
	}
	nodes, merge, by := 0, r.IntN(kernels.AgentMergeAttention+1), kernels.AgentByGroup
	if merge == kernels.AgentMergeAttention && node == 0 {
		merge = kernels.AgentMergeMean
	}
	if node > 0 && (r.IntN(2) == 0 || merge == kernels.AgentMergeAttention) {
		nodes = 1 + r.IntN(c.groups)
		if r.IntN(4) == 0 {
			nodes = 1 // spans of one node
		}
		if merge == kernels.AgentMergeAttention && !c.alike {
			nodes = c.groups // copies of one node are alike
		}
		if by = r.IntN(kernels.AgentByKey + 1); by == kernels.AgentByVote {
			nodes = c.candidates
		} else if by == kernels.AgentByKey {
			// several lines, one, one of the pool, and none
			nodes = []int{1 + r.IntN(20), 1 + r.IntN(130), 129 + r.IntN(200), 2100 + r.IntN(900)}[r.IntN(4)]
		}
	}
	totals, nodeOf := c.totals(nodes, merge)
	rate := r.Float32()
	if merge == kernels.AgentMergeAttention {
		rate = float32(math.Exp2(4*r.Float64()-2)) / (1 << (kernels.AgentNodeBits + kernels.AgentUnitBits))
	}
	values := make([]float32, max(1, nodes*c.node))
	for i := range values {
		values[i] = 2*r.Float32() - 1
	}
	word := func(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }
	return []Param{
		word(decision), word(node), word(c.node), word(merge),
		word(int(math.Float32bits(rate))), changed(device.Bytes(kept)), word(r.IntN(2)),
		word(nodes), changed(device.Bytes(totals)), word(r.IntN(3)), constant(device.Bytes(nodeOf)),
		word(by), constant(device.Bytes(values)),
	}
}

func (c *agentSwarm) updates() []Param {
	r, nodes := c.r, 1+c.r.IntN(400)
	merge := r.IntN(kernels.AgentMergeAttention + 1)
	totals, _ := c.totals(nodes, merge)
	values, flags := make([]float32, nodes*c.node), make([]uint32, nodes)
	for i := range values {
		values[i] = 2*r.Float32() - 1
	}
	for i := range flags {
		flags[i] = r.Uint32N(4)
	}
	word := func(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }
	return []Param{
		constant(device.Bytes(totals)), word(nodes), word(c.node), word(r.IntN(3)), word(merge),
		word(int(math.Float32bits(r.Float32()))), changed(device.Bytes(values)), changed(device.Bytes(flags)),
	}
}

// totals returns sums of n nodes, some without agents, and the node of each group.
func (c *agentSwarm) totals(nodes, merge int) (totals []uint64, nodeOf []uint32) {
	r, width := c.r, c.node+1
	totals, nodeOf = make([]uint64, max(1, 3*nodes*width)), make([]uint32, c.groups)
	for i := range 3 * nodes {
		n := uint64(r.IntN(4)) * r.Uint64N(1<<31)
		for k := range c.node {
			most := int64(n) << kernels.AgentUnitBits
			if merge == kernels.AgentMergeMax {
				totals[i*width+k] = r.Uint64N(2<<kernels.AgentUnitBits + 1)
			} else if most > 0 {
				totals[i*width+k] = uint64(r.Int64N(2*most+1) - most)
			}
		}
		totals[i*width+c.node] = n
	}
	for g := range nodeOf {
		nodeOf[g] = uint32(g * min(nodes, c.groups) / c.groups)
	}
	return totals, nodeOf
}

// learns returns the arguments of agent_learn after the arguments that all kernels share, without
// the memory of the host: runs of groups that do not overlap.
func (c *agentSwarm) learns() []Param {
	r := c.r
	word := func(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }
	values := make([]float32, c.node*(1+r.IntN(5)))
	for i := range values {
		values[i] = 2*r.Float32() - 1
	}
	var runs []uint32
	for g := 0; g < c.groups; {
		page, slot := g/c.layout.Slots, g%c.layout.Slots
		n := 1 + r.IntN(min(c.layout.Slots-slot, c.groups-g))
		if r.IntN(3) > 0 {
			runs = append(runs, uint32(page), uint32(slot), uint32(n), r.Uint32N(uint32(len(values)/c.node)))
		}
		g += n
	}
	n := len(runs) / 4
	return []Param{
		word(c.groups), constant(device.Bytes(append(runs, 0))), word(n), constant(device.Bytes(values)), word(c.node),
		word(r.IntN(kernels.AgentMergeEMA + 1)), word(int(math.Float32bits(r.Float32()))), word(r.IntN(2)),
	}
}

// sums returns the arguments of agent_sums after the arguments that all kernels share: random runs
// of agents in random order.
func (c *agentSwarm) sums() []Param {
	r, all := c.r, c.groups*c.layout.Agents
	word := func(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }
	variable, width := kernels.AgentVarPotential, 1
	if c.class > 0 {
		variable, width = kernels.AgentVarRow, c.class
	}
	order := make([]uint32, all)
	for i, a := range r.Perm(all) {
		order[i] = uint32(a)
	}
	var runs []uint32
	for first := 0; first < all; {
		rows := min(r.IntN(200), all-first)
		runs = append(runs, uint32(first), uint32(rows))
		first += rows + r.IntN(2)*r.IntN(10)
	}
	before := make([]float32, len(runs)/2*width)
	for i := range before {
		before[i] = float32(r.NormFloat64())
	}
	bf16 := 0
	if c.class > 0 && c.elem == kernels.BF16 {
		bf16 = 1
	}
	return []Param{
		word(c.groups), word(variable), word(width), word(bf16), constant(device.Bytes(order)), word(r.IntN(2)),
		constant(device.Bytes(runs)),
		word(len(runs) / 2), changed(device.Bytes(before)), changed(make([]byte, 2*len(runs))),
	}
}

// scatter puts the pages into frames in random order, with unused frames between them. With two,
// some of the frames are in a second arena, which stands for host memory. frames has the frame of
// each page as kernels take it.
func (c *agentSwarm) scatter(two bool) (arena, host []byte, frames []uint32) {
	size := c.layout.PageBytes
	pages := len(c.pages) / size
	empty := func() []byte { return bytes.Repeat([]byte{Poison}, (pages+c.r.IntN(3))*size) }
	arena, host = empty(), empty()
	inHost := c.r.Perm(len(host) / size)
	for page, frame := range c.r.Perm(len(arena) / size)[:pages] {
		entry, to := uint32(frame), arena
		if two && c.r.IntN(2) == 0 {
			frame, to = inHost[page], host
			entry = uint32(frame) | 1<<kernels.AgentHostBit
		}
		frames = append(frames, entry)
		copy(to[frame*size:], c.pages[page*size:][:size])
	}
	return arena, host, frames
}

// changed returns memory that a launch writes and whose content after it is not known here.
func changed(mem []byte) Param {
	return Param{Mem: append([]byte{}, mem...), Want: []byte{}}
}

func (c *agentSwarm) swarm(n int) {
	r := c.r
	sizes := []int{1, 2, 3, 5, 31, 32, 33, 64, 100, 257, 300, 1500, 4100}
	for len(sizes) > 1 && sizes[len(sizes)-1] > max(n, 5) {
		sizes = sizes[:len(sizes)-1]
	}
	agents := sizes[r.IntN(len(sizes))]
	c.groups = max(1, (n+agents-1)/agents)
	vars := kernels.AgentLeakyVars()
	if c.qubits > 0 {
		vars = kernels.AgentQuantumVars(c.qubits, c.candidates)
	}
	if c.class > 0 {
		vars = kernels.AgentGRUVars(c.class, c.candidates, c.elem)
		if c.node > 0 {
			vars = append(vars, kernels.AgentNodeVars(c.node)...)
		}
	}
	for size := 4096; ; size *= 2 {
		l, err := kernels.NewLayout(vars, agents, size)
		if err == nil && l.Slots > r.IntN(9) {
			c.layout = l
			break
		}
	}
	c.words = make([]uint32, kernels.AgentWords)
	c.words[kernels.AgentCandidates], c.words[kernels.AgentRule], c.words[kernels.AgentQuorum] = uint32(c.candidates),
		r.Uint32N(5), r.Uint32N(1<<16+1)
	c.words[kernels.AgentFeatures] = 1 + r.Uint32N(kernels.AgentLeakyFeatures)
	c.words[kernels.AgentDecay], c.words[kernels.AgentThreshold],
		c.words[kernels.AgentTraceRate] = math.Float32bits(0.9), math.Float32bits(1), math.Float32bits(0.01)
	if c.class > 0 {
		c.words[kernels.AgentFeatures] = 1 + r.Uint32N(uint32(c.class))
		c.gruTable()
	} else {
		c.table = make([]uint32, 1)
	}
	if c.qubits > 0 {
		c.words[kernels.AgentFeatures] = 1 + r.Uint32N(uint32(c.qubits))
		for len(c.words) < kernels.QuantumWords {
			c.words = append(c.words, r.Uint32())
		}
		c.quantumTable()
	}
	c.state()
}

// gruTable makes the table of a GRU cell from random weights. One table in four has only weights of
// the greatest magnitude, with which sums are largest.
func (c *agentSwarm) gruTable() {
	r, H := c.r, c.class
	c.table = make([]uint32, kernels.AgentGRUTable(H))
	scale := 11 + r.IntN(3)
	for i, v := range kernels.Logistic(scale + 6) {
		c.table[kernels.AgentTableLogistic+i] = math.Float32bits(v)
	}
	largest := r.IntN(4) == 0
	number := func(deviation float64, most int) int32 {
		if largest {
			return int32((2*r.IntN(2) - 1) * most)
		}
		return int32(max(-float64(most), min(float64(most), r.NormFloat64()*deviation)))
	}
	numbers := func(words []uint32, most int) {
		for i := range words {
			words[i] = uint32(uint16(number(4000, most))) | uint32(number(4000, most))<<16
		}
	}
	for i := range 4 * H {
		c.table[kernels.AgentTableBias+i] = uint32(number(1<<17, kernels.AgentGateBias))
	}
	for i := range kernels.AgentMostCandidates {
		c.table[kernels.AgentTableReadoutBias(H)+i] = uint32(number(1<<16, kernels.AgentVoteBias))
		if i >= c.candidates {
			none := int32(kernels.AgentNoCandidate)
			c.table[kernels.AgentTableReadoutBias(H)+i] = uint32(none)
		}
	}
	numbers(c.table[kernels.AgentTableWeights(H):kernels.AgentTableReadout(H)], kernels.AgentGateWeight)
	numbers(c.table[kernels.AgentTableReadout(H):][:c.candidates*H/2], kernels.AgentVoteWeight)
}

// quantumTable makes the table of a quantum cell: gates of all kinds, whose matrices are unitary
// but for rounding.
func (c *agentSwarm) quantumTable() {
	r := c.r
	gates := r.IntN(20)
	c.table = make([]uint32, kernels.QuantumTableGates+gates*kernels.QuantumGateWords)
	c.table[kernels.QuantumTableCount], c.table[kernels.QuantumTableFresh] = uint32(gates), r.Uint32N(4)/3
	places := ^uint32(0)
	for bit, q := range r.Perm(c.qubits)[:bits.Len(uint(c.candidates))-1] {
		places ^= uint32(kernels.QuantumNoPlace^bit) << (4 * q)
	}
	c.table[kernels.QuantumTablePlaces] = places
	for g := range gates {
		gate := c.table[kernels.QuantumTableGates+g*kernels.QuantumGateWords:][:kernels.QuantumGateWords]
		kind, target := r.Uint32N(kernels.QuantumFactor+1), r.IntN(c.qubits)
		gate[0] = kind | uint32(target)<<4
		mask := r.Uint64() | uint64(r.IntN(2))*math.MaxUint64
		gate[kernels.QuantumGateMask], gate[kernels.QuantumGateMask+1] = uint32(mask), uint32(mask>>32)
		sin, cos := math.Sincos(r.Float64() * 7)
		m := [8]float64{cos, 0, -sin, 0, sin, 0, cos, 0}
		if kind == kernels.QuantumMixed {
			m[2], m[3], m[4], m[5] = 0, -sin, 0, -sin
		} else if kind != kernels.QuantumReal { // times a phase
			y, x := math.Sincos(r.Float64() * 7)
			for k := 0; k < len(m); k += 2 {
				m[k], m[k+1] = m[k]*x, m[k]*y
			}
		}
		if kind == kernels.QuantumFactor {
			m[0], m[1], m[6], m[7] = cos, sin, sin, cos
		}
		for k, v := range m {
			gate[kernels.QuantumGateMatrix+k] = math.Float32bits(float32(v))
		}
	}
}

// items returns a random table of items, the item of each of n observations, and the number of
// items. Some observations ask for none, or for one that does not exist.
func (c *agentSwarm) items(n int) (table []uint32, of []int32, number int) {
	r := c.r
	number = 1 + r.IntN(300)
	table = make([]uint32, kernels.AgentItemsTable(number, c.class))
	for i, v := range kernels.Logistic(11 + r.IntN(10) + 6) {
		table[kernels.AgentItemsLogistic+i] = math.Float32bits(v)
	}
	largest := r.IntN(4) == 0 // sums are largest
	within := func(most int32) int32 {
		if largest {
			return (2*r.Int32N(2) - 1) * most
		}
		return r.Int32N(2*most+1) - most
	}
	for i := range number {
		table[kernels.AgentItemsBias+i] = uint32(within(kernels.AgentVoteBias))
	}
	weights := device.Of[int16](device.Bytes(table[kernels.AgentItemsReadout(number):]))
	for i := range weights {
		weights[i] = int16(within(kernels.AgentVoteWeight))
	}
	of = make([]int32, n)
	for i := range of {
		if of[i] = r.Int32N(int32(number)); r.IntN(8) == 0 {
			of[i] = []int32{kernels.AgentNoItem, int32(number), math.MinInt32, math.MaxInt32}[r.IntN(4)]
		}
	}
	return table, of, number
}

// state makes the pages: random values in the variables of agents, and poison between them.
func (c *agentSwarm) state() {
	l := c.layout
	c.pages = make([]byte, (c.groups+l.Slots-1)/l.Slots*l.PageBytes)
	for i := range c.pages {
		c.pages[i] = Poison
	}
	c.alike = c.r.IntN(2) == 0
	for g := range c.groups {
		page := c.pages[g/l.Slots*l.PageBytes:][:l.PageBytes]
		slot := g % l.Slots
		for v, of := range l.Vars {
			n, first := of.Width, slot*of.Width
			if !of.Group {
				n, first = n*l.Agents, first*l.Agents
			}
			to := page[int(l.Offsets[v])+first*of.Elem.Bytes():][:n*of.Elem.Bytes()]
			for k := range n {
				c.element(of, to[k*of.Elem.Bytes():])
			}
			if v >= kernels.AgentVarKnowledge && of.Group && c.alike {
				copy(to, c.pages[l.Offsets[v]:][:len(to)]) // as group 0
			}
		}
	}
}

// element writes a random value of a variable's element type to the start of to. The floats of
// groups, which are knowledge nodes, are finite: each is a mean or the largest of units that are.
func (c *agentSwarm) element(of kernels.Var, to []byte) {
	v := float32(c.r.Float64()*2 - 1)
	if c.qubits > 0 { // the norm of a state is about 1, and often scaled
		v *= float32(math.Sqrt(1.5 / float64(int(1)<<c.qubits)))
	}
	if c.odd && !of.Group && c.r.IntN(200) == 0 {
		v = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-40}[c.r.IntN(4)]
	}
	switch of.Elem {
	case kernels.U8:
		if to[0] = byte(c.r.IntN(c.candidates + 1)); of.Group { // whether it has learned
			to[0] = byte(c.r.IntN(3) / 2)
		}
	case kernels.U32:
		device.Of[uint32](to[:4])[0] = c.r.Uint32N(1000)
	case kernels.U64:
		device.Of[uint64](to[:8])[0] = c.r.Uint64N(1 << 40)
	case kernels.BF16:
		device.Of[uint16](to[:2])[0] = device.ToBF16(v)
	default:
		device.Of[float32](to[:4])[0] = v
	}
}

// observations returns the agents of a launch and their inputs: about half of n agents in random
// order, each at most once, and some ids that no agent has.
func (c *agentSwarm) observations(n int) (agents []uint32, inputs []float32) {
	r, all := c.r, c.groups*c.layout.Agents
	for _, a := range r.Perm(all)[:min(n, all)] {
		if r.IntN(2) == 0 {
			continue
		}
		agents = append(agents, uint32(a))
		if r.IntN(30) == 0 {
			agents = append(agents, []uint32{uint32(all), uint32(all) + r.Uint32N(1000), math.MaxUint32}[r.IntN(3)])
		}
	}
	for range len(agents) * int(c.words[kernels.AgentFeatures]) {
		v := float32(r.NormFloat64())
		switch r.IntN(200) {
		case 0:
			v = math.Float32frombits([]uint32{0x7f800000, 0xff800000, 0x7fc00000, 0xffc10000, 0x7f810000}[r.IntN(5)])
		case 1:
			v *= 1e30
		case 2:
			v *= 1e-40
		}
		inputs = append(inputs, v)
	}
	return agents, inputs
}
