package launches

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
)

// SwarmKernels returns the kernels that RandomSwarm knows, in a fixed order.
func SwarmKernels() (all []string) {
	for _, name := range kernels.Names() {
		if strings.HasPrefix(name, "swarm_") {
			all = append(all, name)
		}
	}
	return all
}

// swarmPages are the pages of a random swarm, in frames in random order.
type swarmPages struct {
	r           *rand.Rand
	n, per      int // agents, and agents of a page
	votes, rows int // offsets in a page
	pageBytes   int
	frames      []uint32
	pages       []byte
	candidates  int
}

// RandomSwarm returns a random launch of a kernel of package swarmset over n agents or
// observations. Some pages are not there, some agents have no vote or one of a candidate that does
// not exist, and some embeddings are not finite.
func RandomSwarm(r *rand.Rand, kernel string, n int) *Arrays {
	a := &Arrays{}
	switch kernel {
	case swarmset.Mark, swarmset.Clear:
		return randomMarks(r, a, kernel, n)
	case swarmset.Fold:
		return randomFold(r, a, n)
	case swarmset.Starts:
		candidates, tiles, levels := 2+r.IntN(15), n/16, 1+r.IntN(swarmset.MostLevels)
		counts := make([]uint32, candidates*tiles)
		for i := range counts {
			counts[i] = r.Uint32N(swarmset.VoteTile + 1)
		}
		return a.out(own(counts)).word(tiles).word(candidates).word(levels).out(Poisoned(8 * candidates)).
			out(Poisoned(4 * levels * swarmset.TableWords(candidates))).out(make([]byte, 8))
	}
	if kernel == swarmset.Gather {
		return randomGather(r, a, n)
	}
	if kernel == swarmset.Bids {
		return randomBids(r, a, n)
	}
	number := 0
	at := strings.LastIndexByte(kernel, '_') + 1
	fmt.Sscan(kernel[at:], &number) //nolint:errcheck // a name of SwarmKernels
	if kernel == swarmset.Runs(number) || kernel == swarmset.Teams(number) {
		return randomRuns(r, a, n, number, kernel == swarmset.Runs(number))
	}
	s := randomPages(r, n, 1, false, 2+r.IntN(number-1))
	tiles := (n + swarmset.VoteTile - 1) / swarmset.VoteTile
	if s.head(a); kernel == swarmset.Votes(number) {
		return a.word(n).word(s.candidates).word(tiles).out(Poisoned(4 * s.candidates * tiles))
	}
	before, nodes, places := s.places(tiles)
	return a.word(s.rows).word(r.IntN(2)).word(n).word(s.candidates).word(tiles).in(own(before)).in(own(nodes)).
		out(make([]byte, 4*places))
}

func (a *Arrays) word(v int) *Arrays { return a.scalar(device.Uint32(uint32(v))) }

// randomMarks makes a launch of Mark or Clear for n ids. Some are equal, and some belong to no
// agent.
func randomMarks(r *rand.Rand, a *Arrays, kernel string, n int) *Arrays {
	agents, per := 1+r.IntN(4*n+1), 1+r.IntN(300)
	pages := (agents + per - 1) / per
	ids := make([]uint32, n)
	for i := range ids {
		switch ids[i] = r.Uint32N(uint32(agents)); r.IntN(40) {
		case 0:
			ids[i] = uint32(agents) + r.Uint32N(100)
		case 1:
			ids[i] = math.MaxUint32
		}
	}
	seen := make([]uint32, (agents+31)/32)
	a.in(own(ids)).word(n).word(agents)
	if kernel == swarmset.Clear {
		for i := range seen {
			seen[i] = r.Uint32()
		}
		return a.out(own(seen))
	}
	return a.word(per).word(pages).out(own(seen)).out(make([]byte, 4*(pages+1))).out(make([]byte, 8)).
		word(1 + r.IntN(1000)).out(Poisoned(4 * (swarmset.MarkTouched + pages)))
}

// table returns the first item of each node and the number of all items.
func table(sizes []int) (firsts []uint32) {
	sum := 0
	for _, n := range sizes {
		firsts = append(firsts, uint32(sum))
		sum += n
	}
	return append(firsts, uint32(sum))
}

