package launches

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
)

// QuantumKernels returns the kernels that RandomQuantum knows, in a fixed order.
func QuantumKernels() []string {
	return []string{quantumset.Tile, quantumset.Matrix, quantumset.Weight, quantumset.Sample, quantumset.Expect}
}

// RandomQuantum returns a random launch of a kernel of package quantumset over about n amplitudes,
// at least one tile and at most eight.
func RandomQuantum(r *rand.Rand, kernel string, n int) *Arrays {
	a := &Arrays{}
	index := quantumset.TileQubits // qubits of the buffer: of a row, and of the numbers of rows
	for 1<<index < n && index < quantumset.TileQubits+3 {
		index++
	}
	qubits := quantumset.MinQubits + r.IntN(index-quantumset.MinQubits+1)
	rows, runs := 1<<(index-qubits), 1<<(index-quantumset.MinQubits)
	state := make([]float32, 2<<index)
	for i := range state { // the weight of a row is about 1
		state[i] = float32(r.NormFloat64() * math.Sqrt(1/float64(uint64(2)<<qubits)))
	}
	group := r.IntN(qubits - quantumset.MinQubits + 1)
	switch kernel {
	case quantumset.Tile:
		return randomPass(r, a, state, index, qubits, rows)
	case quantumset.Matrix:
		return randomMatrices(r, a, rows)
	case quantumset.Weight:
		mask := r.Uint64N(1<<index) & r.Uint64N(1<<index)
		return a.in(own(state)).scalar(device.Uint64(uint64(runs))).word(group).
			scalar(device.Uint64(mask)).scalar(device.Uint64(mask & r.Uint64())).
			out(Poisoned(8 * runs)).out(make([]byte, 8*runs>>group))
	case quantumset.Sample:
		return randomSample(r, a, state, qubits, rows, group)
	}
	count := r.IntN(5)
	if r.IntN(4) == 0 {
		count = r.IntN(quantumset.MaxStrings + 1)
	}
	strings := make([]uint64, 0, 2*count)
	for range count {
		strings = append(strings, r.Uint64N(1<<qubits), r.Uint64N(4))
	}
	flips := r.Uint64N(1<<qubits) & r.Uint64()
	if r.IntN(3) == 0 {
		flips = 0
	}
	return a.in(own(state)).scalar(device.Uint64(uint64(runs))).word(qubits).scalar(device.Uint64(flips)).
		in(own(strings)).word(count).out(make([]byte, 8*count*rows))
}

// randomMatrices makes a launch for some of the rows. Angles are 0, of turns about an axis, and
// large ones too.
func randomMatrices(r *rand.Rand, a *Arrays, rows int) *Arrays {
	made, width, slots := 1+r.IntN(rows), 8+r.IntN(8), 1+r.IntN(6)
	angle := func() float64 {
		switch r.IntN(6) {
		case 0:
			return []float64{0, math.Pi, math.Pi / 2, -math.Pi / 2}[r.IntN(4)]
		case 1:
			return math.Ldexp(r.NormFloat64(), r.IntN(100))
		}
		return 3 * r.NormFloat64()
	}
	columns := make([]float64, made*width)
	for i := range columns {
		columns[i] = angle()
	}
	recipes, count := make([]uint64, slots), uint64(0)
	for slot := range slots {
		n := uint64(1 + r.IntN(3))
		recipes[slot] = count | (count+n)<<32 | r.Uint64N(2)*quantumset.RecipeLast
		count += n
		for range n {
			factor := make([]uint64, quantumset.FactorWords)
			factor[0] = 1 + r.Uint64N(3)
			numbers := device.Of[float64](device.Bytes(factor[quantumset.FactorNumbers:]))
			for k := range 8 {
				numbers[k] = angle()
			}
			if r.IntN(2) == 0 { // a turn about an axis by column c
				c, axis := r.Uint64N(uint64(width)), r.IntN(3)
				clear(numbers[:8])
				numbers[7], factor[quantumset.FactorColumns+1] = -0.5, c<<32
				if axis == 0 {
					numbers[5], factor[quantumset.FactorColumns+1] = 1, c|c<<32
				} else if numbers[1], factor[quantumset.FactorColumns] = 1, c; axis == 1 {
					numbers[2], numbers[4] = -math.Pi/2, math.Pi/2
				}
			} else if factor[0] == quantumset.FactorUnitary {
				for k := range 4 {
					factor[quantumset.FactorColumns+k/2] |= r.Uint64N(uint64(width)) << (32 * (k % 2))
				}
			}
			if factor[0] == quantumset.FactorGiven {
				factor[quantumset.FactorColumns] = r.Uint64N(uint64(width - 7))
			}
			recipes = append(recipes, factor...)
		}
	}
	return a.in(own(columns)).word(width).in(own(recipes)).word(slots).scalar(device.Uint64(uint64(made))).
		scalar(device.Uint64(uint64(rows))).out(make([]byte, 32*slots*rows))
}

