package travel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// player is one replay. The goroutine of Replayer.At uses it.
type player struct {
	r      *Replayer
	swarm  swarms.Swarm
	spec   *swarm.Spec
	shard  int
	first  uint64 // the first entry of the log
	target uint64
	bounds Bounds
	began  time.Time

	state *state.Snapshotter
	start Start
	at    uint64   // the last entry that the state has
	sum   [32]byte // of that entry; zeros: it was not read
	told  time.Time

	batch   state.Batch // observations that are not applied; nil: there are none
	waiting int         // entries in batch
	rows    int         // observations in batch
}

// Bounds of a batch of observations, as a GPU agent has them. Cuts change no bit.
const (
	maxBatchEntries = 256
	maxBatchRows    = swarms.MaxAddressed
)

func (p *player) play(ctx context.Context) (m *ReplayMoment, err error) {
	kept := p.r.kept.latest(p.swarm.Identity(), p.shard, p.target)
	if kept != nil && kept.Entry+1 < p.first && kept.Entry != p.target {
		kept = nil // the log does not continue it
	}
	if kept != nil && kept.Entry == p.target {
		p.at, p.sum = kept.Entry, kept.sum
		return kept, p.read(ctx)
	}
	if err := state.Attach(ctx, p.r.o.Snapshots, p.spec); err != nil {
		return nil, err
	}
	has := state.RangeOf(p.swarm, p.shard)
	st, err := state.New(p.r.o.Device, nil, p.spec, has)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	p.state = state.NewSnapshotter(st, p.swarm, p.spec, has, p.r.o.Snapshots)
	p.state.UseLanguages(p.r.held, p.r.o.Models)
	if err := p.begin(ctx, kept); err != nil {
		return nil, err
	}
	if n := p.target - p.at; n > p.r.o.MaxEntries {
		return nil, fmt.Errorf("%w: it has %d entries, from entry %d to entry %d, and %d are allowed: take snapshots "+
			"now and then with exoswarm snapshot create, from which replays begin", ErrTooFar, n, p.at+1, p.target,
			p.r.o.MaxEntries)
	}
	if err := p.state.Equip(ctx); err != nil {
		return nil, err
	}
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	m, err = p.moment(ctx)
	if err != nil {
		return nil, err
	}
	p.r.kept.add(m)
	if p.at < p.target {
		return nil, &Unfinished{Entry: p.at, Of: p.target}
	}
	return m, nil
}

