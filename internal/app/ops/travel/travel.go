// Package travel answers questions about the past of a swarm: the entries of its logs, and the
// state of its agents after any of them, which a Replayer computes from the logs.
package travel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Options configure a Guide. Conn is required.
type Options struct {
	// Conn stays the caller's, who closes it after the Guide. The login of a viewer is enough.
	Conn *natsq.Conn
	// Snapshots is the store where the GPU agents keep snapshots. It stays the caller's. nil:
	// replays start at the first entry of a log.
	Snapshots snapshot.Store
	// Models opens the files of language models there. It stays the caller's. nil: conversations are
	// not replayed.
	Models snapshot.Files
	// MaxBytes bounds the pages of a replayed shard, MaxEntries the entries of a replay. 0: the
	// defaults of ReplayOptions.
	MaxBytes   int64
	MaxEntries uint64
	Log        *slog.Logger
}

// Guide answers questions about the past of swarms. It changes nothing. Its methods may be called
// from several goroutines.
type Guide struct {
	conn     *natsq.Conn
	device   *host.Device
	replayer *Replayer
	sources  sources
	entities *entities.Cache
	ctx      context.Context //nolint:containedctx // of the Guide: Close ends the calls that run
	stop     context.CancelFunc
	once     sync.Once
	err      error // of Close
}

