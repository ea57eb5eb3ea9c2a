// Package agentview answers questions about the shards, pages and batches of a running GPU agent.
package agentview

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// maxTimeline is the length of a timeline in seconds.
const maxTimeline = 600

// Agent is the part of a GPU agent that shows its inside. gpuagents.Views implements it.
type Agent interface {
	Picture(ctx context.Context, id shard.ID, variable string, cells int) (*raster.Picture, error)
	PageMap(ctx context.Context, id shard.ID, cells int) (*shard.PageMap, error)
	Spans(since time.Time) []gpubatch.Span
	Models() []pool.Model
	KeptModels() []gpuagents.KeptModel
}

// Models changes which models a GPU agent holds. *gpuagents.Agent implements it.
type Models interface {
	HoldModel(ctx context.Context, ref weights.Ref) error
	ReleaseModel(ctx context.Context, name string) error
	CheckModels(ctx context.Context) error
}

// Change does what a request about a model asks of an agent, and answers with its models as they are
// then. A request that is wrong is a *jobs.Error. A violation of a claim is one of
// jobs.CodeDevice.
func Change(ctx context.Context, name string, a Agent, m Models, c telemetry.ModelChange) (any, error) {
	ref := weights.Ref{ModelRef: swarms.ModelRef{Name: c.Name, SHA256: c.SHA256}, Exact: c.Exact}
	var err error
	switch c.Do {
	case telemetry.HoldModel:
		if err = ref.Validate(); err != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "%v", err)
		}
		err = m.HoldModel(ctx, ref)
	case telemetry.ReleaseModel:
		err = m.ReleaseModel(ctx, c.Name)
	case telemetry.CheckModels:
		if err = m.CheckModels(ctx); errors.Is(err, pages.ErrResidency) {
			err = jobs.Errorf(jobs.CodeDevice, "%v", err)
		}
	default:
		err = jobs.Errorf(jobs.CodeInvalid, "%q of a model: there are hold, release and check", c.Do)
	}
	if err != nil {
		return nil, err
	}
	return models(name, a), nil
}

// models describes the models of an agent: on each device, and what it was asked for and does not
// hold.
func models(name string, a Agent) *telemetry.Models {
	out := &telemetry.Models{Agent: name, At: time.Now(), Models: []telemetry.HeldModel{}}
	asked, held := map[weights.Ref]bool{}, map[weights.Ref]bool{}
	kept := a.KeptModels()
	for _, k := range kept {
		asked[k.Ref] = true
	}
	for _, m := range a.Models() {
		held[m.Ref] = true
		one := telemetry.HeldModel{
			Name: m.Name, SHA256: m.SHA256, Exact: m.Exact, Device: m.Device, State: telemetry.ModelHeld,
			Asked: asked[m.Ref], Users: m.Users, DeviceBytes: m.Info.Device, PinnedBytes: m.Pinned, FileBytes: m.File,
			Layers: m.Layers, Passing: m.Passing, Step: m.Step.Nanoseconds(), Claims: m.Claims,
		}
		if !m.Checked.IsZero() {
			one.Checked = &m.Checked
		}
		out.Models = append(out.Models, one)
	}
	for _, k := range kept {
		one := telemetry.HeldModel{
			Name: k.Name, SHA256: k.SHA256, Exact: k.Exact, State: telemetry.ModelLoading, Asked: true,
		}
		if k.Err != nil {
			one.State, one.Error = telemetry.ModelFailed, k.Err.Error()
		} else if k.Held && held[k.Ref] {
			continue
		}
		out.Models = append(out.Models, one)
	}
	return out
}

// Answer answers a question to the agent of a name: with a *telemetry.Picture, a *telemetry.PageMap,
// a *telemetry.Timeline or a *telemetry.Models. It does not wake parked shards, and moves no page. A question that is
// wrong is a *jobs.Error, a shard that the agent does not serve jobs.ErrNotFound, and one that was
// looked at a moment ago jobs.ErrUnavailable.
func Answer(ctx context.Context, name string, a Agent, v telemetry.View) (any, error) {
	id := shard.ID{Swarm: v.Swarm, Shard: v.Shard}
	cells := v.What != telemetry.ViewTimeline && v.What != telemetry.ViewModels
	if cells && (v.Cells < 1 || v.Cells > raster.MaxCells) {
		return nil, jobs.Errorf(jobs.CodeInvalid, "a view of %d cells: use 1 to %d", v.Cells, raster.MaxCells)
	}
	switch v.What {
	case telemetry.ViewPicture:
		p, err := a.Picture(ctx, id, v.Variable, v.Cells)
		if err != nil {
			return nil, viewError(v, err)
		}
		return picture(p, v.Value)
	case telemetry.ViewPages:
		m, err := a.PageMap(ctx, id, v.Cells)
		if err != nil {
			return nil, viewError(v, err)
		}
		return pageMap(m), nil
	case telemetry.ViewTimeline:
		seconds := min(max(v.Seconds, 1), maxTimeline)
		return spans(name, a.Spans(time.Now().Add(-time.Duration(seconds)*time.Second))), nil
	case telemetry.ViewModels:
		return models(name, a), nil
	}
	return nil, jobs.Errorf(jobs.CodeInvalid, "a view of %q: there are picture, pages, timeline and models", v.What)
}

