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

// The bounds of Options.Resident.
const (
	MinResident = time.Millisecond
	MaxResident = time.Second
)

// resident is a kernel that stays on the device between the rounds of one electorate; see
// kernels.TallyResidentArgs.
type resident struct {
	kernel device.Kernel
	stream device.Stream
	life   time.Duration
	bell   device.HostBuffer
	words  []uint64
	up     bool      // launched, and not told to end
	until  time.Time // a new kernel then
}

func (o *Options) checkResident() error {
	if o.Resident == 0 {
		return nil
	}
	if o.Resident < MinResident || o.Resident > MaxResident {
		return fmt.Errorf("round: a kernel resident for %v, which is not within %v..%v: %w", o.Resident, MinResident,
			MaxResident, device.ErrInvalidArgument)
	}
	if o.Packed || o.Weights != Unweighted || o.Candidates > kernels.PlaneCandidates {
		return fmt.Errorf("round: a resident kernel for %d candidates, packed %v, weights %d: at most %d in ballots "+
			"of a byte without weights: %w",
			o.Candidates, o.Packed, o.Weights, kernels.PlaneCandidates, device.ErrInvalidArgument)
	}
	return nil
}

// reside makes what a resident kernel needs. No kernel stays on the host device, whose launches
// cost nothing, and on chips without clusters of blocks, where one block alone would count.
func (r *Round) reside(d device.Device) (err error) {
	if r.opts.Resident == 0 || d.Properties().ComputeMajor < 9 {
		return nil
	}
	s := &resident{life: r.opts.Resident}
	if s.kernel, err = d.Kernel(kernels.TallyResidentName(r.opts.Candidates)); err != nil {
		return err
	}
	if s.stream, err = d.NewStream(); err != nil {
		return err
	}
	r.close = append([]func() error{r.leave, s.stream.Close}, r.close...) // before all that the kernel uses
	if s.bell, err = d.AllocHost(8*kernels.DoorbellWords, "consensus"); err != nil {
		return err
	}
	r.close = append(r.close, s.bell.Close)
	clear(s.bell.Bytes())
	s.words = device.Of[uint64](s.bell.Bytes())
	r.resident = s
	return nil
}

// ring stores a request where the kernel polls. The words may become visible in any order.
func (s *resident) ring(number uint32, seen uint64, steps uint32) {
	for i, v := range [kernels.DoorbellWords]uint32{
		kernels.DoorbellSeen: uint32(seen), kernels.DoorbellSeenHigh: uint32(seen >> 32), kernels.DoorbellSteps: steps,
	} {
		atomic.StoreUint64(&s.words[i], uint64(v)<<32|uint64(number))
	}
}

// leave ends the resident kernel and waits for that. While a round is under way that nobody waits
// for any more, there is no ring: it would take the place of the one that the kernel may still wait
// for. The kernel then ends when its life is over.
func (r *Round) leave() error {
	s := r.resident
	if s == nil || !s.up {
		return nil
	}
	s.up = false
	if !r.ballot.unsure {
		r.ballot.sequence++
		s.ring(r.ballot.sequence, 0, 0)
	}
	return s.stream.Sync(context.Background()) // no longer than its life
}

// enter launches the kernel, which serves rings from the next number on.
func (r *Round) enter() error {
	s := r.resident
	args := kernels.TallyResidentArgs{
		BallotsArgs: r.args.BallotsArgs, Doorbell: device.Mapped(s.bell, 0, s.bell.Size()),
		Life: uint32(s.life.Microseconds()), Sequence: r.ballot.sequence, Word: r.args.Word, Result: r.args.Result,
	}
	start := time.Now()
	g := device.Geometry{Grid: kernels.ResidentBlocks, Block: threads}
	if err := s.stream.Launch(s.kernel, g, args.Args()...); err != nil {
		return err
	}
	s.up, s.until = true, start.Add(s.life*3/4) // a later ring might not be heard
	return nil
}

// ask closes a round through the resident kernel. served is false when it must be closed by a
// launch.
func (r *Round) ask(ctx context.Context, round uint64) (served bool, err error) {
	s, p := r.resident, &r.ballot
	if s == nil || p.n < 0 {
		return false, nil
	}
	if p.unsure {
		if err := r.idle(); err != nil {
			return false, err
		}
	}
	if round == next {
		round = p.seen + 1
	}
	if round <= p.seen || round-p.seen > math.MaxUint32 {
		return false, r.leave()
	}
	if s.up && time.Now().After(s.until) {
		if err := r.leave(); err != nil {
			return false, err
		}
	}
	if !s.up {
		if err := r.enter(); err != nil {
			return false, fmt.Errorf("decide round %d: resident kernel: %w", round, err)
		}
	}
	p.sequence++
	s.ring(p.sequence, p.seen, uint32(round-p.seen))
	p.unsure = true
	if err := p.await(ctx, s.stream); err != nil {
		if !errors.Is(err, device.ErrInvalidArgument) {
			return false, fmt.Errorf("decide round %d: %w", round, err)
		}
		s.up, p.unsure = false, false // the kernel had ended: the host was held up for long before it rang
		return false, nil
	}
	p.unsure = false
	before := p.seen
	p.seen = p.round()
	if p.flags()&kernels.ResultElected == 0 {
		return false, fmt.Errorf("decide round %d after round %d: %w", round, max(before, p.seen), consensus.ErrRound)
	}
	return true, nil
}
