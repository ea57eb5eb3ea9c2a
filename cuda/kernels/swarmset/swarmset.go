// Package swarmset has the kernels that work on a whole swarm of addressed agents: the check of a
// batch of observations, fusions, and elections. Importing it adds them to the set of package
// kernels. Package agents launches them, and cuda/host/twins has their twins.
//
// A fusion adds the embeddings of the agents of each node in the order of fusion.Nodes. The agents
// of a node are cut into runs of RunRows, and their sums are cut again, level by level, until one
// sum is left. A table of a level has for each node its first item, and behind them the number of
// all items. In the table of the last level each node has one item, also a node without agents.
package swarmset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels.
//
// Kernels that read agents have the parameters of SwarmArgs: pages are frames of page_bytes each,
// frames has the frame of each page, with kernels.AgentHostBit of a page that is not there, per is
// the number of agents of a page and votes the offset of their votes in it.
const (
	// Mark finds the pages of observations, and counts the observations that repeat an agent. seen
	// has a bit for each agent, and touched a word for each page and one more; these and scratch are
	// zeros before the launch. touched and scratch are zeros after it.
	Mark = "swarm_mark"
	// Clear clears the bits that Mark has set.
	Clear = "swarm_clear"
	// Fold adds up the items of a level to the items of the next level.
	Fold = "swarm_fold"
	// Bids finds the best bid for each candidate in an election of a leader. The agents are in
	// count pages from number first on, of n agents of the shard. base is the id of the first of
	// these in the swarm, key and salt are of a consensus.Draw, and incumbent is an agent of the
	// shard or NoIncumbent. only is the vote byte of the one candidate whose voters bid; 0 for all
	// candidates. board has the best bids of the launches so far, zeros at first, and scratch is
	// kernels.AgentScratch words. Where its tally has no vote for a candidate, bids for it may be
	// left out. A launch with publish 1 writes the result and clears the board; others write its
	// sequence number alone.
	Bids = "swarm_bids"
	// Gather reads the votes and values of agents. values of each are width elements of the
	// variable at offset first of a page, and behind them the elements of the variable at offset
	// second; both have stride elements of each agent, of bf16 or float32. Of an agent without a
	// vote, or whose page is not there, the vote is 255.
	Gather = "swarm_gather"
	// Starts makes the tables of the nodes of a fusion by vote. A node is the agents that vote for a
	// candidate. Its first place in the order is a multiple of RunRows. firsts has the tables of all
	// levels, one behind the other.
	Starts = "swarm_starts"
)

// Widths are the elements of an embedding, with the padding of a gru, that Runs has a kernel for.
// It must not be changed.
var Widths = []int{1, 8, 16, 32}

// Runs returns the name of the kernel that adds up the runs of nodes, of embeddings of a width.
// rows is the offset of the variable with embeddings: one element of each agent of leaky, and of a
// gru the first half of its elements. nodes has the first agent of each node and their number, or
// the first place in order, which ordered says the content of. firsts is the table of level 0.
func Runs(width int) string { return fmt.Sprint("swarm_runs_", width) }

// Teams returns the name of the kernel that does the same for agents with consecutive ids and
// embeddings of a width above 1, faster. It takes no order.
func Teams(width int) string { return fmt.Sprint("swarm_teams_", width) }

// most returns the candidates that the kernels of Votes and Order for a number of candidates serve.
func most(candidates int) int {
	for _, most := range voteMost {
		if candidates <= most {
			return most
		}
	}
	panic(fmt.Sprintf("swarmset: %d candidates", candidates))
}

// voteMost has the maximum of candidates of the kernels of Votes and Order.
var voteMost = []int{2, 6, kernels.AgentMostCandidates}

// Votes returns the name of the kernel that counts the votes of tiles of VoteTile agents. counts is
// [candidates][tiles].
func Votes(candidates int) string { return fmt.Sprint("swarm_votes_", most(candidates)) }

// Order returns the name of the kernel that writes the agents of each vote in their order. before
// is what Starts leaves of the counts. If embeddings is 1, order has not the agents but their
// embeddings, one float32 of each at offset rows of a page.
func Order(candidates int) string { return fmt.Sprint("swarm_order_", most(candidates)) }

// What the order of Runs has.
const (
	OrderedNot        = iota // nothing: agents of nodes have consecutive ids
	OrderedAgents            // agents
	OrderedEmbeddings        // embeddings of one float32 of agents with votes
)

// Words of 32 bits of the result of Mark.
const (
	MarkSequence = iota // the sequence number of the launch, stored last
	MarkRepeated        // observations of agents that have another one in the launch, but for one of each agent
	MarkTouched         // [pages] 1 of a page with an observation, else 0
)