func sizes(r *rand.Rand, n int) (all []int) {
	for n > 0 || len(all) == 0 {
		size := min(n, []int{0, 1, r.IntN(64), swarmset.RunRows, r.IntN(1000), r.IntN(50_000)}[r.IntN(6)])
		all = append(all, size)
		n -= size
	}
	return all
}

func randomFold(r *rand.Rand, a *Arrays, n int) *Arrays {
	width := swarmset.Widths[r.IntN(len(swarmset.Widths))]
	n /= width
	all := sizes(r, n)
	after := make([]int, len(all))
	last := true
	for i, n := range all {
		after[i] = (n + swarmset.RunRows - 1) / swarmset.RunRows
		last = last && n <= swarmset.RunRows
	}
	if last {
		for i := range after {
			after[i] = 1
		}
	}
	in, counts, firsts := make([]float32, n*width), make([]uint32, n), table(after)
	for i := range in {
		in[i] = float32(r.NormFloat64())
	}
	for i := range counts {
		counts[i] = r.Uint32N(1000)
	}
	items := int(firsts[len(all)])
	return a.in(own(in)).in(own(counts)).in(own(table(all))).in(own(firsts)).word(len(all)).word(width).
		out(Poisoned(4 * items * width)).out(Poisoned(4 * items))
}

// randomRuns makes a launch that adds up runs of agents: of consecutive ones, or of a random order.
func randomRuns(r *rand.Rand, a *Arrays, n, width int, ordering bool) *Arrays {
	n = n / width / 2
	bf16 := 0
	if width > 1 {
		bf16 = r.IntN(2)
	}
	s := randomPages(r, n, width, bf16 == 1, 2+r.IntN(15))
	all, ordered := sizes(r, n), r.IntN(2)
	if width == 1 {
		ordered = r.IntN(3)
	}
	var nodes []uint32
	runs := make([]int, len(all))
	first := 0
	for i, n := range all {
		nodes = append(nodes, uint32(first), uint32(n))
		if first += n; ordered == swarmset.OrderedEmbeddings {
			first = (first + swarmset.RunRows - 1) / swarmset.RunRows * swarmset.RunRows
		}
		runs[i] = (n + swarmset.RunRows - 1) / swarmset.RunRows
	}
	order := make([]uint32, max(n, first))
	for i, agent := range r.Perm(n) {
		order[i] = uint32(agent)
	}
	for i := range order {
		if ordered == swarmset.OrderedEmbeddings {
			order[i] = r.Uint32()
		}
	}
	firsts := table(runs)
	items := int(firsts[len(all)])
	if s.head(a).word(s.rows).word(bf16); ordering {
		a.in(own(order)).word(ordered)
	}
	return a.in(own(nodes)).in(own(firsts)).word(len(all)).out(Poisoned(4 * items * width)).
		out(Poisoned(4 * items))
}

func randomGather(r *rand.Rand, a *Arrays, n int) *Arrays {
	class, bf16 := swarmset.Widths[r.IntN(len(swarmset.Widths))], 0
	if class > 1 {
		bf16 = r.IntN(2)
	}
	n /= class
	s := randomPages(r, n, class, bf16 == 1, 2)
	stride, width := 2*class, 1+r.IntN(class)
	if class == 1 {
		stride = 1
	}
	values := width
	if r.IntN(2) == 0 {
		values *= 2 // the same variable twice
	}
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = r.Uint32N(uint32(n))
	}
	return s.head(a).word(s.rows).word(s.rows).word(width).word(stride).word(bf16).in(own(ids)).word(n).word(values).
		out(Poisoned(n)).out(Poisoned(4 * n * values))
}

