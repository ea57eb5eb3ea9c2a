// Package round holds rounds of votes on a device: agents' ballots in device memory, one launch
// that counts them, finds the leader, decides and closes the round, and the decision in host
// memory. What a decision means is in consensus.
package round

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Options describe all rounds of a Round.
type Options struct {
	// Candidates is the number of candidates: 1..256, of packed ballots 1..16.
	Candidates int
	// Rule decides; the zero value is plurality.
	Rule consensus.Rule
	// Packed reports whether a ballot is half a byte; see consensus.
	Packed bool
	// Weights is the kind of weights of the ballots; zero: none, and each weighs 1.
	Weights Weights
	// Capacity is the most ballots of Cast, whose device memory is reserved; the first Prioritize
	// adds four bytes a ballot, and the first Weigh the size of a weight. 0: ballots come by Point
	// only.
	Capacity int
	// Resident is the time for which a kernel stays on the device after its launch and closes
	// rounds that Decide requests through a doorbell in host memory: MinResident..MaxResident, or
	// 0, the default, for a launch a round. It saves the launch of a round, about 4 us, and
	// occupies 16 multiprocessors while the Round is in use and up to Resident longer. Calls that
	// wait for the whole device, such as the release of memory to the driver, wait as long. For up
	// to 16 candidates in ballots of a byte without weights. The host device and chips before
	// compute capability 9 have no use for it and ignore it.
	Resident time.Duration
	// Geometry is the shape of the launch; zero: chosen for the device and the number of ballots.
	Geometry device.Geometry
}

// MaxBallots is the largest number of ballots of a round.
const MaxBallots = math.MaxUint32

// Round is a series of rounds over one electorate. It is used by one goroutine at a time. Its owner
// closes it before the device.
type Round struct {
	opts    Options
	dev     device.Device
	stream  device.Stream
	kernel  device.Kernel
	ballots device.Buffer // what Cast fills; nil without Capacity
	ranks   device.Buffer // what Prioritize fills; nil before
	weights device.Buffer // what Weigh and its like fill; nil before
	weighed bool          // later rounds have weighted ballots
	ballot  poll
	args    kernels.TallyWeightedArgs // of the next launch; its weights are of a Round with weights alone

	resident *resident // nil: a launch a round
	close    []func() error
}

// poll is the part of a launch that Round, Groups and Merger have in common: the round word and the
// result.
type poll struct {
	scratch, word device.Buffer
	result        device.HostBuffer
	words         []uint64            // the reply
	values        []uint32            // of the last reply
	record        bool                // the result is a record, whose words hold no sequence numbers but the first
	closed        *kernels.ClosedArgs // of the owner's arguments, which list appends
	list          func(to []device.Arg) []device.Arg
	args          []device.Arg // what list has appended
	geometry      device.Geometry
	seen          uint64
	sequence      uint32
	unsure        bool // a launch may have closed a round unseen
	n             int  // ballots; -1: none were given
}