// Words of 64 bits of the result of Bids. A bid is the priority of an agent in the high half, and
// the complement of the agent's id in the swarm in the low half; 0: there is none.
const (
	BidsSequence = iota // the sequence number of the launch, stored last
	BidsResult          // the vote of the incumbent, its candidate plus one or 0
	BidsBest            // [kernels.AgentMostCandidates] the best bid for each candidate
	// [kernels.AgentMostCandidates] the votes for each candidate, as the steps of agents have counted
	// them
	BidsTally = BidsBest + kernels.AgentMostCandidates
	BidsWords = BidsTally + kernels.AgentMostCandidates // how many there are
)

// BidsBoard is the words of 64 bits of the board of Bids.
const BidsBoard = BidsTally - BidsResult

// NoIncumbent in place of an agent means that no agent leads.
const NoIncumbent = 1<<32 - 1

// Numbers that kernels and their callers agree on.
const (
	RunRows  = 128   // fusion.RunRows
	VoteTile = 16384 // agents of a tile of Votes and Order
	// MostLevels is the maximum of levels of a fusion: 128^5 is above the number of agents.
	MostLevels = 5
)

// Levels returns the number of levels of nodes with at most n agents each.
func Levels(n int64) int {
	levels := 1
	for n = items(n); n > 1; n = items(n) {
		levels++
	}
	return levels
}

// TableWords returns the words of 32 bits from the start of a table of nodes to the start of the
// table of the next level: tables begin at multiples of device.RangeAlign.
func TableWords(nodes int) int { return (nodes + 4) / 4 * 4 }

// items returns the number of runs of n items.
func items(n int64) int64 { return (n + RunRows - 1) / RunRows }

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen swarmset Swarm=pages,page_bytes,frames,per,votes Level=nodes,firsts,count,sums,counts Tiled=n,candidates,tiles

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{Folder: "swarmset", Files: files, Params: paramsOf, Head: head()}
	add := func(name string, maxBlock int, wholeWarps bool) {
		set.Register(kernels.Source{
			Name: name, File: strings.TrimPrefix(name, "swarm_") + ".cu", MaxBlock: maxBlock, WholeWarps: wholeWarps,
		}, "swarm.cuh", "votes.cuh")
	}
	add(Mark, 256, false)
	add(Clear, 256, false)
	add(Fold, 256, true)
	add(Gather, 256, false)
	add(Starts, 1024, true)
	// named adds the kernel of a file that gets a name, behind a definition.
	named := func(name, file, define string, value int, wholeWarps bool) {
		set.Register(kernels.Source{Name: name, File: file, MaxBlock: 256, WholeWarps: wholeWarps, Text: func() string {
			return strings.ReplaceAll(fmt.Sprintf("#define %s %d\n%s", define, value,
				set.Text("swarm.cuh", "votes.cuh", file)), "\nNAME(", "\n"+name+"(")
		}})
	}
	for _, width := range Widths {
		named(Runs(width), "runs.cu", "WIDTH", width, false)
		if width > 1 {
			named(Teams(width), "teams.cu", "WIDTH", width, true)
		}
	}
	for _, most := range voteMost {
		named(Votes(most), "votes.cu", "WORDS", most/2, true)
		named(Order(most), "order.cu", "WORDS", most/2, true)
	}
	bids := set
	bids.Head += fmt.Sprintf("#define BIDS_SEQUENCE %d\n#define BIDS_RESULT %d\n#define BIDS_TALLY %d\n", BidsSequence,
		BidsResult, BidsTally) + fmt.Sprintf("#define BIDS_BOARD %d\n#define AGENT_TALLY %d\n", BidsBoard,
		kernels.AgentTally)
	bids.Register(kernels.Source{Name: Bids, File: "bids.cu", MaxBlock: 256, WholeWarps: true}, "swarm.cuh",
		"votes.cuh")
}

func head() string {
	return fmt.Sprintf("#define RUN_ROWS %du\n#define VOTE_TILE %du\n#define ABSENT_BIT %d\n", RunRows, VoteTile,
		kernels.AgentHostBit) +
		fmt.Sprintf("#define ORDERED_NOT %d\n#define ORDERED_EMBEDDINGS %d\n", OrderedNot, OrderedEmbeddings) +
		fmt.Sprintf("#define MARK_SEQUENCE %d\n#define MARK_REPEATED %d\n#define MARK_TOUCHED %d\n", MarkSequence,
			MarkRepeated, MarkTouched)
}
