package fusion

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// teamBytes is the most memory of a device in which a Team gathers nodes: twice the staging of a
// collective, so that its calls stay long, and little compared with the nodes.
const teamBytes = 64 << 20

// Team merges the nodes of Fusers on several devices without the host: a Merger's round in which
// the Fuser of rank r is shard r. The nodes are gathered on every device, which adds them up in
// float64 in the order of the ranks and rounds once: the bits of Total.Nodes. It is used by one
// goroutine at a time, and so are its Fusers. Its owner closes it before the Fusers, the collective
// and the devices.
type Team struct {
	all    device.Collective
	word   *consensus.Word
	fusers []*Fuser
	ranks  []teamRank
	places []device.Place
	chunk  int    // nodes that are gathered at a time
	round  uint64 // of the total; 0: there is none
	torn   bool   // a failed merge may still run
	close  []func() error
}

type teamRank struct {
	stream        device.Stream
	fold          device.Kernel
	parts         device.Buffer // of all ranks
	sums, tallies device.Buffer // the total
	faults        device.Buffer
}

// NewTeam makes a team of one Fuser a device of c, in the order of its ranks, all of one shape.
// Rounds are closed on word, which others may share. On each device it has memory for the nodes
// once more and up to 64 MiB. c and the Fusers stay the caller's.
func NewTeam(c device.Collective, word *consensus.Word, fusers []*Fuser) (t *Team, err error) {
	devices := c.Devices()
	if len(fusers) != len(devices) {
		return nil, fmt.Errorf("team of %d fusers on %d devices: %w", len(fusers), len(devices), ErrShard)
	}
	for rank, f := range fusers {
		switch {
		case f == nil || f.dev != devices[rank]:
			return nil, fmt.Errorf("team: fuser %d is not of device %d: %w", rank, rank, device.ErrInvalidArgument)
		case f.opts.Nodes != fusers[0].opts.Nodes || f.opts.Dim != fusers[0].opts.Dim:
			return nil, fmt.Errorf("team: fuser %d has %d nodes of %d values, fuser 0 has %d of %d: %w", rank,
				f.opts.Nodes, f.opts.Dim, fusers[0].opts.Nodes, fusers[0].opts.Dim, ErrLength)
		}
	}
	t = &Team{all: c, word: word, fusers: fusers}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	o := &fusers[0].opts
	t.chunk = min(o.Nodes, max(1, teamBytes/len(devices)/int(t.bytes(1))))
	for _, d := range devices {
		var r teamRank
		if r.stream, err = d.NewStream(); err != nil {
			return t, err
		}
		t.close = append(t.close, r.stream.Close)
		if r.fold, err = d.Kernel("fuse_fold"); err != nil {
			return t, err
		}
		for _, m := range []struct {
			to    *device.Buffer
			bytes int64
		}{
			{&r.parts, int64(len(devices)) * t.bytes(t.chunk)},
			{&r.sums, fusers[0].sums.Size()},
			{&r.tallies, fusers[0].tallies.Size()},
			{&r.faults, 4},
		} {
			if *m.to, err = d.Alloc(m.bytes, "fusion"); err != nil {
				return t, err
			}
			t.close = append(t.close, (*m.to).Close)
		}
		t.ranks = append(t.ranks, r)
		t.places = append(t.places, device.Place{Stream: r.stream, Buffer: r.parts})
	}
	return t, nil
}

func (t *Team) rowBytes() int64 { return 4 * int64(t.fusers[0].opts.Dim) }

const tallyBytes = 8 * kernels.FuseTallyPair

func (t *Team) bytes(nodes int) int64 { return int64(nodes) * (t.rowBytes() + tallyBytes) }

// Merge closes a round with the present nodes; every device then has their total. The nodes of the
// Fusers do not change. It is ErrRound if the number is not above the last closed round or another
// caller has closed the round, ErrValue if a sum is not finite, and ErrOverflow if weights do not
// fit 64 bits. After an error the round is not closed, and there is no total. Cancelling ctx ends
// the wait.
func (t *Team) Merge(ctx context.Context, round uint64) error {
	seen := t.word.Load()
	if round <= seen {
		return fmt.Errorf("merge round %d after round %d: %w", round, seen, ErrRound)
	}
	if err := t.settle(ctx); err != nil {
		return fmt.Errorf("merge round %d: %w", round, err)
	}
	t.round, t.torn = 0, true
	if err := t.fold(ctx); err != nil {
		return fmt.Errorf("merge round %d of %d devices: %w", round, len(t.ranks), err)
	}
	t.torn = false
	if !t.word.Elect(seen, round) {
		return fmt.Errorf("merge round %d after round %d: %w", round, t.word.Load(), ErrRound)
	}
	t.round = round
	return nil
}

