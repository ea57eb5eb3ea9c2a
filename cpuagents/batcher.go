package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// maxOpen is the number of series that are read at the same time, so that many groups step at once.
// More than the cores of a machine or the multiprocessors of a GPU gain nothing, and each is an
// open file. The bound is for one job.
const maxOpen = 256

// batcher turns rows into batches. The rows of a batch depend on the sources and the specification
// alone, so another attempt of the job makes the same batches. One goroutine uses it.
type batcher struct {
	id       string // of the job
	spec     *StreamSpec
	series   []source.Series
	from     source.Resources
	journal  func(i int) swarms.Log // of source i
	entities *feed.Entities         // nil without a key
	evict    *runEviction           // nil if entities keep their groups
	logs     *runLogs
	x        *exchange // with the collector
	counts   *counts
	rejects  *json.Encoder

	batch  *feed.Batch
	number uint64           // of the batch being filled
	placed []uint32         // by row of the batch: its group in the swarm, if entities lose their groups
	latest []int64          // by entity: the time of its last row
	seen   []uint32         // entities of valid rows that the summary does not count yet
	late   []uint32         // entities of late rows that the summary does not count yet
	fresh  []SeriesSummary  // entities that are not in the summary yet
	keys   *statelog.Keys   // the dictionary for readers of the swarm; nil without a key
	local  *rows.LocalTimes // of the entities in files
	open   map[int]*reading // by place in the list of series
	sender *sender          // nil if entities lose their groups

	rows  uint64
	first *rows.Reject // the first reject
	bad   uint64       // number of rejects
	early uint64       // rows whose timestamp is a number before 1990
	// mostRejected is the source with the largest share of rejects.
	mostRejected RejectedRows
	noRows       bool // no input has a valid row
}

// newBatcher returns a batcher for a run, with a line of JSON in rejects for each reject.
func newBatcher(s *stream, rejects io.Writer) *batcher {
	f := &batcher{
		id: s.id, spec: &s.spec, series: s.series, from: s.agent.sourceResources(),
		journal:  s.journal,
		entities: s.entities, evict: s.evict, logs: s.logs, x: s.x, counts: s.counts,
		rejects: json.NewEncoder(rejects), number: 1, open: map[int]*reading{},
	}
	f.batch = f.newBatch()
	if s.entities != nil {
		f.local = rows.NewLocalTimes(s.spec.Columns)
		f.keys = statelog.NewKeys(s.log(statelog.KeyShard, swarms.In))
	}
	return f
}

