package round

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// MergeOptions describe all rounds of a Merger.
type MergeOptions struct {
	// Candidates is the number of candidates, 1..256, of every shard.
	Candidates int
	// Shards is the number of shards, numbered from 0.
	Shards int
	// Rule decides; the zero value is plurality.
	Rule consensus.Rule
	// Geometry is the shape of the launch; zero: chosen for the device and the number of shards.
	Geometry device.Geometry
}

// Merger is a consensus.Poll on a device: it merges the partial tallies of shards, round after
// round, and the merged decision equals the decision of one big tally. A partial comes from a Round
// of the same device, which stores it for the Merger without a wait (Count), or from anywhere as a
// consensus.Partial (Add). One launch merges them, decides, and closes the round on the Merger's
// round word. It is used by one goroutine at a time, and so are the Rounds that it counts. Its
// owner closes it before the device.
//
// For a few shards whose decisions are in host memory a consensus.Poll is quicker; a Merger is for
// many shards, and for Rounds of the same device.
type Merger struct {
	opts    MergeOptions
	dev     device.Device
	stream  device.Stream
	kernel  device.Kernel
	counted device.Event      // where the last Count ends in its stream
	records device.Buffer     // [shards][stride] words
	staged  device.HostBuffer // the records of Add, until Decide
	words   []uint64          // staged
	pieces  []device.Piece    // staged records that Decide uploads
	stride  int
	firsts  []uint64 // of the shards that Count
	placed  []bool   // the shard's record on the device has its first
	heard   []bool
	left    int
	round   uint64 // open; 0: none
	members []member
	ballot  poll
	args    kernels.TallyMergeArgs
	close   []func() error
}

// member is a Round whose launch stores a partial, with the launch's number.
type member struct {
	of       *Round
	sequence uint32
}

// NewMerger makes a merger with no open round. The last closed one has the number 0.
func NewMerger(d device.Device, opts MergeOptions) (m *Merger, err error) {
	if opts.Shards < 1 || opts.Shards > math.MaxInt32 {
		return nil, fmt.Errorf("merger of %d shards: %w", opts.Shards, consensus.ErrShard)
	}
	if _, err := consensus.NewTally(opts.Candidates); err != nil {
		return nil, err
	}
	if err := opts.Rule.Check(); err != nil {
		return nil, err
	}
	m = &Merger{
		opts: opts, dev: d, stride: kernels.RecordWords(opts.Candidates), heard: make([]bool, opts.Shards),
		firsts: make([]uint64, opts.Shards),
	}
	m.placed = make([]bool, opts.Shards)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	if m.kernel, err = d.Kernel("tally_merge"); err != nil {
		return m, err
	}
	if m.stream, err = d.NewStream(); err != nil {
		return m, err
	}
	m.close = append(m.close, m.stream.Close)
	if m.counted, err = d.NewEvent(); err != nil {
		return m, err
	}
	m.close = append(m.close, m.counted.Close)
	p := &m.ballot
	p.record = true
	if err = p.open(d, opts.Candidates+1, &m.close); err != nil { // and the word of the leader's id
		return m, err
	}
	size := 8 * int64(m.stride) * int64(opts.Shards)
	if m.records, err = alloc(d, size, &m.close); err != nil {
		return m, err
	}
	if err = m.records.Fill(0, size, 0); err != nil { // of round 0, which is none
		return m, err
	}
	if m.staged, err = d.AllocHost(size, "consensus"); err != nil {
		return m, err
	}
	m.close = append(m.close, m.staged.Close)
	m.words = device.Of[uint64](m.staged.Bytes())
	m.args = kernels.TallyMergeArgs{
		Records: device.Ptr(m.records), Stride: uint32(m.stride), Shards: uint32(opts.Shards),
		Candidates: uint32(opts.Candidates), RuleArgs: rule(opts.Rule),
		Result: device.Mapped(p.result, 0, p.result.Size()),
	}
	p.launches(&m.args.ClosedArgs, m.args.AppendTo)
	if p.geometry = opts.Geometry; p.geometry == (device.Geometry{}) {
		p.geometry = device.Geometry{Grid: min(opts.Shards, perCore*d.Properties().Multiprocessors), Block: threads}
	}
	return m, nil
}

// Open begins a round and forgets the one before, whether it was decided or not. A number that is
// not above the open and the last closed round is consensus.ErrRound.
func (m *Merger) Open(round uint64) error {
	if err := m.idle(); err != nil {
		return err
	}
	if last := max(m.ballot.seen, m.round); round <= last {
		return fmt.Errorf("open round %d after round %d: %w", round, last, consensus.ErrRound)
	}
	m.round, m.left = round, m.opts.Shards
	clear(m.heard)
	m.pieces, m.members = m.pieces[:0], m.members[:0]
	m.ballot.n = m.opts.Shards
	return nil
}