// randomSample makes a launch whose sums are the weights of the state. Some runs have no weight.
func randomSample(r *rand.Rand, a *Arrays, state []float32, qubits, rows, group int) *Arrays {
	var sums, totals []uint64
	for run := range len(state) / 2 / quantumset.RunSize {
		of := state[2*run*quantumset.RunSize:][:2*quantumset.RunSize]
		if r.IntN(3) == 0 {
			clear(of[2*r.IntN(quantumset.RunSize-1)+2:])
		}
		sum := uint64(0)
		for i := 0; i < len(of); i += 2 {
			x, y := float64(of[i]), float64(of[i+1])
			sum += uint64((x*x + y*y) * quantumset.WeightScale)
		}
		sums = append(sums, sum)
		if first := run % (1 << group); first == 0 {
			totals = append(totals, 0)
		}
		totals[len(totals)-1] += sum
	}
	for i := range totals { // running totals of each row
		if i%(len(totals)/rows) > 0 {
			totals[i] += totals[i-1]
		}
	}
	places := make([]uint32, qubits)
	for q, place := range r.Perm(64)[:qubits] {
		if places[q] = uint32(place); r.IntN(4) == 0 {
			places[q] = quantumset.NoPlace
		}
	}
	shots := r.IntN(1 + 300/rows)
	return a.in(own(state)).word(qubits).word(group).in(own(sums)).in(own(totals)).
		scalar(device.Uint64(uint64(rows))).word(shots).scalar(device.Uint64(r.Uint64())).word(r.IntN(100)).
		in(own(places)).out(Poisoned(8 * shots * rows))
}

// randomPass makes a launch of a pass over some tiles of a state. The qubits of the numbers of rows
// are never held.
func randomPass(r *rand.Rand, a *Arrays, state []float32, index, qubits, rows int) *Arrays {
	low := r.IntN(quantumset.TileQubits + 1)
	tile, inTile := make([]int, 0, quantumset.TileQubits), make([]bool, index)
	for q := range low {
		inTile[q] = true
	}
	for _, q := range r.Perm(index - low)[:quantumset.TileQubits-low] {
		inTile[low+q] = true
	}
	var fixed, free uint64
	for q := range index {
		if inTile[q] {
			tile = append(tile, q)
		} else if free |= 1 << q; r.IntN(4) == 0 {
			fixed |= 1 << q
		}
	}
	fresh := r.IntN(4) == 0
	if fresh {
		fixed = 0
	}
	held := 0 // positions that may be held
	for held < quantumset.TileQubits && tile[held] < qubits {
		held++
	}
	value := fixed & r.Uint64()
	phases, gates, slots := 1+r.IntN(4), []uint64(nil), 1+r.IntN(3)
	if held < quantumset.HeldQubits {
		phases = 0 // nothing can be held
	}
	count := uint64(0)
	var words []uint64 // of phases
	var at []int       // the positions in their order: the first ones are held, and the others are of threads
	for phase := range phases {
		var order, threads uint64
		if phase > 0 && r.IntN(2) == 0 {
			order = trades(r, at, held)
		} else {
			at = r.Perm(held)[:quantumset.HeldQubits]
			at = append(at, others(at, r.Perm(quantumset.TileQubits))...)
		}
		for k, p := range at {
			if order |= uint64(p) << (4 * k); k >= quantumset.HeldQubits {
				threads |= 1 << p
			}
		}
		first, local := count, r.IntN(2) == 0
		if !local {
			threads = 0
		}
		for range r.IntN(6) {
			gate := randomGate(r, threads, free, slots)
			gates = append(gates, gate...)
			count += uint64(len(gate) / quantumset.GateWords)
		}
		words = quantumset.AppendPhase(words, tile, order, int(first), int(count), local)
	}
	pass := append(quantumset.AppendHead(nil, quantumset.Head{
		Tile: tile, Fixed: fixed, Values: value, Phases: phases, Gates: int(count), Fresh: fresh,
	}), words...)
	matrices := make([]float32, 8*slots*rows)
	for i := range matrices {
		matrices[i] = float32(r.NormFloat64())
	}
	tiles := uint64(1) << (index - quantumset.TileQubits)
	for left := fixed; left != 0; left &= left - 1 {
		tiles /= 2
	}
	if phases == 0 {
		tiles = 0
	}
	return a.out(own(state)).in(own(append(pass, gates...))).in(own(matrices)).scalar(device.Uint64(tiles)).
		word(qubits).scalar(device.Uint64(uint64(rows)))
}

