package round

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// TeamOptions are what all rounds of a Team have in common.
type TeamOptions struct {
	// Candidates is the number of candidates, 1..256, of every shard.
	Candidates int
	// Shards is the number of shards of each device, by rank: 0 or more, and at least one in total.
	// They are numbered from 0, starting with rank 0.
	Shards []int
	// Rule decides; the zero value is plurality.
	Rule consensus.Rule
}

// Team is a Merger over several devices: a shard is counted on its own device, the records are
// gathered, and a launch on the first device decides. It is the launch of a Merger over the same
// records, and so the decision is a Merger's. It is used by one goroutine at a time, and so are the
// Rounds that it counts. Its owner closes it before the collective and the devices.
type Team struct {
	all     device.Collective
	mergers []*Merger // by rank, each with room for the records of all: slots of them a rank
	places  []device.Place
	slots   int
	firsts  []int // by rank: the number of its first shard; behind the last, the number of shards
	torn    bool  // work of a gather that failed may be under way
}

// NewTeam makes a team with no open round over the devices of c, which stays the caller's. The last
// closed round has the number 0.
func NewTeam(c device.Collective, opts TeamOptions) (t *Team, err error) {
	devices := c.Devices()
	if len(opts.Shards) != len(devices) || slices.Min(opts.Shards) < 0 {
		return nil, fmt.Errorf("team of %v shards on %d devices: %w", opts.Shards, len(devices), consensus.ErrShard)
	}
	t = &Team{all: c, slots: slices.Max(opts.Shards), firsts: []int{0}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	for rank, d := range devices {
		t.firsts = append(t.firsts, t.firsts[rank]+opts.Shards[rank])
		m, err := NewMerger(d, MergeOptions{
			Candidates: opts.Candidates, Shards: len(devices) * t.slots,
			Rule: opts.Rule,
		})
		if err != nil {
			return t, err
		}
		t.mergers = append(t.mergers, m)
		t.places = append(t.places, device.Place{Stream: m.stream, Buffer: m.records})
	}
	return t, nil
}

// slot is a shard's rank and its number there: a rank's records stand together, since they are
// gathered.
func (t *Team) slot(shard int) (rank, slot int, err error) {
	if shard < 0 || shard >= t.firsts[len(t.firsts)-1] {
		return 0, 0, fmt.Errorf("partial of shard %d of %d: %w", shard, t.firsts[len(t.firsts)-1], consensus.ErrShard)
	}
	for rank = range t.mergers {
		if shard < t.firsts[rank+1] {
			break
		}
	}
	return rank, rank*t.slots + shard - t.firsts[rank], nil
}

// settle waits for what a call that failed has left under way, and learns what it has closed.
func (t *Team) settle(ctx context.Context) error {
	if t.torn {
		for _, m := range t.mergers {
			if err := m.stream.Sync(ctx); err != nil {
				return err
			}
		}
		t.torn = false
	}
	first := t.mergers[0]
	if err := first.ballot.catchUp(ctx, first.stream); err != nil {
		return err
	}
	for _, m := range t.mergers[1:] { // they launch nothing that closes a round
		m.ballot.seen = first.ballot.seen
	}
	return nil
}

// Open begins a round; see Merger.Open.
func (t *Team) Open(round uint64) error {
	if err := t.settle(context.Background()); err != nil {
		return err
	}
	for _, m := range t.mergers {
		if err := m.Open(round); err != nil {
			return err
		}
	}
	return nil
}

// Add takes a partial from elsewhere and reports whether it counts; see Merger.Add.
func (t *Team) Add(part consensus.Partial) (counted bool, err error) {
	rank, slot, err := t.slot(part.Shard)
	if err == nil {
		err = t.settle(context.Background())
	}
	if err != nil {
		return false, err
	}
	shard := part.Shard
	part.Shard = slot
	if counted, err = t.mergers[rank].Add(part); err != nil {
		err = fmt.Errorf("shard %d: %w", shard, err)
	}
	return counted, err
}

// Count lets r, which is of the shard's device, count its ballots as the shard's partial of the
// open round; see Merger.Count.
func (t *Team) Count(ctx context.Context, r *Round, shard int, first uint64) (counted bool, err error) {
	rank, slot, err := t.slot(shard)
	if err == nil {
		err = t.settle(ctx)
	}
	if err != nil {
		return false, err
	}
	if counted, err = t.mergers[rank].Count(ctx, r, slot, first); err != nil {
		err = fmt.Errorf("shard %d: %w", shard, err)
	}
	return counted, err
}

// Missing is the number of shards that the open round has not heard.
func (t *Team) Missing() int { return t.firsts[len(t.firsts)-1] - t.heard() }

func (t *Team) heard() (n int) {
	for _, m := range t.mergers {
		if m.round > 0 {
			n += m.opts.Shards - m.left
		}
	}
	return n
}

// Decide merges the partials of the open round, decides and closes it; see Merger.Decide.
func (t *Team) Decide(ctx context.Context) (consensus.Decision, error) {
	if err := t.settle(ctx); err != nil {
		return consensus.Decision{}, err
	}
	first := t.mergers[0]
	for _, m := range t.mergers {
		if err := m.stage(ctx); err != nil {
			return consensus.Decision{}, err
		}
	}
	if err := t.all.Gather(ctx, 8*int64(t.slots)*int64(first.stride), t.places); err != nil {
		t.torn = true
		return consensus.Decision{}, fmt.Errorf("decide round %d: %w", first.round, err)
	}
	d, err := first.decide(ctx, t.heard())
	if err != nil {
		return consensus.Decision{}, err
	}
	for _, m := range t.mergers {
		m.learn()
		m.ballot.seen = first.round
	}
	return d, nil
}

// Last is the number of the last round that this Team has closed, 0 before the first.
func (t *Team) Last() uint64 { return t.mergers[0].Last() }

// Close waits for work under way and releases the memory. A second call does nothing.
func (t *Team) Close() error {
	var errs []error
	for _, m := range t.mergers {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