// accepts reports whether a partial of a shard in a round counts. Late and repeated partials do not
// count and are no error.
func (m *Merger) accepts(shard int, round uint64) (bool, error) {
	switch {
	case shard < 0 || shard >= m.opts.Shards:
		return false, fmt.Errorf("partial of shard %d of %d: %w", shard, m.opts.Shards, consensus.ErrShard)
	case round > m.round:
		return false, fmt.Errorf("partial of round %d while %d is open: %w", round, m.round, consensus.ErrRound)
	}
	return round == m.round && round > m.ballot.seen && !m.heard[shard], nil
}

// Add takes a partial and reports whether it counts; see consensus.Poll.Add. The partial stays the
// caller's. Sums that do not fit are found by Decide.
func (m *Merger) Add(part consensus.Partial) (counted bool, err error) {
	if err := m.idle(); err != nil {
		return false, err
	}
	if counted, err = m.accepts(part.Shard, part.Round); err != nil || !counted {
		return false, err
	}
	t := &part.Tally
	if len(t.Counts) != m.opts.Candidates {
		return false, fmt.Errorf("partial of %d candidates of shard %d, for %d: %w", len(t.Counts), part.Shard,
			m.opts.Candidates, consensus.ErrCandidates)
	}
	if err := t.Check(); err != nil {
		return false, fmt.Errorf("partial of shard %d in round %d: %w", part.Shard, part.Round, err)
	}
	flags := uint64(kernels.ResultElected)
	if t.Leader.Elected {
		flags |= kernels.ResultHasLeader
	}
	at := part.Shard * m.stride
	record := m.words[at:][:m.stride]
	clear(record)
	record[kernels.ResultDone] = flags << 32
	record[kernels.ResultPriority] = uint64(t.Leader.Priority)
	record[kernels.ResultRound] = part.Round
	record[kernels.ResultTotal] = t.Total
	record[kernels.ResultAbstain] = t.Abstentions
	record[kernels.ResultInvalid] = t.Invalid
	record[kernels.ResultBad] = t.BadWeights
	copy(record[kernels.ResultCounts:], t.Counts)
	record[kernels.RecordFirst(m.opts.Candidates)] = t.Leader.Agent
	m.placed[part.Shard] = false
	off, n := 8*int64(at), 8*int64(m.stride)
	m.pieces = append(m.pieces, device.Piece{Buffer: m.records, Off: off, Host: m.staged, HostOff: off, Bytes: n})
	m.take(part.Shard)
	return true, nil
}

func (m *Merger) take(shard int) {
	m.heard[shard] = true
	m.left--
}

// Count lets r count its ballots as the shard's partial of the open round, and closes that round
// for r. first is the id in the swarm of the shard's first agent. It puts the launch into r's
// stream and waits for nothing; Decide is ordered behind it. Where r has closed that round before,
// or a later one, its partial does not count, and Decide is consensus.ErrRound. r is of the same
// device and has as many candidates. Like Add, it reports whether the partial counts.
func (m *Merger) Count(ctx context.Context, r *Round, shard int, first uint64) (counted bool, err error) {
	if r == nil || r.dev != m.dev || r.opts.Candidates != m.opts.Candidates || r.ballot.n < 0 {
		return false, fmt.Errorf("count shard %d: no ballots of a round of this device with %d candidates: %w", shard,
			m.opts.Candidates, device.ErrInvalidArgument)
	}
	if m.round == 0 {
		return false, fmt.Errorf("count shard %d before a round is open: %w", shard, consensus.ErrRound)
	}
	if err := r.checkWeights(); err != nil {
		return false, err
	}
	if err := m.ballot.catchUp(ctx, m.stream); err != nil {
		return false, err
	}
	if counted, err = m.accepts(shard, m.round); err != nil || !counted {
		return false, err
	}
	p := &r.ballot
	if err := r.leave(); err != nil {
		return false, err
	}
	if err := p.catchUp(ctx, r.stream); err != nil {
		return false, err
	}
	off := 8 * int64(shard) * int64(m.stride)
	if !m.placed[shard] || m.firsts[shard] != first {
		if err := m.records.Write(off+8*int64(kernels.RecordFirst(m.opts.Candidates)),
			device.Bytes([]uint64{first})); err != nil {
			return false, err
		}
		m.firsts[shard], m.placed[shard] = first, true
	}
	p.sequence++
	args := r.args
	args.Result = device.Range(m.records, off, 8*int64(kernels.ResultWords(m.opts.Candidates)))
	args.Flags |= kernels.TallyRecord
	args.Seen, args.Round, args.Sequence = p.seen, m.round, p.sequence
	if err := r.stream.Launch(r.kernel, p.geometry, r.list(&args, nil)...); err != nil {
		return false, fmt.Errorf("count shard %d in round %d: %w", shard, m.round, err)
	}
	p.unsure = true
	if err := errors.Join(r.stream.Record(m.counted), m.stream.Wait(m.counted)); err != nil {
		return false, fmt.Errorf("count shard %d in round %d: %w", shard, m.round, err)
	}
	m.members = append(m.members, member{r, p.sequence})
	m.take(shard)
	return true, nil
}