// trades exchanges held positions with positions of lanes that are less than held, and returns the
// word of the trades.
func trades(r *rand.Rand, at []int, held int) (word uint64) {
	lanes := r.Perm(quantumset.LaneQubits)
	for k := range quantumset.HeldQubits {
		if lane := quantumset.HeldQubits + lanes[k]; at[lane] < held && r.IntN(2) == 0 {
			at[k], at[lane] = at[lane], at[k]
			word |= uint64(1+lanes[k]) << (quantumset.PhaseTrades + 4*k)
		}
	}
	return word
}

// others returns the elements of all that are not in some.
func others(some, all []int) (rest []int) {
	for _, v := range all {
		if !slices.Contains(some, v) {
			rest = append(rest, v)
		}
	}
	return rest
}

// randomGate returns the words of a gate. threads are the positions of threads, and outside the
// qubits outside of the tile.
func randomGate(r *rand.Rand, threads, outside uint64, slots int) []uint64 {
	gate := make([]uint64, quantumset.GateWords)
	kind := uint64(1 + r.IntN(quantumset.GateLookup))
	local, mask := threads&r.Uint64()&r.Uint64()&r.Uint64(), r.Uint64N(1<<quantumset.Held)
	if r.IntN(3) == 0 {
		mask = 1<<quantumset.Held - 1
	}
	gate[quantumset.GateHead] = kind | r.Uint64N(quantumset.HeldQubits)<<4 | mask<<quantumset.GateMask |
		local<<quantumset.GateLocal | local&r.Uint64()<<quantumset.GateLocals
	if kind == quantumset.GateTable || kind == quantumset.GateLookup {
		tables := 1
		if kind == quantumset.GateLookup {
			local, far := r.IntN(4), r.IntN(5)
			if threads == 0 {
				local = 0
			}
			tables = max(1, local+far)
			gate[quantumset.GateHead] = kind | mask<<quantumset.GateMask | uint64(tables)<<quantumset.GateTables
			for k := range local {
				gate[quantumset.GateOutside] |= uint64(quantumset.LookupLocal+k) << (4 * (far + k))
			}
			for k := range far {
				gate[quantumset.GateOutside] |= uint64(k) << (4 * k)
			}
		}
		numbers := make([]float32, 2*tables*quantumset.GateTableWords)
		for i := range numbers {
			numbers[i] = float32(r.NormFloat64())
		}
		return append(gate, device.Of[uint64](device.Bytes(numbers))...)
	}
	if kind == quantumset.GateTurns {
		turns, pivots := r.Uint64N(16), r.Uint64N(16)
		gate[quantumset.GateHead] = kind | turns<<quantumset.GateTurnsOf | pivots<<quantumset.GatePivotsOf
	} else {
		gate[quantumset.GateHead] |= r.Uint64N(4) * quantumset.GateFar // and GateSigned
	}
	if kind == quantumset.GateFactor {
		gate[quantumset.GateHead] |= r.Uint64N(2) * quantumset.GateApply
		gate[quantumset.GateHead] |= r.Uint64N(2) << quantumset.GateLast
		gate[quantumset.GateSign] = outside&r.Uint64() | threads&r.Uint64()<<quantumset.GateSigns
	}
	gate[quantumset.GateOutside] = outside & r.Uint64() & r.Uint64()
	gate[quantumset.GateValue] = gate[quantumset.GateOutside] & r.Uint64()
	matrix := device.Of[float32](device.Bytes(gate[quantumset.GateMatrix:]))
	for i := range matrix {
		matrix[i] = float32(r.NormFloat64())
	}
	if r.IntN(4) == 0 { // the factor 1
		matrix[0], matrix[1] = 1, 0
	}
	if kind != quantumset.GateTurns && r.IntN(4) == 0 {
		gate[quantumset.GateHead] |= quantumset.GatePerRow
		gate[quantumset.GateMatrix] = r.Uint64N(uint64(slots))
	}
	return gate
}
