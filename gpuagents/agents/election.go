package agents

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Elect returns the decision of all agents of a swarm by a rule, as Vote does, with a leader that
// the voters for the winner elect. The incumbent is the leader if it votes for the winner.
// Otherwise it is the agent with the best of the Bids. Nobody leads a round that nobody wins.
//
// Elect reads the kept tally and the vote of the incumbent, and the votes of all agents only where
// the incumbent does not stay. It returns the errors of Vote and Bids.
func (a *Agents) Elect(
	ctx context.Context, rule consensus.Rule, round uint64, incumbent consensus.Leader,
) (consensus.Decision, error) {
	wait := waits(ctx, a.memory)
	d, err := a.Vote(wait, rule, round, false)
	if d.Leader = (consensus.Leader{}); err != nil || d.Winner == consensus.None {
		return d, err
	}
	vote, err := a.ballot(wait, incumbent)
	if err != nil {
		return consensus.Decision{}, err
	}
	if vote == d.Winner {
		incumbent.Priority = consensus.NewDraw(a.seed, round).Priority(uint32(incumbent.Agent))
		d.Leader = incumbent
		return d, nil
	}
	e, err := a.bidsFor(ctx, round, consensus.Leader{}, d.Winner)
	if err != nil {
		return consensus.Decision{}, err
	}
	d, err = e.Decide(rule)
	d.Round = round
	return d, err
}

// ballot returns the candidate that an agent votes for; None if the agent has never stepped or is
// not one of these agents. The stream has done all earlier work.
func (a *Agents) ballot(ctx context.Context, of consensus.Leader) (int, error) {
	own := of.Agent - a.firstID() // wraps for earlier agents
	if !of.Elected || own >= uint64(a.n) {
		return consensus.None, nil
	}
	var vote [1]byte
	part := a.part(a.page(uint32(own)), kernels.AgentVarVote, int(own)%int(a.perPage.by), vote[:])
	if err := a.memory.ReadAll(ctx, []pager.Part{part}); err != nil {
		return consensus.None, err
	}
	return int(vote[0]) - 1, nil
}

// Bids returns the votes of all agents, as Vote counts them, and for each candidate the best bid of
// the agents that vote for it, by the consensus.Draw of the seed and the round. Agents have their
// ids in the swarm. The incumbent, if it is one of these agents, bids with its term. The election
// of a swarm of several shards is the merge of the elections of its shards. It is the same on every
// device and for every location of the pages. An ErrBid of package consensus means that the pages
// were written with votes that the groups do not count.
//
// Bids changes no agent. It reads a byte for each agent, in one launch if all are on the device.
// Otherwise the pages pass through the device as in a fusion, and Bids checks ctx between two sets.
func (a *Agents) Bids(ctx context.Context, round uint64, incumbent consensus.Leader) (consensus.Election, error) {
	return a.bidsFor(ctx, round, incumbent, consensus.None)
}

// bidsFor is Bids for one candidate; None: for all.
func (a *Agents) bidsFor(
	ctx context.Context, round uint64, incumbent consensus.Leader, only int,
) (consensus.Election, error) {
	if a.inconsistent != nil {
		return consensus.Election{}, a.inconsistent
	}
	if err := a.clearBoard(ctx); err != nil {
		return consensus.Election{}, err
	}
	sets, wait := a.memory.All(), waits(ctx, a.memory)
	err := a.memory.Each(ctx, sets, pages.SweepRead, func(i int) error {
		a.memory.SetAbsent(sets[i].Pages)
		err := a.launchBids(wait, sets[i].Pages, round, incumbent, only, i == len(sets)-1)
		if err == nil {
			err = a.stream.Await(wait, a.result, electionResult, a.sequence)
		}
		if err != nil {
			return fmt.Errorf("%w: elect a leader: %w", gpubatch.ErrDevice, err)
		}
		a.pending = false
		return nil
	})
	if err != nil {
		return consensus.Election{}, err
	}
	a.voting = false
	return a.election(round, incumbent, only)
}

// electionResult is the offset of the result of an election, after the results of steps.
const electionResult = resultSlots * resultBytes

// clearBoard removes the bids that a failed election may have left on the board.
func (a *Agents) clearBoard(ctx context.Context) error {
	if a.voting {
		if err := a.stream.Sync(ctx); err != nil {
			return gpubatch.Mark(err)
		}
		if err := a.board.Fill(0, a.board.Size(), 0); err != nil {
			return gpubatch.Failed(err)
		}
	}
	a.voting = true
	return nil
}

func (a *Agents) firstID() uint64 { return uint64(a.first) * uint64(a.cell.Agents) }

// launchBids adds the bids of the agents of consecutive pages to the board. The last launch of an
// election publishes it.
func (a *Agents) launchBids(
	ctx context.Context, pages []uint64, round uint64, incumbent consensus.Leader, only int, last bool,
) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	key, salt := consensus.NewDraw(a.seed, round).Words()
	leads := uint32(swarmset.NoIncumbent)
	if own := incumbent.Agent - a.firstID(); incumbent.Elected && own < uint64(a.n) { // wraps for earlier agents
		leads = uint32(own)
	}
	chunks := len(pages) * ((int(a.perPage.by) + bidsThread - 1) / bidsThread)
	return a.stream.Launch(a.bids, a.shape(manyRuns, 256, (chunks+255)/256), swarmset.BidsArgs{
		SwarmArgs: a.swarmArgs(), First: uint32(pages[0]), Count: uint32(len(pages)), N: uint32(a.n),
		Base: uint32(a.firstID()), Key: key, Salt: salt, Incumbent: leads, Candidates: uint32(a.cell.Candidates),
		Only: uint32(only + 1), Publish: device.Bit(last), Board: device.Ptr(a.board), Scratch: device.Ptr(a.scratch),
		Sequence: a.sequence, Result: device.Mapped(a.result, electionResult, 8*swarmset.BidsWords),
	}.Args()...)
}

// bidsThread is the number of agents that a thread of the kernel reads at once.
const bidsThread = 16

func (a *Agents) election(round uint64, incumbent consensus.Leader, only int) (consensus.Election, error) {
	e, err := consensus.NewElection(a.cell.Candidates)
	if err != nil {
		return e, err
	}
	words := a.words[electionResult/8:]
	if e.Tally, err = a.tally(words[swarmset.BidsTally:][:a.cell.Candidates]); err != nil {
		return e, err
	}
	for c, bid := range words[swarmset.BidsBest:][:a.cell.Candidates] {
		if only != consensus.None && c != only {
			continue
		}
		if (bid != 0) != (e.Tally.Counts[c] > 0) {
			return e, fmt.Errorf("candidate %d of the votes %d: %w", c, e.Tally.Counts, consensus.ErrBid)
		}
		if bid != 0 {
			e.Bid(c, consensus.Leader{Agent: uint64(^uint32(bid)), Priority: uint32(bid >> 32), Elected: true})
		}
	}
	if vote := words[swarmset.BidsResult]; vote >= 1 && vote <= uint64(a.cell.Candidates) {
		incumbent.Priority = consensus.NewDraw(a.seed, round).Priority(uint32(incumbent.Agent))
		e.Bid(int(vote)-1, incumbent)
	}
	return e, nil
}
