package round

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// GroupOptions describe all rounds of Groups.
type GroupOptions struct {
	// Candidates is the number of candidates, 1..256, of every group; of packed ballots 1..16.
	Candidates int
	// Packed reports whether a ballot is half a byte; see consensus. A group may begin in the
	// middle of a byte.
	Packed bool
	// Rule decides in every group; the zero value is plurality.
	Rule consensus.Rule
	// Size is the number of agents of each of Count groups. Or Size is 0, and group g has the
	// agents Starts[g]..Starts[g+1]-1, where Starts rises from 0; Count is then len(Starts)-1.
	// Groups may be empty.
	Size, Count int
	Starts      []uint32
	// Counts reports whether Counts will be called: 4*(Candidates+2) bytes a group.
	Counts bool
	// Reserve reports whether device memory is kept for Cast; else ballots come by Point only.
	Reserve bool
	// Geometry is the shape of the launch; zero: chosen for the device and the number of ballots.
	Geometry device.Geometry
}

// Groups is a series of rounds in which each of many groups of agents decides for itself: one
// launch and one round number for all of them. Ballots stand group behind group, without a gap. It
// is used by one goroutine at a time. Its owner closes it before the device.
type Groups struct {
	opts                             GroupOptions
	n                                int // ballots of all groups
	stream                           device.Stream
	kernel                           device.Kernel
	ballots, winners, leaders, table device.Buffer
	ballot                           poll
	args                             kernels.TallyGroupsArgs
	close                            []func() error
}

// GroupDecision is the outcome of a round of groups.
type GroupDecision struct {
	Round uint64
	// Groups is the number of groups, Decided the number of groups in which a candidate won.
	Groups, Decided int
}

// NewGroups makes a series of rounds whose first has the number 1, and no ballots.
func NewGroups(d device.Device, opts GroupOptions) (g *Groups, err error) {
	if err := checkCandidates("groups", opts.Candidates, opts.Packed); err != nil {
		return nil, err
	}
	if err := opts.Rule.Check(); err != nil {
		return nil, err
	}
	n, err := opts.measure()
	if err != nil {
		return nil, err
	}
	g = &Groups{opts: opts, n: n}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
			g = nil
		}
	}()
	if g.kernel, err = d.Kernel(kernels.TallyGroupsName(opts.Candidates, opts.Packed)); err != nil {
		return g, err
	}
	if g.stream, err = d.NewStream(); err != nil {
		return g, err
	}
	g.close = append(g.close, g.stream.Close)
	if err = g.ballot.open(d, 0, &g.close); err != nil {
		return g, err
	}
	return g, g.reserve(d)
}

// measure checks the groups and returns the number of their ballots.
func (o *GroupOptions) measure() (n int, err error) {
	wrong := func(why string) (int, error) {
		return 0, fmt.Errorf("%d groups of %d agents, %d starts: %s: %w", o.Count, o.Size, len(o.Starts), why,
			device.ErrInvalidArgument)
	}
	if o.Size != 0 {
		if o.Size < 0 || o.Count < 0 || len(o.Starts) != 0 || o.Count > math.MaxInt32 || o.Count > 0 &&
			o.Size > MaxBallots/o.Count {
			return wrong("either sizes or starts, and at most 2^32-1 agents")
		}
		return o.Size * o.Count, nil
	}
	if len(o.Starts) == 0 || o.Starts[0] != 0 || len(o.Starts)-1 > math.MaxInt32 || o.Count != 0 &&
		o.Count != len(o.Starts)-1 {
		return wrong("starts begin with 0")
	}
	o.Count = len(o.Starts) - 1
	for i, s := range o.Starts[1:] {
		if s < o.Starts[i] {
			return wrong("starts do not rise")
		}
	}
	return int(o.Starts[o.Count]), nil
}