// feed reads all series and appends their batches, then the end. It returns when the end is stored.
// The end of ctx with jobs.ErrFinish ends the input early, and the end of work ends everything. A
// job without any valid row is an error of the input that quotes the first reject.
func (f *batcher) feed(ctx, work context.Context) error {
	for _, k := range f.logs.shards {
		if err := k.Find(work); err != nil {
			return err
		}
	}
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(work, func() { stop(context.Cause(work)) })()
	if f.keys != nil {
		if err := f.openKeys(work); err != nil {
			return err
		}
	}
	if f.evict == nil {
		f.sender = newSender(work, f)
	}
	interrupted, err := f.all(ctx, work, waiting)
	for _, i := range slices.Sorted(maps.Keys(f.open)) {
		f.ended(i)
	}
	if f.sender != nil {
		err = f.sender.end(err)
	}
	if err != nil {
		return err
	}
	f.x.end(f.number - 1)
	if !slices.ContainsFunc(f.logs.shards, func(k *shardLog) bool { return !k.Ended }) {
		return nil // an earlier attempt got as far
	}
	if !interrupted && f.rows == 0 {
		f.noRows = true
		return f.withoutRows()
	}
	for _, k := range f.logs.shards {
		if k.Ended {
			continue
		}
		data, err := json.Marshal(swarms.EndOfInput{Rows: k.Rows, Interrupted: interrupted})
		if err != nil {
			return fmt.Errorf("encode the end of the input: %w", err)
		}
		if err := k.Append(work, swarms.Entry{Kind: swarms.EntryEnd, Ref: f.number, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

func (f *batcher) withoutRows() error {
	if f.first == nil {
		return access.InputError("there is no valid row in any input, and none that is not: all of them are empty")
	}
	reason := f.first.Reason
	if f.first.Cure != "" {
		reason += "; " + f.first.Cure
	}
	return access.InputError(
		"there is no valid row in any input; the first of %d that are not: %s: %s: %s", f.bad, f.first.Series,
		f.first.Place(), reason,
	)
}

// openKeys opens the stored dictionary, to continue it. An earlier attempt has stored the keys that
// this one assigns, since they are a function of the input.
func (f *batcher) openKeys(ctx context.Context) error {
	if err := f.keys.Open(ctx); err != nil {
		return err
	}
	_, err := f.keys.Load(ctx, -1)
	return err
}

// storeKeys stores the keys that are new since the last call, before their first rows are appended.
// Readers find entities by them; the job itself does not read them again. Another attempt that
// stores at the same time stores the same keys: the log of the swarm decides between the two.
func (f *batcher) storeKeys(ctx context.Context) error {
	if f.keys == nil {
		return nil
	}
	for {
		var err error
		switch {
		case f.evict != nil:
			err = f.evict.store(ctx, f.keys)
		case f.keys.Stored() < f.entities.Len():
			err = f.logs.groups.StoreKeys(ctx, f.keys, f.entities.Fresh(f.keys.Stored()), nil)
		default:
			return nil
		}
		if err == nil && f.evict != nil {
			return nil
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return err
		}
		if err := f.openKeys(ctx); err != nil {
			return err
		}
	}
}

// all reads all series. With a key the order keeps the rows of an entity independent of turns:
// files one after the other, and then the remote sources, which may have no end, in turns. The end
// of ctx ends the reading, the end of work ends everything, and waiting ends with either of them.
func (f *batcher) all(ctx, work, waiting context.Context) (interrupted bool, err error) {
	var every, local, others []int // places in the list of series
	for i, src := range f.series {
		every = append(every, i)
		if source.IsRemote(src.URI) {
			others = append(others, i)
		} else {
			local = append(local, i)
		}
	}
	if f.entities == nil {
		return f.turns(ctx, work, waiting, every)
	}
	for i := range local {
		if interrupted, err := f.turns(ctx, work, waiting, local[i:i+1]); interrupted || err != nil {
			return interrupted, err
		}
	}
	if len(others) == 0 {
		return false, nil
	}
	return f.turns(ctx, work, waiting, others)
}

// turns reads some series in turn, a few rows of each, so that many groups step at once. A series
// that ends makes room for the next one. It flushes the last batch. The turns depend on the numbers
// of rows alone and never on time: another attempt must cut the same batches. It closes all readers
// that it has opened, also after an error.
func (f *batcher) turns(ctx, work, waiting context.Context, list []int) (interrupted bool, err error) {
	type series struct {
		group int
		r     rows.Reader
	}
	var open []series
	defer func() {
		for _, o := range open {
			_ = o.r.Close()
		}
	}()
	next := 0
	share := max(f.spec.BatchRows/min(maxOpen, len(list)), 16)
	for {
		for len(open) < maxOpen && next < len(list) {
			r, err := f.begin(work, waiting, list[next])
			if errors.Is(err, jobs.ErrFinish) {
				return true, f.flush(work)
			}
			if err != nil {
				return false, err
			}
			open = append(open, series{list[next], r})
			next++
		}
		if len(open) == 0 {
			return false, f.flush(work)
		}
		left := open[:0]
		for i, o := range open {
			ended, err := f.take(ctx, work, o.group, o.r, share)
			if errors.Is(err, source.ErrPause) {
				ended, err = false, f.flush(work)
			}
			if err != nil {
				open = append(left, open[i:]...)
				if errors.Is(err, jobs.ErrFinish) {
					return true, f.flush(work)
				}
				return false, err
			}
			if ended {
				_ = o.r.Close()
				f.ended(o.group)
				continue
			}
			left = append(left, o)
		}
		open = left
	}
}

type reading struct {
	order *rows.Order
	tally rows.Tally
}

// ended removes a series that is read to its end. It keeps the share of its rejected rows if no
// other series has a larger one.
func (f *batcher) ended(i int) {
	tally, most := &f.open[i].tally, &f.mostRejected
	delete(f.open, i)
	if most.Rows == 0 || tally.Above(float64(most.Rejected)/float64(most.Rows)) {
		*most = RejectedRows{
			Source: f.series[i].Name, Rows: tally.Rows, Rejected: tally.Rejected, Reason: tally.Most(),
		}
	}
}

// begin opens series number i. A file is read until work ends. A remote source waits for documents
// only until waiting ends, so a request to finish does not wait for the source. The caller closes
// the reader. Files of a job with a key are read one at a time, so each is parsed ahead.
func (f *batcher) begin(work, waiting context.Context, i int) (rows.Reader, error) {
	src := f.series[i]
	f.open[i] = &reading{order: src.Order(f.spec.Columns)}
	if !source.IsRemote(src.URI) {
		columns := f.spec.Columns
		columns.Local = f.local
		open := func(ctx context.Context) (rows.Reader, error) { return f.from.OpenFile(ctx, src, columns) }
		if f.entities == nil {
			return open(work)
		}
		return files.Ahead(work, open, f.entities.Warm)
	}
	return f.from.OpenRemote(waiting, f.journal(i), f.id, i, src, f.spec.Columns)
}

// take reads up to n rows of one series into the batch, and flushes a batch that is full. Between
// two rows it checks whether the job must end, so a source of millions of rows does not hold up a
// drain. It reports whether the series has ended. It returns the cause of ctx or work when one of
// them ends, and with Strict an error for the first reject. Its counts are visible to collect when
// it returns.
func (f *batcher) take(ctx, work context.Context, place int, r rows.Reader, n int) (ended bool, err error) {
	group := place // without a key a series is an entity, and its place is the group
	tally := &f.open[place].tally
	var good, bad uint64
	defer func() {
		f.count()
		series := place
		if f.entities != nil { // count has counted the rows by entity
			series = -1
		}
		f.counts.addRows(series, good, bad)
	}()
	for range n {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if work.Err() != nil {
			return false, context.Cause(work)
		}
		row, rejected, err := r.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if rejected == nil && f.entities != nil {
			if group, rejected, err = f.entity(&row, place); err != nil {
				return false, err
			}
			if rejected == nil && f.evict != nil {
				at, err := f.place(work, &row)
				if err != nil {
					return false, err
				}
				f.placed = append(f.placed, uint32(f.logs.groups.Record.EntityGroup(at)))
			}
		}
		if rejected != nil {
			bad++
			tally.Reject(rejected)
			if err := f.reject(rejected); err != nil {
				return false, err
			}
			continue
		}
		good++
		tally.Rows++
		if rows.Early(&row) {
			f.early++
		}
		f.rows++
		if f.batch.Add(group, &row, time.Now()) {
			if err := f.flush(work); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// entity returns the group of the entity of a row, or a reject. An entity that is new gets a place
// in the summary. Groups are given in the order of the input, so every attempt gives the same
// groups.
func (f *batcher) entity(row *rows.Row, place int) (group int, rejected *rows.Reject, err error) {
	group, isNew, full, err := f.entities.Add(row.Key)
	if err != nil {
		return 0, nil, err
	}
	order := f.open[place].order
	order.Note(row)
	from := f.series[place].Name
	switch {
	case full:
		return 0, &rows.Reject{
			Series: from, Row: row.Number, Reason: f.spec.Columns.TooMany(row.Key), Cause: rows.CauseEntities,
		}, nil
	case isNew:
		f.latest = append(f.latest, row.Time)
		f.fresh = append(f.fresh, SeriesSummary{Name: rows.EntityName(row.Key)})
	case row.Time < f.latest[group] && !f.spec.Columns.AnyOrder:
		f.late = append(f.late, uint32(group))
		reason, cure := order.Behind(row, f.latest[group], " of "+access.Quote(rows.EntityName(row.Key)))
		return 0, &rows.Reject{Series: from, Row: row.Number, Reason: reason, Cure: cure}, nil
	}
	f.latest[group] = row.Time
	f.seen = append(f.seen, uint32(group))
	return group, nil, nil
}

// count counts the rows that entity has seen since the last call in the summary, under one lock. It
// is called before a batch counts as read, since collect expects the entities of its rows then.
func (f *batcher) count() {
	if len(f.seen)+len(f.late) == 0 {
		return
	}
	f.counts.addEntities(f.fresh, f.seen, f.late)
	f.seen, f.late, f.fresh = f.seen[:0], f.late[:0], f.fresh[:0]
}

// reject counts and writes a row that cannot be used. With Strict it returns an error for it. An
// attempt that continues writes the rejects again, into a file that replaces the earlier one.
func (f *batcher) reject(rejected *rows.Reject) error {
	if f.bad++; f.first == nil {
		f.first = rejected
	}
	f.counts.addKeyless(rejected)
	if f.spec.Strict && rejected.Cure != "" {
		return access.InputError("%s: %s: %s; %s", rejected.Series, rejected.Place(), rejected.Reason, rejected.Cure)
	}
	if f.spec.Strict {
		return access.InputError(
			"%s: %s: %s; correct it, or run without --strict to skip such rows", rejected.Series, rejected.Place(),
			rejected.Reason,
		)
	}
	if err := f.rejects.Encode(rejected); err != nil {
		return access.IOError("write", "the rejects", err)
	}
	return nil
}

// flush hands the batch to the sender. A batch that an earlier attempt has appended is only
// counted, since its rows are the same. An empty batch is not appended. With evictions it appends
// the batch itself, since the swaps before the next one depend on the end of the log.
func (f *batcher) flush(work context.Context) error {
	f.count()
	if f.evict != nil {
		if err := f.move(work); err != nil {
			return err
		}
	}
	if f.batch.Len() == 0 {
		return nil
	}
	number := f.number
	f.number++
	plan := f.logs.plan(f.batch, f.placed)
	f.placed = f.placed[:0]
	if plan != nil {
		f.x.putPlan(number, plan)
	}
	f.x.noteRead(number)
	f.logs.countRows(f.batch, plan)
	o := outgoing{number: number, batch: f.batch, plan: plan, missing: f.logs.missing(number, plan)}
	if f.sender != nil {
		var err error
		f.batch, err = f.sender.add(o)
		return err
	}
	if o.missing {
		if err := f.storeKeys(work); err != nil {
			return fmt.Errorf("store the keys of batch %d: %w", number, err)
		}
	}
	if err := f.send(work, o); err != nil {
		return err
	}
	f.batch.Reset()
	return nil
}

func (f *batcher) newBatch() *feed.Batch {
	return feed.NewBatch(len(f.spec.Columns.Features), f.spec.BatchRows)
}
