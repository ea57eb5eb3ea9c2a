package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/testlong"
)

// Tally is one launch of a tally kernel, and what must come of it by the plainest way to say it.
type Tally struct {
	Kernel           string // tally_u8_5, tally_u4_16, tally_groups_u8_256, tally_resident_u8_8 and so on
	Ballots          []byte // one a byte, also those that the kernel gets packed
	Candidates       int
	Offset           int      // bytes before the first ballot
	Priorities       []uint32 // nil: none
	Rule             consensus.Rule
	Word, Seen       uint64 // the round word, and what the caller takes it for
	Round            uint64
	Sequence         uint32
	Starts           []uint32 // of groups; nil: uniform ones
	Size, GroupCount int
	Rows             bool
	Record           bool // the result is a record, and not a reply
}

// Param is one parameter of a launch: memory with what must be in it afterwards, or a scalar.
type Param struct {
	Mem, Want []byte
	Arg       device.Arg
}

func (t *Tally) packed() bool   { return strings.Contains(t.Kernel, "_u4") }
func (t *Tally) grouped() bool  { return strings.HasPrefix(t.Kernel, "tally_groups_") }
func (t *Tally) resident() bool { return strings.HasPrefix(t.Kernel, "tally_resident_") }

// most is the number of candidates that the kernel serves.
func (t *Tally) most() int {
	n, err := strconv.Atoi(t.Kernel[strings.LastIndex(t.Kernel, "_")+1:])
	if err != nil {
		panic(err)
	}
	return n
}

// RandomTally is a launch over n ballots: uniform, skewed, all equal, or any bytes.
func RandomTally(r *rand.Rand, kernel string, n int) Tally {
	t := Tally{
		Kernel: kernel, Ballots: make([]byte, n), Offset: r.IntN(40), Sequence: r.Uint32(),
		Rule: consensus.Rule{Kind: consensus.Kind(r.IntN(5)), Of: consensus.Base(r.IntN(2))},
		Word: r.Uint64N(1 << 40), Rows: r.IntN(2) == 0,
	}
	if t.Rule.Kind == consensus.Quorum {
		den := 1 + r.Uint32N(1<<r.IntN(32))
		t.Rule.Quorum = consensus.Fraction{Num: 1 + r.Uint32N(den), Den: den}
	}
	t.Candidates = 1 + r.IntN(t.most())
	if t.most() == consensus.MaxCandidates {
		t.Candidates = []int{1, 2, 3, 5, 6, 8, 9, 15, 16, 17, 100, 255, 256}[r.IntN(13)]
	}
	values := 256 // of a ballot
	if t.packed() {
		values = 16
	}
	t.Seen, t.Round = t.Word, t.Word+1+r.Uint64N(3)
	switch r.IntN(6) {
	case 0: // stale
		t.Seen--
	case 1: // back
		if !t.resident() { // whose rounds are so many steps further
			t.Round = t.Word - min(t.Word, 1)
		}
	}
	character, one := r.IntN(4), byte(r.IntN(t.Candidates))
	for i := range t.Ballots {
		switch {
		case character == 0 || r.IntN(400) == 0:
			t.Ballots[i] = byte(r.IntN(values))
		case character == 1 || character == 2 && r.IntN(100) != 0:
			t.Ballots[i] = one
		case r.IntN(10) == 0:
			t.Ballots[i] = byte(values - 1)
		default:
			t.Ballots[i] = byte(r.IntN(t.Candidates))
		}
	}
	if r.IntN(2) == 0 {
		t.Priorities = make([]uint32, n)
		shift := r.IntN(32) // few values and many ties, or many values
		for i := range t.Priorities {
			t.Priorities[i] = r.Uint32() >> shift
		}
	}
	t.Record = !t.grouped() && !t.resident() && r.IntN(3) == 0
	if t.grouped() {
		t.group(r, n)
	}
	return t
}

// group cuts n ballots into uniform groups, the last of which may be cut short, or into groups of
// many sizes.
func (t *Tally) group(r *rand.Rand, n int) {
	if r.IntN(2) == 0 {
		t.Size = 1 + n/50_000 + r.IntN(1<<(1+r.IntN(12))) // not so many that the expected rows fill the memory
		if r.IntN(2) == 0 && n <= 50_000*64 {             // sizes that stand in whole vectors
			t.Size = max(16*(1+r.IntN(5)), (1+n/50_000+15)/16*16)
			n -= n % t.Size
			t.Ballots, t.Offset = t.Ballots[:n], t.Offset/16*16
			if t.Priorities != nil {
				t.Priorities = t.Priorities[:n]
			}
		}
		t.GroupCount = (n + t.Size - 1) / t.Size
		return
	}
	t.Starts = []uint32{0}
	for at := 0; at < n; {
		at += min(n-at, r.IntN(1<<(1+r.IntN(13))))
		t.Starts = append(t.Starts, uint32(at))
	}
	t.GroupCount = len(t.Starts) - 1
}

