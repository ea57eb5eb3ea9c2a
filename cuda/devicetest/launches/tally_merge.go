package launches

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Merge is one launch of tally_merge, which merges the records of the shards of a swarm.
type Merge struct {
	Records []uint64 // of the shards, Stride words each
	Stride  int      // in words
	Shards  int
	// Heard is the number of records that count, and Need the number that the round needs.
	Heard      int
	Candidates int
	Need       uint32
	Rule       consensus.Rule
	// Word is the round word, Seen what the caller takes it for, and Round the round to close.
	Word, Seen, Round uint64
	Sequence          uint32

	merged consensus.Tally // of the records that count
	// overflow: the sums do not fit 64 bits. torn: a record is not the sum of its parts. complete:
	// enough records count.
	overflow, torn, complete bool
}

// RandomMerge returns a launch over up to n/8 records. Some are of other rounds or of shards that
// did not close theirs; the sums may be near the end of 64 bits, and one record may not be the sum
// of its parts.
func RandomMerge(r *rand.Rand, n int) *Merge {
	base := RandomTally(r, "tally_u8_256", 0)
	m := &Merge{
		Shards: min(r.IntN(n/8+2), 3000), Candidates: base.Candidates, Rule: base.Rule, Word: base.Word,
		Seen: base.Seen, Round: base.Round,
		Sequence: base.Sequence,
	}
	if r.IntN(3) == 0 {
		m.Shards = min(m.Shards, 1+r.IntN(4)) // about as many as blocks
	}
	m.Stride = kernels.RecordWords(m.Candidates) + 2*r.IntN(2)
	m.Records = make([]uint64, m.Stride*m.Shards)
	m.merged = consensus.Tally{Counts: make([]uint64, m.Candidates)}
	// Counts are below most: of any magnitude, or such that some sums overflow and others just fit.
	most := uint64(1) << r.IntN(40)
	if r.IntN(3) == 0 {
		most = math.MaxUint64 / uint64(m.Candidates+2) / uint64(1+r.IntN(1+r.IntN(2*m.Shards+1)))
	}
	torn := -1
	if most < 1<<40 && r.IntN(4) == 0 && m.Shards > 0 {
		torn = r.IntN(m.Shards)
	}
	ids := uint64(1) << r.IntN(60)
	for s := range m.Shards {
		t := consensus.Tally{Abstentions: r.Uint64N(most), Invalid: r.Uint64N(most), BadWeights: r.Uint64N(1 << 30)}
		t.Total = t.Abstentions + t.Invalid
		for range m.Candidates {
			t.Counts = append(t.Counts, r.Uint64N(most))
			t.Total += t.Counts[len(t.Counts)-1]
		}
		// The leader of a record is a number in its shard, whose first agent the record names.
		first, agent, flags := r.Uint64N(ids), uint64(r.Uint32()), uint64(r.IntN(2))*kernels.ResultMet
		if r.IntN(5) > 0 {
			t.Leader = consensus.Leader{Agent: first + agent, Priority: r.Uint32() >> (r.IntN(2) * 30), Elected: true}
			flags |= kernels.ResultHasLeader
		}
		round := m.Round
		switch r.IntN(8) {
		case 0:
			round--
		case 1:
			round++
		}
		if r.IntN(8) > 0 {
			flags |= kernels.ResultElected
		}
		if counts := round == m.Round && flags&kernels.ResultElected != 0; counts {
			m.Heard++
			if s == torn {
				m.torn = true
			} else if err := m.merged.Merge(t); err != nil {
				if !errors.Is(err, consensus.ErrOverflow) {
					panic(err)
				}
				m.overflow = true
			}
		}
		if s == torn {
			t.Total++
		}
		record := m.Records[s*m.Stride:][:m.Stride]
		copy(record, []uint64{
			flags<<32 | uint64(r.Uint32()), agent<<32 | uint64(r.Uint32()),
			uint64(t.Leader.Priority) | uint64(r.Uint32())<<32, round,
			t.Total, t.Abstentions, t.Invalid, t.BadWeights,
		})
		copy(record[kernels.ResultCounts:], t.Counts)
		record[kernels.RecordFirst(m.Candidates)] = first
	}
	m.Need = uint32(max(0, m.Heard-r.IntN(3)))
	if r.IntN(6) == 0 {
		m.Need = uint32(m.Heard + 1)
	}
	m.complete = uint32(m.Heard) >= m.Need
	return m
}

// Name returns the kernel of the launch.
func (m *Merge) Name() string { return "tally_merge" }

// String names the launch in a failure.
func (m *Merge) String() string {
	return fmt.Sprintf("merge of %d records of %d words, %d count and %d are needed, %d candidates, %v, overflow %v,"+
		" torn %v", m.Shards, m.Stride,
		m.Heard, m.Need, m.Candidates, m.Rule, m.overflow, m.torn)
}

// Params returns the parameters of the launch, see Launch.
func (m *Merge) Params() []Param {
	flags, word := uint64(0), m.Word
	switch {
	case m.overflow:
		flags = kernels.ResultOverflow
	case m.torn:
		flags = kernels.ResultTorn
	case m.complete && m.Round > m.Seen && m.Seen == m.Word:
		flags, word = kernels.ResultElected, m.Round
	}
	if m.overflow || m.torn {
		m.merged = consensus.Tally{Counts: make([]uint64, m.Candidates)}
	}
	d, err := consensus.Decide(m.Rule, m.merged)
	if err != nil {
		panic(err)
	}
	winner := kernels.NoDecision
	if d.QuorumMet {
		flags |= kernels.ResultMet
		winner = uint32(d.Winner)
	}
	if d.Leader.Elected {
		flags |= kernels.ResultHasLeader
	}
	result := append([]uint64{
		flags<<32 | uint64(m.Sequence), uint64(winner), uint64(m.Heard)<<32 | uint64(d.Leader.Priority), word, d.Total,
		d.Abstentions,
		d.Invalid, d.BadWeights,
	}, d.Counts...)
	same := func(mem []byte) Param {
		if mem == nil {
			mem = []byte{}
		}
		return Param{Mem: mem, Want: mem}
	}
	u32 := func(v uint32) Param { return Param{Arg: device.Uint32(v)} }
	u64 := func(v uint64) Param { return Param{Arg: device.Uint64(v)} }
	return []Param{
		same(device.Bytes(m.Records)), u32(uint32(m.Stride)), u32(uint32(m.Shards)), u32(uint32(m.Candidates)),
		u32(m.Need),
		u32(uint32(m.Rule.Kind)), u32(uint32(m.Rule.Of)), u32(m.Rule.Quorum.Num), u32(m.Rule.Quorum.Den), u64(m.Seen),
		u64(m.Round),
		u32(m.Sequence), same(make([]byte, 8*kernels.WeightedScratch)),
		{Mem: device.Bytes([]uint64{m.Word}), Want: device.Bytes([]uint64{word})},
		fresh(device.Bytes(append(result, d.Leader.Agent))),
	}
}