// New returns a guide. It starts a host device with half of the cores. The caller closes it.
func New(o Options) (*Guide, error) {
	dev, err := host.Open(host.Options{Workers: max(1, runtime.GOMAXPROCS(0)/2), Logger: o.Log})
	if err != nil {
		return nil, fmt.Errorf("replays: %w", err)
	}
	r, err := NewReplayer(ReplayOptions{
		Device: dev, Logs: o.Conn.Swarms, Snapshots: o.Snapshots, Models: o.Models, MaxBytes: o.MaxBytes,
		MaxEntries: o.MaxEntries,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replays: %w", err), dev.Close())
	}
	g := &Guide{
		conn: o.Conn, device: dev, replayer: r, sources: sources{known: map[string][]source{}},
		entities: entities.NewCache(o.Conn.Swarms),
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// Close ends the replay in progress, and releases the memory of all moments. Calls in progress fail
// with context.Canceled. A second call returns the error of the first.
func (g *Guide) Close() error {
	g.once.Do(func() {
		g.stop()
		g.replayer.Close()
		g.err = g.device.Close()
	})
	return g.err
}

// bounded returns a context that ends with ctx and with Close.
func (g *Guide) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

func (g *Guide) record(ctx context.Context, id string, shard int) (swarms.Swarm, *swarm.Spec, error) {
	s, err := g.conn.Swarms.Swarm(ctx, id)
	if err != nil {
		return s, nil, fmt.Errorf("swarm %s: %w", id, err)
	}
	if shard < 0 || shard >= s.ShardCount() {
		return s, nil, fmt.Errorf("swarm %s has the shards 0 to %d, not %d: %w", id, s.ShardCount()-1, shard,
			jobs.ErrNotFound)
	}
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return s, nil, fmt.Errorf("swarm %s: %w", id, err)
	}
	return s, spec, nil
}

// Question asks for the state of a shard at a moment, or at two.
type Question struct {
	Swarm string // id
	Shard int
	// Entry is the last entry that the state has. And is the last entry of a second moment; 0:
	// there is one moment.
	Entry, And uint64
	// Group is the number of the group whose agents are returned; below 0: the first group that
	// Entry addresses in this shard, else the first of the shard.
	Group int
	// First is the first agent of the group that is returned, from 0 on, and Agents how many are.
	First, Agents int
	// Within is the time after which the answer has Progress and no state; 0: none.
	Within time.Duration
	// Progress is called while entries are applied, at most ten times a second; nil: it is not
	// called.
	Progress func(entry, of uint64)
}

// MaxAgents is the largest number of agents of a View.
const MaxAgents = 1000

// At returns the state of a shard at the moments of a question. It fails like Replayer.At, but an
// *Unfinished becomes a View with Progress. One call replays at a time.
func (g *Guide) At(ctx context.Context, q Question) (View, error) {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	s, spec, err := g.record(ctx, q.Swarm, q.Shard)
	if err != nil {
		return View{}, err
	}
	v := View{Swarm: s.ID, Name: s.Name, Shard: q.Shard, PerGroup: spec.AgentsPerGroup}
	first, end := s.ShardGroups(q.Shard)
	v.FirstGroup, v.EndGroup = first, end
	if v.First, v.Last, err = g.conn.Swarms.Bounds(ctx, s.Key(), q.Shard, swarms.In); err != nil {
		return v, err
	}
	entries := []uint64{q.Entry}
	if q.And != 0 {
		entries = append(entries, q.And)
	}
	began := time.Now()
	var found []*ReplayMoment
	for i, entry := range entries {
		b := Bounds{Progress: q.Progress}
		if q.Within > 0 {
			b.Within = max(q.Within-time.Since(began), time.Millisecond)
		}
		m, err := g.replayer.At(ctx, s, q.Shard, entry, b)
		var over *Unfinished
		if errors.As(err, &over) {
			v.Progress = &Progress{Moment: i + 1, Entry: over.Entry, Of: over.Of}
			return v, nil
		}
		if err != nil {
			return v, err
		}
		found = append(found, m)
	}
	for _, m := range found {
		one, err := g.moment(ctx, s, spec, q.Shard, m)
		if err != nil {
			return v, err
		}
		v.Moments = append(v.Moments, one)
	}
	if len(found) == 2 {
		same, err := found[0].Same(found[1])
		if err != nil {
			return v, err
		}
		v.Same = &same
	}
	group := q.Group
	if group < 0 {
		group = v.FirstGroup
		if of := v.Moments[0].Entry.Groups; len(of) > 0 {
			group = of[0]
		}
	}
	v.Group, err = groupOf(found, group, q.First, min(q.Agents, MaxAgents))
	return v, err
}

// outcome names the decision of a round; nil for nil.
func outcome(spec *swarm.Spec, v *swarms.Voted) *Outcome {
	if v == nil {
		return nil
	}
	out := &Outcome{Round: v.Round, Decision: "none", Term: v.Term}
	if v.Leader != nil {
		out.Leader = &v.Leader.Agent
	}
	if v.Winner != nil {
		out.Decision = spec.Vote.Candidates[*v.Winner]
	}
	return out
}

func (g *Guide) moment(
	ctx context.Context, s swarms.Swarm, spec *swarm.Spec, shard int, m *ReplayMoment,
) (Moment, error) {
	out := Moment{
		Round: m.Round, Outcome: outcome(spec, m.Outcome), Replayed: m.Replayed, Seconds: m.Took.Seconds(),
		Start: m.Start,
	}
	var err error
	if out.Summary, err = m.Summary(); err != nil {
		return out, err
	}
	out.Entry, err = g.entry(ctx, s, spec, shard, m.Entry, -1)
	if errors.Is(err, jobs.ErrNotFound) { // a snapshot has it, and the log was trimmed behind it
		out.Entry, err = Entry{Seq: m.Entry}, nil
	}
	out.Entry.Rows = nil // EntryOf returns them
	return out, err
}

func groupOf(at []*ReplayMoment, group, first, n int) (*Group, error) {
	m := at[0]
	n = min(max(n, 0), max(0, m.PerGroup()-first))
	g := &Group{Group: group, FirstAgent: int64(group)*int64(m.PerGroup()) + int64(first), Agents: n}
	for i, m := range at {
		of, agents, err := m.Group(group, first, n)
		if err != nil {
			return nil, err
		}
		for k, v := range append(of, agents...) {
			if i == 0 {
				g.Variables = append(g.Variables, Variable{Name: v.Name, Per: per(k < len(of)), Width: v.Width})
			}
			g.Variables[k].add(i, v)
		}
	}
	return g, nil
}

func per(group bool) string {
	if group {
		return "group"
	}
	return "agent"
}

// add adds the rows of a variable at moment i, and compares them with the rows of the first moment.
func (v *Variable) add(i int, of batch.Variable) {
	rows := rowsOf(of)
	if i == 0 {
		v.At = rows
		return
	}
	v.And = rows
	for r := range rows {
		for c := range rows[r] {
			if rows[r][c] != v.At[r][c] {
				v.Changed = append(v.Changed, r)
				break
			}
		}
	}
}