// count is the tally of a run of the ballots, with its leader by position in the run.
func (t *Tally) count(lo, hi int) consensus.Tally {
	sum := consensus.Tally{Counts: make([]uint64, t.Candidates), Total: uint64(hi - lo)}
	all := byte(consensus.Abstain)
	if t.packed() {
		all = consensus.AbstainPacked
	}
	for i, b := range t.Ballots[lo:hi] {
		switch {
		case int(b) < t.Candidates:
			sum.Counts[b]++
		case b == all:
			sum.Abstentions++
		default:
			sum.Invalid++
		}
		p := uint32(0)
		if t.Priorities != nil {
			p = t.Priorities[lo+i]
		}
		if !sum.Leader.Elected || p > sum.Leader.Priority {
			sum.Leader = consensus.Leader{Agent: uint64(i), Priority: p, Elected: true}
		}
	}
	return sum
}

// Params are the parameters of the launch.
func (t *Tally) Params() []Param {
	n := len(t.Ballots)
	ballots := bytes.Repeat([]byte{1}, t.Offset)
	if t.packed() {
		packed := bytes.Repeat([]byte{0x20}, consensus.PackedLen(n)) // the half behind an odd number is no ballot
		for i, b := range t.Ballots {
			packed[i/2] &^= 0xF << (4 * (i % 2))
			packed[i/2] |= b << (4 * (i % 2))
		}
		ballots = append(ballots, packed...)
	} else {
		ballots = append(ballots, t.Ballots...)
	}
	flags := uint32(0)
	if t.Priorities != nil {
		flags |= kernels.TallyPriorities
	}
	if t.Rows {
		flags |= kernels.TallyRows
	}
	if t.Record {
		flags |= kernels.TallyRecord
	}
	same := func(mem []byte) Param { return Param{Mem: mem, Want: mem} }
	u32 := func(v uint32) Param { return Param{Arg: device.Uint32(v)} }
	u64 := func(v uint64) Param { return Param{Arg: device.Uint64(v)} }
	won := t.Round > t.Seen && t.Seen == t.Word
	word := t.Word
	if won {
		word = t.Round
	}
	params := []Param{same(ballots), u64(uint64(t.Offset)), u64(uint64(n)), u32(uint32(t.Candidates))}
	if t.grouped() {
		params = append(params, same(device.Bytes(t.Starts)), u32(uint32(t.Size)), u32(uint32(t.GroupCount)))
	}
	params = append(params, same(device.Bytes(t.Priorities)), u32(flags), u32(uint32(t.Rule.Kind)),
		u32(uint32(t.Rule.Of)),
		u32(t.Rule.Quorum.Num), u32(t.Rule.Quorum.Den))
	if t.resident() { // one ring; the second does not come before the life is over
		ring := t.reply([]uint32{uint32(t.Seen), uint32(t.Seen >> 32), uint32(t.Round - t.Seen), 0})
		params = append(params, same(device.Bytes(ring)), u32(300), u32(t.Sequence-1))
	} else {
		params = append(params, u64(t.Seen), u64(t.Round), u32(t.Sequence), same(make([]byte, 8*kernels.TallyScratch)))
	}
	params = append(params, Param{Mem: device.Bytes([]uint64{t.Word}), Want: device.Bytes([]uint64{word})})
	if t.grouped() {
		return append(params, t.groupResults(won, word)...)
	}
	return append(params, fresh(device.Bytes(t.result(won, word))))
}

// fresh is memory that the kernel must write as a whole.
func fresh(want []byte) Param { return Param{Mem: output(len(want)).mem, Want: want} }

func (t *Tally) decide(lo, hi int) (consensus.Decision, uint32) {
	d, err := consensus.Decide(t.Rule, t.count(lo, hi))
	if err != nil {
		panic(err)
	}
	if d.Winner == consensus.None {
		return d, kernels.NoDecision
	}
	return d, uint32(d.Winner)
}

func (t *Tally) result(won bool, word uint64) []uint64 {
	d, winner := t.decide(0, len(t.Ballots))
	flags := uint32(0)
	for flag, set := range map[uint32]bool{
		kernels.ResultMet: d.QuorumMet, kernels.ResultElected: won, kernels.ResultHasLeader: d.Leader.Elected,
	} {
		if set {
			flags |= flag
		}
	}
	if t.Record {
		return append([]uint64{
			uint64(flags)<<32 | uint64(t.Sequence), d.Leader.Agent<<32 | uint64(winner), uint64(d.Leader.Priority),
			word, d.Total, d.Abstentions, d.Invalid, 0,
		}, d.Counts...)
	}
	values := []uint32{
		flags, winner, uint32(d.Leader.Agent), d.Leader.Priority, uint32(word), uint32(word >> 32),
		uint32(d.Abstentions), uint32(d.Invalid),
	}
	for _, votes := range d.Counts {
		values = append(values, uint32(votes))
	}
	return t.reply(values)
}

// reply is the values with the sequence number of the launch.
func (t *Tally) reply(values []uint32) []uint64 {
	words := make([]uint64, len(values))
	for i, v := range values {
		words[i] = uint64(v)<<32 | uint64(t.Sequence)
	}
	return words
}