// viewError gives the error of a view the class that the asker understands.
func viewError(v telemetry.View, err error) error {
	switch {
	case errors.Is(err, shard.ErrNotOpen):
		return fmt.Errorf("shard %d of swarm %s: %w: %w", v.Shard, v.Swarm, err, jobs.ErrNotFound)
	case errors.Is(err, shard.ErrTooSoon):
		return fmt.Errorf("%w: %w", err, jobs.ErrUnavailable)
	case errors.Is(err, raster.ErrUnknown), errors.Is(err, raster.ErrInvalid):
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	}
	return err
}

// picture returns one value of the cells of a picture as numbers of two bytes.
func picture(p *raster.Picture, value string) (*telemetry.Picture, error) {
	values, ok := map[string][]float32{"": p.Mean, "mean": p.Mean, "least": p.Least, "most": p.Most}[value]
	if !ok {
		return nil, jobs.Errorf(jobs.CodeInvalid, "value %q of cells: there are mean, least and most", value)
	}
	out := &telemetry.Picture{
		Variable: p.Variable, Variables: p.Variables, Units: p.Units, Each: p.Each, Per: p.Per, Columns: p.Columns,
		Tick: p.Tick, At: p.At,
		Took: p.Took.Nanoseconds(), States: p.States, Cells: make([]byte, 2*len(values)),
	}
	first := true
	for i, v := range values {
		switch {
		case p.States[i] > raster.Kept:
		case first:
			out.Least, out.Most, first = v, v, false
		default:
			out.Least, out.Most = min(out.Least, v), max(out.Most, v)
		}
	}
	span := float64(out.Most) - float64(out.Least)
	for i, v := range values {
		if p.States[i] > raster.Kept || span == 0 {
			continue
		}
		n := uint16(math.Round((float64(v) - float64(out.Least)) / span * math.MaxUint16))
		out.Cells[2*i], out.Cells[2*i+1] = byte(n), byte(n>>8)
	}
	return out, nil
}

func pageMap(m *shard.PageMap) *telemetry.PageMap {
	out := &telemetry.PageMap{
		Pages: m.Pages, Per: m.Per, PageBytes: m.PageBytes, Tiers: m.Tiers, Counts: m.Counts, At: m.At,
	}
	for _, t := range m.Stats.Memory {
		out.Memory = append(out.Memory, telemetry.PageMemory{
			Tier: t.Name, Frames: t.Frames, Free: t.Free, Hits: t.Hits, Misses: t.Misses, Prefetched: t.Prefetched,
			Used: t.Used, Wasted: t.Wasted,
		})
	}
	for _, v := range m.Stats.Migrations {
		out.Moves = append(out.Moves, telemetry.PageMove{From: v.From, To: v.To, Reason: v.Reason, Pages: v.Pages})
	}
	for i, tier := range m.Tier {
		run := [3]int{1, int(tier), power(m.Idle[i])}
		if tier == shard.NoTier {
			run[1] = -1
		}
		if n := len(out.Runs); n > 0 && out.Runs[n-1][1] == run[1] && out.Runs[n-1][2] == run[2] {
			out.Runs[n-1][0]++
			continue
		}
		out.Runs = append(out.Runs, run)
	}
	return out
}

// power returns the smallest k with less than 2^k seconds, or -1 for an unknown time.
func power(idle time.Duration) int {
	if idle < 0 {
		return -1
	}
	return bits.Len64(uint64(idle / time.Second))
}

func spans(name string, all []gpubatch.Span) *telemetry.Timeline {
	out := &telemetry.Timeline{Agent: name, At: time.Now(), Stages: gpubatch.Stages(), Spans: []telemetry.Span{}}
	for _, s := range all {
		out.Spans = append(out.Spans, telemetry.Span{
			Stage: int(s.Stage), Swarm: s.Swarm, Shard: s.Shard, First: s.First, Last: s.Last, Bytes: s.Bytes,
			Begin: s.Begin.UnixNano(), Took: s.Took.Nanoseconds(),
		})
	}
	return out
}