// settle waits for the work of a failed merge, and for the Fusers.
func (t *Team) settle(ctx context.Context) error {
	if t.torn {
		if err := t.sync(ctx); err != nil {
			return err
		}
		t.torn = false
	}
	for _, f := range t.fusers {
		if err := f.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *Team) sync(ctx context.Context) error {
	for i := range t.ranks {
		if err := t.ranks[i].stream.Sync(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *Team) fold(ctx context.Context) error {
	for i := range t.ranks {
		r := &t.ranks[i]
		if err := r.stream.Fill(r.faults, 0, 4, 0); err != nil {
			return err
		}
	}
	nodes := t.fusers[0].opts.Nodes
	for first := 0; first < nodes; first += t.chunk {
		if err := t.part(ctx, first, min(t.chunk, nodes-first)); err != nil {
			return err
		}
	}
	if err := t.sync(ctx); err != nil {
		return err
	}
	for i := range t.ranks {
		found := make([]uint32, 1)
		if err := t.ranks[i].faults.Read(0, device.Bytes(found)); err != nil {
			return err
		}
		switch {
		case found[0]&kernels.FoldOverflow != 0:
			return ErrOverflow
		case found[0]&kernels.FoldValue != 0:
			return ErrValue
		}
	}
	return nil
}

func (t *Team) part(ctx context.Context, first, n int) error {
	size, row := t.bytes(n), t.rowBytes()
	from, sums := int64(first), row*int64(n)
	for rank := range t.ranks {
		r, f := &t.ranks[rank], t.fusers[rank]
		at := int64(rank) * size
		if err := r.stream.Copy(r.parts, at, f.sums, from*row, sums); err != nil {
			return err
		}
		if err := r.stream.Copy(r.parts, at+sums, f.tallies, from*tallyBytes, int64(n)*tallyBytes); err != nil {
			return err
		}
	}
	if err := t.all.Gather(ctx, size, t.places); err != nil {
		return err
	}
	for rank := range t.ranks {
		r := &t.ranks[rank]
		if err := r.stream.Launch(r.fold, r.fold.Cover(sums/16), kernels.FuseFoldArgs{
			Parts: device.Range(r.parts, 0, int64(len(t.ranks))*size), Vectors: uint32(size / 16),
			Ranks: uint32(len(t.ranks)), Nodes: uint32(n), Dim: uint32(t.fusers[0].opts.Dim),
			Sums: device.Range(r.sums, from*row, sums), Faults: device.Ptr(r.faults),
			Tallies: device.Range(r.tallies, from*tallyBytes, int64(n)*tallyBytes),
		}.Args()...); err != nil {
			return err
		}
	}
	return nil
}

func (t *Team) total(what string) error {
	if t.round == 0 {
		return fmt.Errorf("%s: no round is merged: %w", what, ErrRound)
	}
	return nil
}

// Nodes copies the total of the last merge to host memory: the same as Total.Nodes of a Merger, and
// the partial of this host in a round over several hosts. The caller owns the result.
func (t *Team) Nodes() (Nodes, error) {
	if err := t.total("nodes of a team"); err != nil {
		return Nodes{}, err
	}
	r := &t.ranks[0]
	return readNodes(r.sums, r.tallies, t.fusers[0].opts.Nodes, t.fusers[0].opts.Dim)
}

// Adopt replaces the nodes of every Fuser by the total of the last merge, as Fuser.Write does, on
// the devices. After an error some Fusers may have the total.
func (t *Team) Adopt(ctx context.Context) error {
	err := t.total("adopt")
	if err == nil {
		err = t.settle(ctx)
	}
	if err != nil {
		return err
	}
	bound := uint64(0)
	for _, f := range t.fusers {
		sum, carry := bits.Add64(bound, f.bound, 0)
		if bound = sum; carry != 0 {
			bound = math.MaxUint64
			break
		}
	}
	for rank, f := range t.fusers {
		r := &t.ranks[rank]
		if err := errors.Join(f.stream.Copy(f.sums, 0, r.sums, 0, r.sums.Size()),
			f.stream.Copy(f.tallies, 0, r.tallies, 0, r.tallies.Size())); err != nil {
			return fmt.Errorf("adopt round %d on device %d: %w", t.round, rank, err)
		}
		f.fresh, f.bound = false, bound
	}
	for rank, f := range t.fusers {
		if err := f.stream.Sync(ctx); err != nil {
			return fmt.Errorf("adopt round %d on device %d: %w", t.round, rank, err)
		}
	}
	return nil
}

// Close waits for work under way and releases the memory. A second call does nothing.
func (t *Team) Close() error {
	var errs []error
	for _, fn := range t.close {
		errs = append(errs, fn()) // a stream before what it uses
	}
	t.close = nil
	return errors.Join(errs...)
}