func (t *Tally) groupResults(won bool, word uint64) []Param {
	winners, leaders, rows := []uint32{}, []uint32{}, []uint32{}
	decided := uint32(0)
	for g := range t.GroupCount {
		lo, hi := g*t.Size, min((g+1)*t.Size, len(t.Ballots))
		if t.Starts != nil {
			lo, hi = int(t.Starts[g]), int(t.Starts[g+1])
		}
		d, winner := t.decide(lo, hi)
		leader := ^uint32(0)
		if d.Leader.Elected {
			leader = uint32(d.Leader.Agent)
		}
		if d.QuorumMet {
			decided++
		}
		winners, leaders = append(winners, winner), append(leaders, leader)
		for _, v := range d.Counts {
			rows = append(rows, uint32(v))
		}
		rows = append(rows, uint32(d.Abstentions), uint32(d.Invalid))
	}
	if !t.Rows {
		rows = nil
	}
	if t.Priorities == nil { // nobody asks who leads
		leaders = nil
	}
	flags := uint32(0)
	if won {
		flags = kernels.ResultElected
	}
	return []Param{
		fresh(device.Bytes(winners)), fresh(device.Bytes(leaders)), fresh(device.Bytes(rows)),
		fresh(device.Bytes(t.reply([]uint32{
			flags, kernels.NoDecision, 0, 0, uint32(word), uint32(word >> 32), decided,
			0,
		}))),
	}
}

// String names the launch in a failure.
func (t Tally) String() string {
	return fmt.Sprintf("%s of %d ballots at %d, %d candidates, %v, priorities %v, %d groups of %d", t.Kernel,
		len(t.Ballots), t.Offset,
		t.Candidates, t.Rule, t.Priorities != nil, t.GroupCount, t.Size)
}

// launch is the launch as cases have it.
func (t *Tally) launch() []param {
	var params []param
	for _, p := range t.Params() {
		c := param{mem: p.Mem, out: !bytes.Equal(p.Mem, p.Want), arg: p.Arg}
		if p.Mem == nil && p.Arg.Kind() == 0 {
			c.mem = []byte{} // an empty buffer is one
		}
		params = append(params, c)
	}
	return params
}

// tallyCase is the entry of a tally kernel among the cases.
func tallyCase(kernel string) testCase {
	return testCase{compiled: true, make: func(r *rand.Rand, n int) []param {
		t := RandomTally(r, kernel, n)
		return t.launch()
	}}
}

var tallyKernels = []string{
	"tally_u8_5", "tally_u8_8", "tally_u8_16", "tally_u8_256", "tally_u4_5", "tally_u4_8", "tally_u4_16",
	"tally_groups_u8_5", "tally_groups_u8_8", "tally_groups_u8_16", "tally_groups_u8_256",
	"tally_groups_u4_5", "tally_groups_u4_8", "tally_groups_u4_16", "tally_resident_u8_8", "tally_resident_u8_16",
}

// testTallies compares random launches with the plainest way to count: all the kinds of ballots,
// candidates, rules, alignments, stale rounds, and launch shapes.
func testTallies(t *testing.T, open Opener) {
	d := opened(t, open)
	if !compiles(d) {
		t.Skip("this driver runs no compiled code")
	}
	launches := testlong.Of(1500, 300)
	if testing.Short() {
		launches = 150
	}
	sizes := []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 257, 1023, 1024, 1025, 4099, 20_000}
	r := rand.New(rand.NewPCG(11, 12))
	for _, kernel := range tallyKernels {
		t.Run(kernel, func(t *testing.T) {
			for range launches / len(tallyKernels) {
				c := RandomTally(r, kernel, sizes[r.IntN(len(sizes))])
				g := device.Geometry{Grid: grids[r.IntN(len(grids))], Block: 32 * (1 + r.IntN(kernels.TallyThreads/32))}
				if c.resident() {
					g.Grid = kernels.ResidentBlocks
				}
				checkTally(t, d, c, g)
			}
			sizes := []int{999_999, 1_000_000, 1_000_001}
			if p := d.Properties(); !testing.Short() && p.ComputeMajor > 0 {
				sizes = append(sizes, 100_000_000)
			}
			for _, n := range sizes {
				for range max(1, min(3, 10_000_000/n)) { // the reference takes seconds for the largest
					c, g := RandomTally(r, kernel, n), device.Geometry{Grid: 264, Block: 256}
					if c.resident() {
						g.Grid = kernels.ResidentBlocks
					}
					checkTally(t, d, c, g)
				}
			}
		})
	}
}

func checkTally(t *testing.T, d device.Device, c Tally, g device.Geometry) {
	t.Helper()
	all := c.Params()
	got := runCase(t, d, c.Kernel, g, c.launch())
	for i, p := range all {
		if p.Arg.Kind() != 0 {
			continue
		}
		if err := equalWithin(got[i], p.Want, 0); err != nil {
			t.Fatalf("%v, grid %d, block %d: parameter %d: %v", c, g.Grid, g.Block, i, err)
		}
	}
}
