package launches

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Tally is one launch of a tally kernel. Its methods count the ballots in the plainest way.
type Tally struct {
	Kernel           string // tally_u8_5, tally_u4_16, tally_groups_u8_256, tally_resident_u8_8 and so on
	Ballots          []byte // one a byte, even if the kernel gets them packed
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
}

func (t *Tally) packed() bool { return strings.Contains(t.Kernel, "_u4") }

func (t *Tally) grouped() bool { return strings.HasPrefix(t.Kernel, "tally_groups_") }

// Resident reports whether the kernel stays on the device for many rounds. Its grid is fixed, see
// kernels.ResidentBlocks.
func (t *Tally) Resident() bool { return strings.HasPrefix(t.Kernel, "tally_resident_") }

func (t *Tally) most() int {
	n, err := strconv.Atoi(t.Kernel[strings.LastIndex(t.Kernel, "_")+1:])
	if err != nil {
		panic(err)
	}
	return n
}

// RandomTally returns a launch of one of TallyKernels over n ballots, which are uniform, skewed,
// all equal, or any bytes. Some launches have a stale round.
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
	switch r.IntN(6) { // most launches close their round
	case 0: // stale
		t.Seen--
	case 1: // back; the request of a resident kernel has a number of steps, which is never negative
		if !t.Resident() { // the rounds are this many steps further
			t.Round = t.Word - min(t.Word, 1)
		}
	}
	// The character of all ballots: any bytes, all equal, nearly all equal, or spread.
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
	if t.grouped() {
		t.group(r, n)
	}
	return t
}

// group divides n ballots into groups: of one size, except for a smaller last group, or of many
// sizes.
func (t *Tally) group(r *rand.Rand, n int) {
	if r.IntN(2) == 0 {
		t.Size = 1 + n/50_000 + r.IntN(1<<(1+r.IntN(12))) // a bound on the expected rows
		// Sizes whose group fills whole vectors, and sizes whose 32 groups do: neither ends within
		// a group.
		if whole := r.IntN(3); whole > 0 && n <= 50_000*64 {
			if t.Size = max(16*(1+r.IntN(5)), (1+n/50_000+15)/16*16); whole == 2 {
				t.Size = max(1+r.IntN(63), 1+n/50_000)
			}
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

// count returns the tally of the ballots from lo to hi. Its leader is a position from lo on.
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

// Params returns the parameters of the launch, see Launch.
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
	// The round closes if the caller has seen the present round word.
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
	if t.Resident() { // one request; the kernel ends when the second does not come in time
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

// decide returns the decision of the ballots from lo to hi, and the winner as kernels write it.
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

// result returns the wanted result of a launch that is not grouped. won reports whether the launch
// has closed its round, and word is the round word after it.
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
	values := []uint32{
		flags, winner, uint32(d.Leader.Agent), d.Leader.Priority, uint32(word), uint32(word >> 32),
		uint32(d.Abstentions), uint32(d.Invalid),
	}
	for _, votes := range d.Counts {
		values = append(values, uint32(votes))
	}
	return t.reply(values)
}

// reply returns values as a kernel writes a reply: each with the sequence number of the launch.
func (t *Tally) reply(values []uint32) []uint64 {
	words := make([]uint64, len(values))
	for i, v := range values {
		words[i] = uint64(v)<<32 | uint64(t.Sequence)
	}
	return words
}

// groupResults returns the wanted results of a grouped launch: winners, leaders, rows of counts,
// and the reply.
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

// TallyKernels are the kernels that RandomTally knows.
var TallyKernels = []string{
	"tally_u8_5", "tally_u8_8", "tally_u8_16", "tally_u8_256", "tally_u4_5", "tally_u4_8", "tally_u4_16",
	"tally_groups_u8_5", "tally_groups_u8_8", "tally_groups_u8_16", "tally_groups_u8_256",
	"tally_groups_u4_5", "tally_groups_u4_8", "tally_groups_u4_16", "tally_resident_u8_8", "tally_resident_u8_16",
}

// Name is the kernel of the launch.
func (t Tally) Name() string { return t.Kernel }
