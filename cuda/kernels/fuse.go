package kernels

import (
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Words of 64 bits of a fusion's scratch memory, zero before the first launch and after the last
// one of a fusion. The result has the same words but for the first: the sequence number, which is
// stored last.
const (
	FuseTicket  = iota // how many blocks are done; in the result the sequence number
	FuseFused          // agents accumulated
	FuseRefused        // agents with a NaN or an infinity
	FuseNobody         // fuse_unsorted only: members that are NoNode
	FuseInvalid        // fuse_unsorted only: members that are neither a node nor NoNode
	FuseWeight         // the weight of the agents accumulated
	FuseWords
)

// Flags of a launch.
const (
	FuseOrder    = 1 << iota // fuse_sorted: row k of a run is agent order[k], not agent k
	FuseWeighted             // agent i weighs weights[i], not FuseOne
	FuseParts                // fuse_sorted: rows are sums of runs, with their weights and counts, and finite or not
	FuseFresh                // fuse_sorted: nodes are written, not added to: those before count as zeros
	FuseFirst                // fuse_unsorted: this launch counts NoNode and invalid members
	FuseLast                 // the last launch of a fusion: it stores the result
)

// FuseOne is the weight of an agent without weights.
const FuseOne = 1 << 16

// A run is uint32{first row, rows, target, kind of target}, FuseRunBytes in all.
const (
	FuseRunNode  = 0 // the target is a node, which no other run has
	FuseRunPart  = 1 // the target is a sum of a run
	FuseRunBytes = 16
)

// A block of fuse_unsorted groups FuseTile agents at a time, by a hash table of FuseSlots slots,
// which is half full at most: 40 KiB of shared memory with the rest of a tile, so that several
// blocks run at once.
const (
	FuseTile   = 2048
	FuseSlots  = 4096
	FuseNoSlot = 0xFFFF
)

// Where nodes are many, the agents are sorted by their node before they are added.
const (
	// FuseShare is how many places a team takes at a time: a node is added to once, and once more
	// for each share that it reaches into, which is one node in FuseShare places more than needed.
	FuseShare = 64
	// FuseHead marks an entry of an order whose agent is the first of its node. It is more than the
	// largest agent.
	FuseHead = 1 << 31
)

const (
	// FuseMaxBlock leaves registers for several rows in flight a thread.
	FuseMaxBlock = 256
	// FuseTallyPair is the length of a tally: uint64{agents, weight}.
	FuseTallyPair = 2
	// NoNode is the member that belongs to nobody.
	NoNode = ^uint32(0)
)

// FuseSortedArgs are the arguments of the kernels fuse_sorted_*: each run of rows is summed one by
// one and goes to its target. No two runs of a launch have the same target. Any launch shape gives
// the same bits.
//
//   - rows: [agents][dim] of float or bf16; with FuseParts float[][dim]
//   - order: uint32[] with FuseOrder, else not looked at
//   - weights: uint32[agents] with FuseWeighted, in units of 1/65536
//   - runs: uint32[count][4]
//   - count: runs
//   - dim: a multiple of 8 up to 512
//   - sums: in and out float[nodes][dim]
//   - tallies: in and out uint64[nodes][FuseTallyPair]
//   - part_sums: out float[parts][dim]; with FuseParts rows may be the same memory
//   - part_tallies: out, with FuseParts in and out uint64[parts][FuseTallyPair]
//   - scratch: in and out uint64[FuseWords]
//   - result: out uint64[FuseWords] with FuseLast

// FuseUnsortedArgs are the arguments of the kernels fuse_unsorted_*: agents whose node is in
// low..high-1 are added to it by atomics, in any order; subnormal operands and sums may count as 0.
//
//   - rows: [agents][dim] of float or bf16
//   - members: uint32[agents]
//   - weights: uint32[agents] with FuseWeighted
//   - agents: < 2^32-1
//   - high: <= nodes

// FuseCountArgs are the arguments of fuse_count: the agents of each node are counted and numbered
// from 0 in any order, members that are no node are added to the totals. It is the first of four
// launches, in this order, over the same memory.
//
//   - members: uint32[agents]
//   - agents: <= FuseHead
//   - counts: in and out uint32[nodes+1], zeros before
//   - numbers: out uint32[agents]; of agents without a node as before
//   - scratch: in and out uint64[FuseWords]

// FuseStartsArgs are the arguments of fuse_starts: each count becomes the first of as many places,
// which no other node has. The places of all nodes are 0..counts[nodes]-1.
//
//   - counts: in and out uint32[nodes+1], the last 0 before

// FusePlaceArgs are the arguments of fuse_place: an agent stands at the place that is its number
// behind its node's first.
//
//   - starts: uint32[nodes+1]
//   - order: out uint32[starts[nodes]]: agents, with FuseHead

// FuseWalkArgs are the arguments of the kernels fuse_walk_*: the agents at all places are added to
// their nodes, by atomics and under the terms of fuse_unsorted_*.

// FuseMeansArgs are the arguments of fuse_means: each sum divided by its node's weight, 0 where
// that is.
//
//   - means: out float[nodes][dim]

// FuseName is the kernel for rows of dim values: rows of more than a warp's 32 vectors of 16 bytes
// have their own kernel. kind is "fuse_sorted", "fuse_unsorted" or "fuse_walk".
func FuseName(kind string, elem device.Elem, dim int) string {
	name := kind + "_" + elem.String()
	if int64(dim)*elem.Bytes() > 32*16 {
		name += "_wide"
	}
	return name
}

func init() {
	// The blocks of narrow rows that are to be resident on a multiprocessor at once, of f32 and of
	// bf16.
	for kind, resident := range map[string][2]string{
		"fuse_sorted": {"FUSE_BLOCKS", "FUSE_BLOCKS"}, "fuse_unsorted": {"4", "3"},
		"fuse_walk": {"FUSE_BLOCKS", "FUSE_BLOCKS"},
	} {
		for i, elem := range []device.Elem{device.F32, device.BF16} {
			of := strings.ToUpper(elem.String())
			registerFuse(FuseName(kind, elem, 8), kind, of, "false", resident[i])
			registerFuse(FuseName(kind, elem, 512), kind, of, "true", "2")
		}
	}
	for _, name := range []string{"fuse_count", "fuse_starts", "fuse_place"} {
		register(Source{Name: name, File: name + ".cu", MaxBlock: FuseMaxBlock})
	}
	register(Source{Name: "fuse_means", File: "fuse_means.cu"})
}

// registerFuse adds the kernel of a file with a name and values of its macros.
func registerFuse(name, file, elem, wide, resident string) {
	register(Source{Name: name, File: file + ".cu", MaxBlock: FuseMaxBlock, Text: func() string {
		return fmt.Sprintf("#define ROWS_OF %s\n#define ROWS_WIDE %s\n#define RESIDENT %s\n", elem, wide, resident) +
			strings.Replace(code(file+".cu"), "\nNAME(", "\n"+name+"(", 1)
	}})
}
