package travel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// MaxRows is the largest number of rows of an Entry, and of its groups.
const MaxRows = 100

// Entry returns an entry of the log of a shard with its first rows, or with the rows of a group
// unless that is below 0. swarm is an id. It fails with jobs.ErrNotFound if there is none of that
// number.
func (g *Guide) Entry(ctx context.Context, swarm string, shard int, entry uint64, group int) (Entry, error) {
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	s, spec, err := g.record(ctx, swarm, shard)
	if err != nil {
		return Entry{}, err
	}
	e, err := g.entry(ctx, s, spec, shard, entry, group)
	if err == nil {
		g.nameSources(ctx, s, e.Rows)
	}
	return e, err
}

func (g *Guide) entry(
	ctx context.Context, s swarms.Swarm, spec *swarm.Spec, shard int, entry uint64, group int,
) (Entry, error) {
	e, at, err := g.conn.Swarms.Entry(ctx, s.Key(), shard, swarms.In, entry)
	if err != nil {
		return Entry{}, err
	}
	out := Entry{
		Seq: e.Seq, Kind: e.Kind, Ref: e.Ref, At: at, Bytes: len(e.Data), Job: s.OwnerJob(),
		Timestamp: spec.Timestamp, Columns: spec.Features,
	}
	answer, _, err := g.conn.Swarms.Entry(ctx, s.Key(), shard, swarms.Out, entry)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
	case err != nil:
		return out, err
	case answer.Ref == entry:
		out.Answer = answer.Kind
	}
	if e.Kind != swarms.EntryObserve {
		return out, nil
	}
	if spec.Topology().ByAgent {
		if o, err := batch.DecodeAgentObservations(e.Data); err == nil {
			if o.Item != nil {
				out.Columns = append(slices.Clip(spec.Features), swarm.ItemColumn)
			}
			out.addAgents(o, spec.AgentsPerGroup, group)
		}
	} else if o, err := batch.DecodeObservations(e.Data); err == nil {
		out.addGroups(o, group)
	}
	return out, nil
}

// add adds the row of a group, unless another group was asked for or there are enough. row makes
// it.
func (e *Entry) add(of, group int, seen map[int]bool, row func() Row) {
	e.Count++
	if !seen[of] && len(seen) < MaxRows {
		seen[of] = true
		e.Groups = append(e.Groups, of)
	}
	if len(e.Rows) < MaxRows && (group < 0 || of == group) {
		e.Rows = append(e.Rows, row())
	}
}

func (e *Entry) addGroups(o *batch.Observations, group int) {
	seen := map[int]bool{}
	wide := len(o.Value) == len(o.Features) // all features in full precision
	for i, of := range o.Group {
		e.add(int(of), group, seen, func() Row {
			r := Row{
				Group: int(of), Row: o.Row[i], Timestamp: o.Timestamp[i], Time: time.Unix(0, o.Time[i]).UTC(),
				Read: time.Unix(0, o.Read[i]).UTC(),
			}
			for f := range o.Width {
				if wide {
					r.Values = append(r.Values, finite(o.Value[i*o.Width+f]))
				} else {
					r.Values = append(r.Values, finite(float64(o.Features[i*o.Width+f])))
				}
			}
			return r
		})
	}
}

func (e *Entry) addAgents(o *batch.AgentObservations, size, group int) {
	seen := map[int]bool{}
	for i, id := range o.Agent {
		of := int(id) / size
		e.add(of, group, seen, func() Row {
			r := Row{Group: of, Agent: &id}
			for _, v := range o.Features[i*o.Width:][:o.Width] {
				r.Values = append(r.Values, finite(float64(v)))
			}
			if o.Item != nil {
				item := float64(o.Item[i])
				if item < 0 {
					item = math.NaN()
				}
				r.Values = append(r.Values, finite(item))
			}
			return r
		})
	}
}

// finite returns a value, and nil for one that JSON does not have.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

type source struct {
	Name string `json:"name"`
	URI  string `json:"uri"`
}