// randomBids makes a launch over the votes of some of the pages of n agents, often with an
// incumbent and with bids of an earlier launch.
func randomBids(r *rand.Rand, a *Arrays, n int) *Arrays {
	s := randomPages(r, n, 1, false, 2+r.IntN(kernels.AgentMostCandidates-1))
	pages := len(s.frames)
	first := r.IntN(pages + 1)
	if r.IntN(2) == 0 {
		first = 0
	}
	incumbent := uint32(swarmset.NoIncumbent)
	if n > 0 && r.IntN(3) > 0 {
		incumbent = r.Uint32N(uint32(n))
	}
	board, scratch := make([]uint64, swarmset.BidsBoard), make([]uint64, kernels.AgentScratch)
	earlier := r.IntN(2) == 0
	for i := range board {
		if earlier && i > 0 && r.IntN(4) == 0 {
			board[i] = r.Uint64()
		}
	}
	for c := range s.candidates {
		scratch[kernels.AgentTally+c] = r.Uint64N(1 << 32)
	}
	only := r.IntN(2) * (1 + r.IntN(min(2, s.candidates)))
	return s.head(a).word(first).word(pages - first).word(n).word(int(r.Uint32N(1 << 31))).word(int(r.Uint32())).
		word(int(r.Uint32())).word(int(incumbent)).word(s.candidates).word(only).
		word(r.IntN(2)).out(own(board)).out(own(scratch)).word(1 + r.IntN(1000)).
		out(Poisoned(8 * swarmset.BidsWords))
}

func randomPages(r *rand.Rand, n, width int, bf16 bool, candidates int) *swarmPages {
	s := &swarmPages{r: r, n: n, per: []int{1, 3, 64, 100, 160, 5000}[r.IntN(6)], candidates: candidates}
	if n > 1000 {
		s.per = max(s.per, 64)
	}
	bytes, stride := 4, width
	if bf16 {
		bytes = 2
	}
	if width > 1 {
		stride = 2 * width
	}
	s.votes = 256 * r.IntN(2)
	s.rows = s.votes + (s.per+255)/256*256
	s.pageBytes = s.rows + (s.per*stride*bytes+255)/256*256
	s.frames = make([]uint32, (n+s.per-1)/s.per)
	s.pages = make([]byte, len(s.frames)*s.pageBytes)
	votes := 1 + r.IntN(s.candidates+1) // the values of most votes
	for page, frame := range r.Perm(len(s.frames)) {
		s.frames[page] = uint32(frame)
		data := s.pages[frame*s.pageBytes:][:s.pageBytes]
		for i := range s.per {
			if data[s.votes+i] = byte(r.IntN(votes)); r.IntN(50) == 0 {
				data[s.votes+i] = byte(r.IntN(256))
			}
		}
		for at := s.rows; at < len(data); at += bytes {
			v := float32(r.NormFloat64())
			if r.IntN(300) == 0 {
				v = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-40}[r.IntN(4)]
			}
			if bf16 {
				device.Of[uint16](data[at:][:2])[0] = device.ToBF16(v)
			} else {
				device.Of[float32](data[at:][:4])[0] = v
			}
		}
		if r.IntN(8) == 0 {
			s.frames[page] = 1 << kernels.AgentHostBit
		}
	}
	return s
}

// head adds the parameters that all kernels that read agents begin with.
func (s *swarmPages) head(a *Arrays) *Arrays {
	return a.in(s.pages).scalar(device.Uint64(uint64(s.pageBytes))).in(own(s.frames)).word(s.per).word(s.votes)
}

// places returns what Starts makes of the votes, for Order, and the number of places.
func (s *swarmPages) places(tiles int) (before, nodes []uint32, n int) {
	before = make([]uint32, s.candidates*tiles)
	totals := make([]int, s.candidates)
	for agent := range s.n {
		if agent%swarmset.VoteTile == 0 {
			for c, n := range totals {
				before[c*tiles+agent/swarmset.VoteTile] = uint32(n)
			}
		}
		frame := s.frames[agent/s.per]
		if frame>>kernels.AgentHostBit != 0 {
			continue
		}
		if v := int(s.pages[int(frame)*s.pageBytes+s.votes+agent%s.per]); v >= 1 && v <= s.candidates {
			totals[v-1]++
		}
	}
	for _, total := range totals {
		nodes = append(nodes, uint32(n), uint32(total))
		n += (total + swarmset.RunRows - 1) / swarmset.RunRows * swarmset.RunRows
	}
	return before, nodes, n
}