// New makes a series of rounds whose first has the number 1, and no ballots.
func New(d device.Device, opts Options) (r *Round, err error) {
	name := kernels.TallyName(opts.Candidates, opts.Packed)
	if opts.Weights > Fractions {
		return nil, fmt.Errorf("round of weights %d: %w", opts.Weights, device.ErrInvalidArgument)
	} else if opts.Weights != Unweighted {
		name = kernels.WeightedName(int(opts.Weights), opts.Candidates, opts.Packed)
	}
	if err := checkCandidates("round", opts.Candidates, opts.Packed); err != nil {
		return nil, err
	}
	if opts.Capacity < 0 || opts.Capacity > MaxBallots {
		return nil, fmt.Errorf("round of %d ballots: %w", opts.Capacity, device.ErrInvalidArgument)
	}
	if err := opts.Rule.Check(); err != nil {
		return nil, err
	}
	if err := opts.checkResident(); err != nil {
		return nil, err
	}
	r = &Round{opts: opts, dev: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	if r.kernel, err = d.Kernel(name); err != nil {
		return r, err
	}
	if r.stream, err = d.NewStream(); err != nil {
		return r, err
	}
	r.close = append(r.close, r.stream.Close)
	if err = r.ballot.open(d, opts.Candidates, &r.close); err != nil {
		return r, err
	}
	if opts.Capacity > 0 {
		if r.ballots, err = alloc(d, ballotBytes(opts.Capacity, opts.Packed), &r.close); err != nil {
			return r, err
		}
	}
	p := &r.ballot
	r.args.Candidates, r.args.RuleArgs = uint32(opts.Candidates), rule(opts.Rule)
	r.args.Priorities, r.args.Weights = device.Ptr(p.scratch), device.Ptr(p.scratch)
	r.args.Result = device.Mapped(p.result, 0, p.result.Size())
	p.launches(&r.args.ClosedArgs, func(to []device.Arg) []device.Arg { return r.list(&r.args, to) })
	p.record = opts.Weights != Unweighted
	return r, r.reside(d)
}

func (r *Round) list(a *kernels.TallyWeightedArgs, to []device.Arg) []device.Arg {
	if r.opts.Weights != Unweighted {
		return a.AppendTo(to)
	}
	tally := kernels.TallyArgs{BallotsArgs: a.BallotsArgs, ClosedArgs: a.ClosedArgs, Result: a.Result}
	return tally.AppendTo(to)
}

// checkCandidates refuses a number of candidates that ballots cannot name.
func checkCandidates(what string, n int, packed bool) error {
	most := consensus.MaxCandidates
	if packed {
		most = consensus.MaxPacked
	}
	if n < 1 || n > most {
		return fmt.Errorf("%s of %d candidates, at most %d: %w", what, n, most, consensus.ErrCandidates)
	}
	return nil
}

// ballotBytes returns the size of n ballots.
func ballotBytes(n int, packed bool) int64 {
	if packed {
		return int64(consensus.PackedLen(n))
	}
	return int64(n)
}

// pointAt returns n elements of size bytes at off of b as an argument; n is -1 before ballots. what
// begins an error.
func pointAt(what string, b device.Buffer, off int64, n int, size int64) (device.Arg, error) {
	if b == nil || n < 0 || off%device.RangeAlign != 0 {
		return device.Arg{}, fmt.Errorf("%s at %d for %d ballots: %w", what, off, max(n, 0),
			device.ErrInvalidArgument)
	}
	bytes := size * int64(n)
	return device.Range(b, off, bytes), device.CheckRange(what, off, bytes, b.Size())
}

// closeAll closes in order and forgets: the stream comes first, and waits.
func closeAll(closers *[]func() error) error {
	var errs []error
	for _, fn := range *closers {
		errs = append(errs, fn())
	}
	*closers = nil
	return errors.Join(errs...)
}

func alloc(d device.Device, n int64, closers *[]func() error) (device.Buffer, error) {
	b, err := d.Alloc(n, "consensus")
	if err == nil {
		*closers = append(*closers, b.Close)
	}
	return b, err
}

func (p *poll) open(d device.Device, counts int, closers *[]func() error) (err error) {
	p.n = -1
	if p.scratch, err = alloc(d, 8*kernels.WeightedScratch, closers); err != nil {
		return err
	}
	if p.word, err = alloc(d, 8, closers); err != nil {
		return err
	}
	if err = errors.Join(p.scratch.Fill(0, p.scratch.Size(), 0), p.word.Fill(0, 8, 0)); err != nil {
		return err
	}
	if p.result, err = d.AllocHost(8*int64(kernels.ResultWords(counts)), "consensus"); err != nil {
		return err
	}
	*closers = append(*closers, p.result.Close)
	clear(p.result.Bytes())
	p.words = device.Of[uint64](p.result.Bytes())
	p.values = make([]uint32, len(p.words))
	return nil
}

func (p *poll) launches(closed *kernels.ClosedArgs, list func(to []device.Arg) []device.Arg) {
	p.closed, p.list = closed, list
	closed.Scratch, closed.Word = device.Ptr(p.scratch), device.Ptr(p.word)
}

func rule(r consensus.Rule) kernels.RuleArgs {
	return kernels.RuleArgs{Rule: uint32(r.Kind), OfAll: uint32(r.Of), Num: r.Quorum.Num, Den: r.Quorum.Den}
}

// hold launches one round and waits for its result. It fails with consensus.ErrRound when the round
// was not closed.
func (p *poll) hold(ctx context.Context, s device.Stream, k device.Kernel, round uint64) error {
	if p.n < 0 {
		return fmt.Errorf("decide round %d without ballots: %w", round, device.ErrInvalidArgument)
	}
	if err := p.catchUp(ctx, s); err != nil {
		return err
	}
	if round == next {
		round = p.seen + 1
	}
	p.sequence++
	p.closed.Seen, p.closed.Round, p.closed.Sequence = p.seen, round, p.sequence
	p.args = p.list(p.args[:0])
	if err := s.Launch(k, p.geometry, p.args...); err != nil {
		return fmt.Errorf("decide round %d: %w", round, err)
	}
	p.unsure = true
	if err := p.await(ctx, s); err != nil {
		return fmt.Errorf("decide round %d: %w", round, err)
	}
	p.unsure = false
	before := p.seen
	p.seen = p.round()
	if p.flags()&kernels.ResultElected == 0 {
		return fmt.Errorf("decide round %d after round %d: %w", round, max(before, p.seen), consensus.ErrRound)
	}
	return nil
}

// await waits until all words of the reply carry the launch's sequence number, and takes their
// values. The words come in one or a few transfers, so the others follow the first within a moment.
func (p *poll) await(ctx context.Context, s device.Stream) error {
	if err := s.Await(ctx, p.result, 0, p.sequence); err != nil || p.record {
		return err
	}
	for i := range p.words {
		for tries := 0; !p.take(i); tries++ {
			if tries < patience {
				continue
			}
			if err := s.Sync(ctx); err != nil { // now they are all there
				return err
			}
			if !p.take(i) {
				return fmt.Errorf("word %d of the reply is of another launch: %w", i, device.ErrInvalidArgument)
			}
		}
	}
	return nil
}

// patience is the number of polls of a word of a reply before the stream is synced: about 0.1 ms.
const patience = 100_000

func (p *poll) take(i int) bool {
	w := atomic.LoadUint64(&p.words[i]) // the device stores it
	p.values[i] = uint32(w >> 32)
	return uint32(w) == p.sequence
}

// round is the round word after the last launch.
func (p *poll) round() uint64 {
	if p.record {
		return p.words[kernels.ResultRound]
	}
	return uint64(p.values[kernels.ReplyRoundHigh])<<32 | uint64(p.values[kernels.ReplyRound])
}

func (p *poll) flags() uint32 { return uint32(p.words[kernels.ResultDone] >> 32) }

// next stands for the number after the last.
const next = 0

// catchUp reads the round word after a wait that was cancelled.
func (p *poll) catchUp(ctx context.Context, s device.Stream) error {
	if !p.unsure {
		return nil
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	var word [1]uint64
	if err := p.word.Read(0, device.Bytes(word[:])); err != nil {
		return err
	}
	p.seen, p.unsure = word[0], false
	return nil
}

// Cast copies the ballots of later rounds to the device, a byte each, in place of earlier ballots:
// agent i has ballot i. More than Capacity, or a Round of packed ballots, is
// device.ErrInvalidArgument. It drops priorities and weights; see Prioritize and Weigh. Cast does
// not keep the slice.
func (r *Round) Cast(ballots []byte) error {
	if r.opts.Packed {
		return fmt.Errorf("cast %d ballots of a byte in a round of packed ones: %w", len(ballots),
			device.ErrInvalidArgument)
	}
	return r.cast(ballots, len(ballots))
}

// CastPacked is Cast for n packed ballots, which consensus.PackedLen(n) bytes hold.
func (r *Round) CastPacked(packed []byte, n int) error {
	if !r.opts.Packed || n < 0 || len(packed) != consensus.PackedLen(n) {
		return fmt.Errorf("cast %d packed ballots in %d bytes: %w", n, len(packed), device.ErrInvalidArgument)
	}
	return r.cast(packed, n)
}

func (r *Round) cast(data []byte, n int) error {
	if n > r.opts.Capacity {
		return fmt.Errorf("cast %d ballots, room is for %d: %w", n, r.opts.Capacity, device.ErrInvalidArgument)
	}
	b := r.ballots
	if b == nil { // no ballots, in no memory
		return r.Point(r.ballot.scratch, 0, 0)
	}
	if err := r.idle(); err != nil {
		return err
	}
	if err := b.Write(0, data); err != nil {
		return err
	}
	return r.Point(b, 0, n)
}

// Point sets the ballots of later rounds, in device memory, in place of earlier ballots: n of them,
// the first in the byte at off of b, which may be any. Decide reads them on a stream of this Round,
// so the caller syncs the stream that writes them first. b must stay open. Point drops priorities
// and weights.
func (r *Round) Point(b device.Buffer, off int64, n int) error {
	if b == nil || n < 0 || n > MaxBallots {
		return fmt.Errorf("point at %d ballots: %w", n, device.ErrInvalidArgument)
	}
	if err := device.CheckRange("point at ballots", off, ballotBytes(n, r.opts.Packed), b.Size()); err != nil {
		return err
	}
	if err := r.leave(); err != nil {
		return err
	}
	p := &r.ballot
	p.n = n
	r.args.Ballots, r.args.First, r.args.N = device.Ptr(b), uint64(off), uint64(n)
	r.weighed = false
	r.rank(device.Ptr(p.scratch), 0)
	return nil
}

// Prioritize copies the agents' priorities to the device, one for each ballot. The agent with the
// highest priority leads, the smallest index among equals. Without priorities agent 0 leads.
func (r *Round) Prioritize(priorities []uint32) error {
	if len(priorities) != r.ballot.n || r.opts.Capacity < len(priorities) {
		return fmt.Errorf("%d priorities for %d ballots: %w", len(priorities), r.ballot.n, device.ErrInvalidArgument)
	}
	if err := r.upload(&r.ranks, 4, device.Bytes(priorities)); err != nil {
		return err
	}
	return r.PointPriorities(r.ranks, 0)
}

// upload copies a value for each ballot to a buffer, which has room for Capacity values of size
// bytes from the first call on.
func (r *Round) upload(b *device.Buffer, size int64, values []byte) (err error) {
	if *b == nil {
		if *b, err = alloc(r.dev, size*int64(r.opts.Capacity), &r.close); err != nil {
			return err
		}
	}
	if err := r.idle(); err != nil {
		return err
	}
	return (*b).Write(0, values)
}

// PointPriorities takes the priorities from device memory: a uint32 for each ballot from the byte
// at off on, a multiple of 16. b must stay open.
func (r *Round) PointPriorities(b device.Buffer, off int64) error {
	priorities, err := pointAt("point at priorities", b, off, r.ballot.n, 4)
	if err != nil {
		return err
	}
	if err := r.leave(); err != nil {
		return err
	}
	r.rank(priorities, kernels.TallyPriorities)
	return nil
}

// rank sets the arguments of the priorities, and the launch shape by the bytes to read.
func (r *Round) rank(priorities device.Arg, flags uint32) {
	p := &r.ballot
	r.args.Priorities, r.args.Flags = priorities, flags
	p.geometry = r.opts.Geometry
	if p.geometry == (device.Geometry{}) {
		p.geometry = geometry(r.dev, ballotBytes(p.n, r.opts.Packed)+
			(r.opts.Weights.bytes()+4*int64(flags&kernels.TallyPriorities))*int64(p.n))
	}
}

const (
	threads = 512 // a block
	// inFlight is the number of bytes that a thread reads at once: four loads of 16.
	inFlight = 64
	// perCore blocks run on a multiprocessor at once. Two of 512 threads with four loads in flight
	// read at full rate on an H200; more blocks were slower, and more have to be merged.
	perCore = 2
	// quarters of inFlight, in fourths, is the share of a thread where there is little to read:
	// more blocks, which wait less.
	quarters = 1
)

// geometry returns the shape of a launch that reads bytes: no thread is without work.
func geometry(d device.Device, bytes int64) device.Geometry {
	const share = threads * inFlight * quarters / 4
	blocks := (bytes + share - 1) / share
	return device.Geometry{
		Grid:  int(min(max(blocks, 1), int64(perCore*d.Properties().Multiprocessors))),
		Block: threads,
	}
}

// idle waits for a launch whose Decide was cancelled, before its inputs are overwritten.
func (r *Round) idle() error {
	if err := r.leave(); err != nil {
		return err
	}
	return r.ballot.catchUp(context.Background(), r.stream)
}

// Decide counts the ballots, finds the leader, decides by the rule, and closes the round after the
// last. It is one launch and one wait: the result arrives in host memory. Cancelling ctx ends the
// wait, not the launch: the round may be closed all the same, and the next Decide then closes a
// later one.
func (r *Round) Decide(ctx context.Context) (consensus.Decision, error) { return r.decide(ctx, next) }

// DecideAs is Decide for a round of this number. Numbers only grow: a number that is not above the
// last round is consensus.ErrRound, and the decision is void.
func (r *Round) DecideAs(ctx context.Context, round uint64) (consensus.Decision, error) {
	if round == next {
		return consensus.Decision{}, fmt.Errorf("decide round 0: rounds count from 1: %w", consensus.ErrRound)
	}
	return r.decide(ctx, round)
}

func (r *Round) decide(ctx context.Context, round uint64) (consensus.Decision, error) {
	p := &r.ballot
	if err := r.checkWeights(); err != nil {
		return consensus.Decision{}, err
	}
	served, err := r.ask(ctx, round)
	if err == nil && !served {
		err = p.hold(ctx, r.stream, r.kernel, round)
	}
	if err != nil {
		return consensus.Decision{}, err
	}
	return p.decision(r.opts.Candidates), nil
}

func (p *poll) decision(candidates int) consensus.Decision {
	d := consensus.Decision{Round: p.seen, Winner: consensus.None, Counts: make([]uint64, candidates)}
	var leader consensus.Leader
	var winner uint32
	if p.record {
		w := p.words
		d.Total, d.Abstentions, d.Invalid, d.BadWeights = w[kernels.ResultTotal], w[kernels.ResultAbstain],
			w[kernels.ResultInvalid], w[kernels.ResultBad]
		copy(d.Counts, w[kernels.ResultCounts:])
		winner = uint32(w[kernels.ResultWinner])
		leader = consensus.Leader{
			Agent: w[kernels.ResultWinner] >> 32, Priority: uint32(w[kernels.ResultPriority]),
			Elected: true,
		}
	} else {
		v := p.values
		d.Total, d.Abstentions, d.Invalid = uint64(p.n), uint64(v[kernels.ReplyAbstain]),
			uint64(v[kernels.ReplyInvalid])
		for c := range d.Counts {
			d.Counts[c] = uint64(v[kernels.ReplyCounts+c])
		}
		winner = v[kernels.ReplyWinner]
		leader = consensus.Leader{
			Agent: uint64(v[kernels.ReplyLeader]), Priority: v[kernels.ReplyPriority],
			Elected: true,
		}
	}
	d.QuorumMet = p.flags()&kernels.ResultMet != 0
	if winner != kernels.NoDecision {
		d.Winner = int(winner)
	}
	if p.flags()&kernels.ResultHasLeader != 0 {
		d.Leader = leader
	}
	return d
}

// Last is the number of the last round that this Round has closed, 0 before the first.
func (r *Round) Last() uint64 { return r.ballot.seen }

// Close waits for a launch under way and releases the memory. A second call does nothing.
func (r *Round) Close() error { return closeAll(&r.close) }
