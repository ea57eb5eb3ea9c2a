package quantumset

import "math/bits"

// Head is the head of a pass.
type Head struct {
	Tile          []int  // the qubit of each position, in ascending order
	Fixed, Values uint64 // masks of qubits outside of the tile, and of their values
	Phases, Gates int
	Fresh         bool
}

// AppendHead appends the words of a head and its runs.
func AppendHead(words []uint64, h Head) []uint64 {
	at, taken := len(words), h.Fixed
	words = append(words, make([]uint64, PassWords)...)
	for position, qubit := range h.Tile {
		words[at+position/6] |= uint64(qubit) << (8 * (position % 6))
		taken |= 1 << qubit
	}
	words[at+PassFixed], words[at+PassValue] = h.Fixed, h.Values
	words[at+PassCounts] = uint64(h.Phases) | uint64(h.Gates)<<32
	if h.Fresh {
		words[at+PassFlags] = PassFresh
	}
	shift := 0
	for qubit := 0; qubit < 64; {
		if taken>>qubit&1 == 1 {
			qubit, shift = qubit+1, shift+1
			continue
		}
		n := bits.TrailingZeros64(taken >> qubit)
		if taken>>qubit == 0 {
			n = 64 - qubit
		}
		words = append(words, (^uint64(0)>>(64-n))<<qubit, uint64(shift))
		words[at+PassFlags] += 1 << PassRuns
		qubit += n
	}
	return words
}

// AppendPhase appends the words of a phase behind the words of the phases before it. local reports
// whether a gate depends on positions of threads.
func AppendPhase(words []uint64, tile []int, order uint64, first, end int, local bool) []uint64 {
	place := func(nibble int) (far, near uint64) {
		position := order >> (4 * nibble) & 15
		return 1 << tile[position], 1 << position
	}
	if order>>PhaseTrades != 0 {
		words[len(words)-PhaseWords+PhaseGates] |= PhaseKeeps
	}
	words = append(words, order, uint64(first)|uint64(end)<<32)
	if local {
		words[len(words)-1] |= PhaseLocal
	}
	for k := range HeldQubits {
		far, near := place(k)
		near ^= near>>4&15 ^ near>>8&15 // the bank
		words = append(words, far|near<<PhaseNear)
	}
	for nibble := HeldQubits; nibble < TileQubits; nibble += 4 {
		for i := range 16 {
			word := uint64(0)
			for k := range 4 {
				if i>>k&1 == 1 {
					far, near := place(nibble + k)
					word += far | near<<PhaseNear
				}
			}
			words = append(words, word)
		}
	}
	return words
}