// begin brings the state to the latest moment that the log continues. kept may be nil.
func (p *player) begin(ctx context.Context, kept *ReplayMoment) error {
	var tried error
	for _, s := range p.snapshots(ctx) { // the latest first
		if kept != nil && kept.Entry >= s.entry {
			break
		}
		if err := p.reset(ctx); err != nil {
			return err
		}
		err := p.state.Load(ctx, s.ref)
		if err == nil {
			p.at, p.start = s.entry, Start{Kind: StartSnapshot, Name: s.ref.Name, Entry: s.entry}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		tried = errors.Join(tried, err) // an earlier one, or the log, gives the same state
	}
	if err := p.reset(ctx); err != nil {
		return err
	}
	if kept != nil {
		if err := p.state.Memory().Unpack(ctx, kept.pages); err != nil {
			return err
		}
		p.state.Rounds().Restore(kept.Round, kept.Outcome)
		p.state.Rounds().Adopt(kept.model)
		p.at, p.sum, p.start = kept.Entry, kept.sum, Start{Kind: StartMoment, Entry: kept.Entry}
		return p.state.Restored(ctx)
	}
	return p.beginLog(ctx, tried)
}

// beginLog brings the state to the start of the log. tried is why no snapshot was used; nil: there
// was none.
func (p *player) beginLog(ctx context.Context, tried error) error {
	if p.first > 1 {
		err := fmt.Errorf("%w: its first entry is %d, and no snapshot of an entry from %d to %d is reachable",
			ErrTrimmed, p.first, max(1, p.first-1), p.target)
		if base := p.swarm.BaseOf(p.shard); base != nil && p.target < base.Entry {
			return fmt.Errorf("%w: ask for entry %d or a later one", err, base.Entry)
		} else if base != nil && p.r.o.Snapshots == nil {
			return fmt.Errorf("%w: give this process --snapshots with the place of snapshot %s", err, base.Name)
		}
		if tried != nil {
			return fmt.Errorf("%w: %w", err, tried)
		}
		return fmt.Errorf("%w: put the snapshot back that the log was trimmed to", err)
	}
	p.start = Start{Kind: StartLog}
	if p.swarm.From == nil {
		return nil
	}
	if p.r.o.Snapshots == nil {
		return jobs.Errorf(jobs.CodeInvalid, "its agents began with snapshot %s, which this process does not reach: "+
			"give it --snapshots with the place that the GPU agents have", p.swarm.From.Name)
	}
	if err := p.state.Load(ctx, *p.swarm.From); err != nil {
		return err
	}
	p.state.Rounds().Forget() // rounds of another swarm do not count
	p.start = Start{Kind: StartSnapshot, Name: p.swarm.From.Name}
	return nil
}

func (p *player) reset(ctx context.Context) error {
	if err := p.state.Memory().Open(ctx, nil); err != nil {
		return err
	}
	p.state.Rounds().Forget()
	return p.state.Reset(ctx)
}

type start struct {
	ref   swarms.SnapshotRef
	entry uint64
}

// maxManifests bounds the snapshots whose manifest a replay reads.
const maxManifests = 1000

// snapshots returns the snapshots of the shard up to the target that the log continues, the latest
// first. An unreadable snapshot is left out: it may belong to another cluster.
func (p *player) snapshots(ctx context.Context) (all []start) {
	if p.r.o.Snapshots == nil {
		return nil
	}
	names, err := p.r.o.Snapshots.Folders(ctx)
	if err != nil {
		return nil
	}
	has := state.RangeOf(p.swarm, p.shard)
	for i, name := range names {
		if i == maxManifests || ctx.Err() != nil {
			break
		}
		if jobs.CheckID("snapshot", name) != nil {
			continue
		}
		m, digest, err := snapshot.ReadManifest(ctx, p.r.o.Snapshots, name)
		if err != nil || !m.Swarm.Of(p.swarm) || m.First() != has.First || m.Groups != has.Groups ||
			m.Entry == 0 || m.Entry > p.target || m.Entry+1 < p.first && m.Entry != p.target {
			continue
		}
		all = append(all, start{swarms.SnapshotRef{Name: name, SHA256: digest}, m.Entry})
	}
	sortStarts(all)
	return all
}

// read applies the entries up to the target, or until the time is over.
func (p *player) read(ctx context.Context) error {
	from := p.at + 1
	if p.at >= p.first && p.at > 0 && p.sum != [32]byte{} {
		from = p.at // to compare it
	}
	if from > p.target {
		return nil
	}
	reader, err := p.r.o.Logs.Scan(ctx, p.swarm.Key(), p.shard, swarms.In, from, p.target)
	if err != nil {
		return err
	}
	defer reader.Close()
	for from <= p.target {
		e, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		if e.Seq != from {
			return fmt.Errorf("entry %d is read in the place of entry %d: %w", e.Seq, from, jobs.ErrUnavailable)
		}
		from++
		sum := sumOf(e)
		if e.Seq == p.at {
			if sum != p.sum {
				return errOther
			}
			continue
		}
		if err := p.apply(ctx, e); err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		p.at, p.sum = e.Seq, sum
		if p.batch == nil && p.pause() {
			return nil
		}
	}
	return p.flush(ctx)
}

// pause reports the progress, and whether the time of the replay is over.
func (p *player) pause() bool {
	now := time.Now()
	if p.bounds.Progress != nil && now.Sub(p.told) >= 100*time.Millisecond {
		p.told = now
		p.bounds.Progress(p.at, p.target)
	}
	return p.bounds.Within > 0 && now.Sub(p.began) > p.bounds.Within
}

// apply applies an entry, as a GPU agent applies an answered entry: it skips questions, and a
// refused entry changes nothing. Observations wait in the batch until the next entry of another
// kind, or until the batch is full.
func (p *player) apply(ctx context.Context, e swarms.Entry) error {
	if e.Kind == swarms.EntryObserve {
		o, err := p.state.Decode(e.Data)
		if err != nil {
			return refused(err)
		}
		if p.batch == nil {
			p.batch = p.state.NewBatch()
		}
		p.batch.Add(o)
		p.waiting++
		if p.rows += o.Len(); p.waiting >= maxBatchEntries || p.rows >= maxBatchRows {
			return p.flush(ctx)
		}
		return nil
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	switch {
	case e.Kind == swarms.EntryEnd:
		return nil
	case p.state.Rounds().Skip(e):
		return nil
	case e.Kind == swarms.EntryAdopt:
		return p.adopt(ctx, e)
	}
	_, err := p.state.Apply(ctx, e)
	return refused(err)
}

// adopt applies an adoption, unless the GPU agent has refused it. If the agent has not, the model
// must be there.
func (p *player) adopt(ctx context.Context, e swarms.Entry) error {
	first, last, err := p.r.o.Logs.Bounds(ctx, p.swarm.Key(), p.shard, swarms.Out)
	if err != nil {
		return err
	}
	answer, err := swarms.FindAnswer(e.Seq, max(1, first), last, func(seq uint64) (swarms.Entry, error) {
		r, err := p.r.o.Logs.Scan(ctx, p.swarm.Key(), p.shard, swarms.Out, seq, seq)
		if err != nil {
			return swarms.Entry{}, err
		}
		defer r.Close()
		return r.Next(ctx)
	})
	switch {
	case answer.Kind == swarms.EntryRejected:
		return nil
	case err != nil && !errors.Is(err, jobs.ErrNotFound):
		return err
	}
	_, err = p.state.Apply(ctx, e)
	if answer.Kind != "" {
		return err
	}
	return refused(err) // it is not answered yet
}

// refused returns nil for an error that refuses an entry, which has changed nothing.
func refused(err error) error {
	if no := (*jobs.Error)(nil); errors.As(err, &no) {
		return nil
	}
	return err
}

func (p *player) flush(ctx context.Context) error {
	if p.batch == nil {
		return nil
	}
	b := p.batch
	p.batch, p.waiting, p.rows = nil, 0, 0
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err := b.Observe(ctx)
	return err
}

func (p *player) moment(ctx context.Context) (*ReplayMoment, error) {
	all, err := p.state.Memory().Pack(ctx)
	if err != nil {
		return nil, err
	}
	return &ReplayMoment{
		Entry: p.at, Round: p.state.Rounds().Last(), Outcome: p.state.Rounds().Outcome(), Start: p.start,
		Replayed: p.at - p.start.Entry, Took: time.Since(p.began), Groups: state.RangeOf(p.swarm, p.shard),
		model: p.state.Rounds().Adopted(), layout: p.state.Layout(), pages: all, identity: p.swarm.Identity(),
		sum: p.sum,
	}, nil
}

func sumOf(e swarms.Entry) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s %d %d\n", e.Seq, e.Kind, e.Ref, len(e.Data))
	h.Write(e.Data)
	return [32]byte(h.Sum(nil))
}