// sources are the lists of sources of jobs. Its methods may be called from several goroutines.
type sources struct {
	mu    sync.Mutex
	known map[string][]source // by job; nil: the list cannot be read
}

const (
	// maxKnown bounds the jobs whose sources are kept.
	maxKnown = 32
	// maxManifest bounds the list of sources of a job, in bytes.
	maxManifest = 8 << 20
)

// nameSources adds the names of entities, or of sources, to rows, where they can be read. Without a
// key the number of a group is the place of its source in the list of the job.
func (g *Guide) nameSources(ctx context.Context, s swarms.Swarm, rows []Row) {
	if len(rows) == 0 {
		return
	}
	if d, err := g.entities.Directory(ctx, s); err == nil {
		for i := range rows {
			rows[i].Series = d.Name(rows[i].Group)
		}
		return
	}
	all := g.sourcesOf(ctx, s)
	for i := range rows {
		if n := rows[i].Group; n < len(all) {
			rows[i].Series, rows[i].Source = all[n].Name, all[n].URI
		}
	}
}

// GroupOf returns the group of an entity by its key (entities.Directory.Find). In a run without a
// key it returns the group of a series by its name. swarm is an id. It fails with jobs.ErrNotFound
// if there is no such entity or series, or the list of sources of the run cannot be read.
func (g *Guide) GroupOf(ctx context.Context, swarm, series string) (int, error) {
	s, _, err := g.record(ctx, swarm, 0)
	if err != nil {
		return 0, err
	}
	if d, err := g.entities.Directory(ctx, s); err == nil {
		e, err := d.Find(series)
		return e.Group, err
	} else if !errors.Is(err, entities.ErrNoKey) {
		return 0, err
	}
	all := g.sourcesOf(ctx, s)
	if len(all) == 0 {
		return 0, fmt.Errorf("series %s of swarm %s: it has no list of series that can be read: use the number of its "+
			"group: %w", series, swarm, jobs.ErrNotFound)
	}
	for i, one := range all {
		if one.Name == series {
			return i, nil
		}
	}
	return 0, fmt.Errorf("series %s of swarm %s: it has %d series, %s to %s: %w", series, swarm, len(all), all[0].Name,
		all[len(all)-1].Name, jobs.ErrNotFound)
}

// sourcesOf returns the sources of the groups of a run, by group; nil where they cannot be read.
func (g *Guide) sourcesOf(ctx context.Context, s swarms.Swarm) []source {
	job := s.OwnerJob()
	if job == "" {
		return nil
	}
	g.sources.mu.Lock()
	all, known := g.sources.known[job]
	g.sources.mu.Unlock()
	if known {
		return all
	}
	if all = g.readSources(ctx, job); ctx.Err() != nil {
		return nil
	}
	g.sources.mu.Lock()
	defer g.sources.mu.Unlock()
	if len(g.sources.known) >= maxKnown {
		clear(g.sources.known)
	}
	g.sources.known[job] = all
	return all
}

// sourcePatience bounds the reading of a list of sources. A login without the right to read objects
// gets no answer.
const sourcePatience = 3 * time.Second

// readSources reads the list of sources that the specification of a job names, from the store of
// objects. It returns nil if the list cannot be read.
func (g *Guide) readSources(ctx context.Context, id string) []source {
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	j, err := g.conn.Queue.Locate(ctx, id)
	if err != nil {
		return nil
	}
	var spec struct {
		Manifest string `json:"manifest"`
	}
	if json.Unmarshal(j.Spec, &spec) != nil {
		return nil
	}
	name, is := strings.CutPrefix(spec.Manifest, "object:")
	if !is {
		return nil
	}
	r, err := g.conn.Objects.Object(ctx, name, jobs.OwnerOf(j.Job))
	if err != nil {
		return nil
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return nil
	}
	var all []source
	if json.Unmarshal(data, &all) != nil {
		return nil
	}
	for i := range all {
		all[i].URI = redact.Secrets(all[i].URI)
	}
	return all
}