func (g *Groups) reserve(d device.Device) (err error) {
	o, p := &g.opts, &g.ballot
	groups := 4 * int64(o.Count)
	if g.winners, err = alloc(d, groups, &g.close); err != nil {
		return err
	}
	if g.leaders, err = alloc(d, groups, &g.close); err != nil {
		return err
	}
	rows, flags := p.scratch, uint32(0)
	if o.Counts {
		if g.table, err = alloc(d, groups*int64(o.Candidates+2), &g.close); err != nil {
			return err
		}
		rows, flags = g.table, kernels.TallyRows
	}
	starts := p.scratch
	if o.Size == 0 {
		if starts, err = alloc(d, int64(4*len(o.Starts)), &g.close); err != nil {
			return err
		}
		if err = starts.Write(0, device.Bytes(o.Starts)); err != nil {
			return err
		}
		o.Starts = slices.Clone(o.Starts)
	}
	if o.Reserve {
		if g.ballots, err = alloc(d, g.bytes(), &g.close); err != nil {
			return err
		}
	}
	g.args = kernels.TallyGroupsArgs{
		N: uint64(g.n), Candidates: uint32(o.Candidates), Starts: device.Ptr(starts), Size: uint32(o.Size),
		Groups: uint32(o.Count), Priorities: device.Ptr(p.scratch), Flags: flags, RuleArgs: rule(o.Rule),
		Winners: device.Ptr(g.winners), Leaders: device.Ptr(g.leaders), Rows: device.Ptr(rows),
		Result: device.Mapped(p.result, 0, p.result.Size()),
	}
	p.launches(&g.args.ClosedArgs, g.args.AppendTo)
	if p.geometry = o.Geometry; p.geometry == (device.Geometry{}) {
		p.geometry = groupGeometry(d, g.n, o)
	}
	return nil
}

// groupGeometry is the shape of a launch: a thread for each small group, a warp for each large one
// or where there are many candidates. Unlike the tally of one electorate it gains from more blocks,
// which even out groups of unequal size.
func groupGeometry(d device.Device, n int, o *GroupOptions) device.Geometry {
	lanes := int64(o.Count)
	if o.Candidates > kernels.PlaneCandidates || int64(n) > lanes*kernels.TallyLaneBallots {
		lanes *= 32
	}
	const (
		block   = 256 // groups of a few lines are exchanged in a block's memory of that size
		perCore = 4   // 25.2 us for a million groups of 64 on an H200; three gave 25.2 too, six 27.9
	)
	blocks := (lanes + block - 1) / block
	return device.Geometry{Grid: int(min(max(blocks, 1), int64(perCore*d.Properties().Multiprocessors))), Block: block}
}

// Len is the number of ballots of all groups.
func (g *Groups) Len() int { return g.n }

func (g *Groups) bytes() int64 { return ballotBytes(g.n, g.opts.Packed) }

// Cast copies the ballots of later rounds to the device: one for each agent, group behind group, a
// byte each, or two a byte with Packed, in consensus.PackedLen(Len()) bytes. It needs Reserve and
// drops priorities. Cast does not keep the slice.
func (g *Groups) Cast(ballots []byte) error {
	if g.ballots == nil || int64(len(ballots)) != g.bytes() {
		return fmt.Errorf("cast ballots of %d agents in %d bytes, which take %d: %w", g.n, len(ballots), g.bytes(),
			device.ErrInvalidArgument)
	}
	if err := g.ballot.catchUp(context.Background(), g.stream); err != nil {
		return err
	}
	if err := g.ballots.Write(0, ballots); err != nil {
		return err
	}
	return g.Point(g.ballots, 0)
}

// Point sets the ballots of later rounds, in device memory: one for each agent from the byte at off
// on, which may be any. b must stay open, and the stream that writes it must be synced before
// Decide. Point drops priorities.
func (g *Groups) Point(b device.Buffer, off int64) error {
	if b == nil {
		return fmt.Errorf("point at no ballots: %w", device.ErrInvalidArgument)
	}
	if err := device.CheckRange("point at ballots", off, g.bytes(), b.Size()); err != nil {
		return err
	}
	g.ballot.n = g.n
	g.args.Ballots, g.args.First, g.args.Priorities = device.Ptr(b), uint64(off), device.Ptr(g.ballot.scratch)
	g.args.Flags &^= kernels.TallyPriorities
	return nil
}