// Missing is the number of shards that the open round has not heard.
func (m *Merger) Missing() int { return m.left }

// Decide merges the partials of the open round, decides and closes it. Callers who want all shards
// wait until Missing is 0. When nothing is open, the round was decided before, or a shard that was
// counted has closed it before, it is consensus.ErrRound, and when the sums do not fit
// consensus.ErrOverflow; the round is not closed then. Cancelling ctx ends the wait, not the
// launch; see Round.Decide.
func (m *Merger) Decide(ctx context.Context) (consensus.Decision, error) {
	if err := m.stage(ctx); err != nil {
		return consensus.Decision{}, err
	}
	d, err := m.decide(ctx, m.opts.Shards-m.left)
	if err == nil {
		m.learn()
	}
	return d, err
}

// stage brings the partials that came by Add to the device, in the order of the stream.
func (m *Merger) stage(ctx context.Context) error {
	p := &m.ballot
	if err := p.catchUp(ctx, m.stream); err != nil {
		return err
	}
	if m.round <= p.seen { // 0 where none is open
		return fmt.Errorf("decide round %d after round %d: %w", m.round, p.seen, consensus.ErrRound)
	}
	if err := m.stream.UploadAll(m.pieces); err != nil {
		return fmt.Errorf("decide round %d: %w", m.round, err)
	}
	m.pieces = m.pieces[:0]
	return nil
}

// decide merges the records on the device; need of them are from the open round.
func (m *Merger) decide(ctx context.Context, need int) (consensus.Decision, error) {
	p := &m.ballot
	m.args.Need = uint32(need)
	if err := p.hold(ctx, m.stream, m.kernel, m.round); err != nil {
		if !p.unsure && errors.Is(err, consensus.ErrRound) {
			err = m.why(err, need)
		} else {
			p.unsure = true // the staged records may be on their way
		}
		return consensus.Decision{}, err
	}
	d := p.decision(m.opts.Candidates)
	if d.Leader.Elected {
		d.Leader.Agent = p.words[kernels.RecordFirst(m.opts.Candidates)]
	}
	return d, nil
}

// learn takes over what a decision says of the Rounds that were counted: all records have counted,
// so their launches have closed the round.
func (m *Merger) learn() {
	for _, r := range m.members {
		if b := &r.of.ballot; b.unsure && b.sequence == r.sequence {
			b.seen, b.unsure = m.round, false
		}
	}
	m.members = m.members[:0]
}

// why is the reason for which a launch has not closed its round.
func (m *Merger) why(err error, need int) error {
	flags, heard := m.ballot.flags(), int(m.ballot.words[kernels.ResultPriority]>>32)
	switch {
	case flags&kernels.ResultOverflow != 0:
		return fmt.Errorf("decide round %d of %d shards: %w", m.round, need, consensus.ErrOverflow)
	case flags&kernels.ResultTorn != 0:
		return fmt.Errorf("decide round %d of %d shards: %w", m.round, need, consensus.ErrSum)
	case heard < need:
		return fmt.Errorf("decide round %d: %d of %d shards had closed it before: %w", m.round, need-heard, need,
			consensus.ErrRound)
	}
	return err
}

// idle waits for a launch whose Decide was given up, before what it reads is overwritten.
func (m *Merger) idle() error { return m.ballot.catchUp(context.Background(), m.stream) }

// Last is the number of the last round that this Merger has closed, 0 before the first.
func (m *Merger) Last() uint64 { return m.ballot.seen }

// Close waits for a launch under way and releases the memory. A second call does nothing. The
// Rounds that were counted are closed, or synced, before it.
func (m *Merger) Close() error { return closeAll(&m.close) }