// PointPriorities takes the agents' priorities from device memory: a uint32 for each ballot from
// the byte at off on, a multiple of 16. Without priorities the first agent of each group leads it.
func (g *Groups) PointPriorities(b device.Buffer, off int64) error {
	priorities, err := pointAt("point at priorities", b, off, g.n, 4)
	if err != nil {
		return err
	}
	g.args.Priorities = priorities
	g.args.Flags |= kernels.TallyPriorities
	return nil
}

// Decide decides every group and closes the round after the last; see Round.Decide. The decisions
// stay on the device: Winners, Leaders and Counts fetch them, and are of the last round that was
// closed.
func (g *Groups) Decide(ctx context.Context) (GroupDecision, error) { return g.decide(ctx, next) }

// DecideAs is Decide for a round of this number, which is consensus.ErrRound unless it is above the
// last. The decisions on the device are void then.
func (g *Groups) DecideAs(ctx context.Context, round uint64) (GroupDecision, error) {
	if round == next {
		return GroupDecision{}, fmt.Errorf("decide round 0: rounds count from 1: %w", consensus.ErrRound)
	}
	return g.decide(ctx, round)
}

func (g *Groups) decide(ctx context.Context, round uint64) (GroupDecision, error) {
	p := &g.ballot
	if err := p.hold(ctx, g.stream, g.kernel, round); err != nil {
		return GroupDecision{}, err
	}
	return GroupDecision{Round: p.seen, Groups: g.opts.Count, Decided: int(p.values[kernels.ReplyAbstain])}, nil
}

// Winners writes the winner of each group to dst, or consensus.None; dst has an element for each
// group.
func (g *Groups) Winners(dst []int32) error { return fetch(g, g.winners, dst, g.opts.Count) }

// Leaders writes the leader of each group to dst, as its position in the group, or -1 where the
// group is empty.
func (g *Groups) Leaders(dst []int32) error {
	if g.args.Flags&kernels.TallyPriorities != 0 {
		return fetch(g, g.leaders, dst, g.opts.Count)
	}
	if len(dst) != g.opts.Count { // all priorities are equal: the device stores no leaders
		return fmt.Errorf("fetch %d elements into %d: %w", g.opts.Count, len(dst), device.ErrInvalidArgument)
	}
	for i := range dst {
		dst[i] = 0
		if g.empty(i) {
			dst[i] = -1
		}
	}
	return nil
}

func (g *Groups) empty(i int) bool {
	if g.opts.Size != 0 {
		return false
	}
	return g.opts.Starts[i] == g.opts.Starts[i+1]
}

// Counts writes a row for each group to dst: the votes for each candidate, the abstentions, the
// invalid ballots. It needs the option Counts; dst has Candidates+2 elements for each group.
func (g *Groups) Counts(dst []uint32) error {
	if g.table == nil {
		return fmt.Errorf("counts of groups without the option Counts: %w", device.ErrInvalidArgument)
	}
	return fetch(g, g.table, dst, g.opts.Count*(g.opts.Candidates+2))
}

func fetch[T device.Scalar](g *Groups, b device.Buffer, dst []T, n int) error {
	if len(dst) != n {
		return fmt.Errorf("fetch %d elements into %d: %w", n, len(dst), device.ErrInvalidArgument)
	}
	if err := g.stream.Sync(context.Background()); err != nil {
		return err
	}
	return b.Read(0, device.Bytes(dst))
}

// Last is the number of the last round that was closed, 0 before the first.
func (g *Groups) Last() uint64 { return g.ballot.seen }

// Close waits for a launch under way and releases the memory. A second call does nothing.
func (g *Groups) Close() error { return closeAll(&g.close) }
