package cpuagents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// errCollected ends the collection of a detector that has finished.
var errCollected = errors.New("all decisions are collected")

const (
	// noteEvery is the time between two notes of the position of the sinks. A detector that is
	// killed sends at most the decisions of this time again, and the sinks leave them out.
	noteEvery = time.Second
	// holdAtMost bounds how long a sink of files or objects holds decisions back.
	holdAtMost = time.Minute
)

// collect sends the decisions to the outputs until ctx ends.
//
// It begins behind the position that an earlier attempt has stored. That position is at most as far
// as every sink: the sinks recognise a repeated batch by its number. So a kill between the sending
// and the note neither loses nor doubles a decision.
func (d *detection) collect(ctx context.Context) error {
	read, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	entries, failed := make(chan feed.Answer), make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed <- d.answers.Run(read, entries)
	}()
	defer func() { <-ended }()
	defer cancel(nil)
	look := time.NewTicker(noteEvery)
	defer look.Stop()
	quiet := time.Now() // since when a decision has been due
	held := time.Now()  // since when the sinks hold no decisions back
	for {
		select {
		case err := <-failed:
			return d.endOf(ctx, err)
		case <-ctx.Done():
			return d.endOf(ctx, context.Cause(ctx))
		case <-look.C:
			// A sink of files holds decisions until it has a file's worth of them, and keeps the
			// position back. A quiet detector would never get past it.
			if d.holds() == 0 {
				held = time.Now()
			} else if time.Since(held) > holdAtMost {
				for _, t := range d.Outputs {
					if err := t.End(ctx); err != nil {
						return d.endOf(ctx, err)
					}
				}
				held = time.Now()
			}
			if err := d.noteSinks(ctx); err != nil {
				return d.endOf(ctx, err)
			}
			quiet = d.unserved(quiet)
		case settled := <-d.settling:
			err := d.settle(ctx)
			if err == nil && d.summaries != nil {
				if err = d.summaries.Put(ctx); err == nil {
					d.answers.Trim(d.summaries.Oldest() + 1)
				}
			}
			settled <- err
		case e := <-entries:
			if err := d.entry(ctx, e); err != nil {
				return d.endOf(ctx, err)
			}
			quiet = time.Now()
		}
	}
}

// noteSinks stores the position of the sinks, and removes what no attempt reads again.
func (d *detection) noteSinks(ctx context.Context) error {
	if err := d.state.NoteCollected(ctx, d.position()); err != nil {
		return err
	}
	needed := d.state.Collected.Answer + 1
	if d.summaries != nil {
		if err := d.summaries.Store(ctx, d.state.Collected.Answer); err != nil {
			return err
		}
		needed = min(needed, d.summaries.Oldest()+1)
	}
	d.answers.Trim(needed)
	return nil
}

func (d *detection) endOf(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errCollected) {
		return nil
	}
	return err
}

// unserved notes that a decision is due for longer than Stall, which no GPU agent makes. The
// detector waits for one. A run fails in this case, since somebody waits for its end.
func (d *detection) unserved(since time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := false
	for k, entry := range d.due {
		due = due || entry > d.window.Answered(k)
	}
	switch {
	case !due:
		d.now.Waiting = ""
		return time.Now()
	case time.Since(since) > d.Stall:
		d.now.Waiting = "no GPU agent answers: start one (gpuagent --nats URL)"
		d.log.sometimes("no decision comes", "since", since, "cure", d.now.Waiting)
	}
	return since
}

// entry processes one entry of the log of decisions. Its steps are in this order: the states of
// evicted entities are stored, the sinks take the decisions, and the entry counts as answered. So
// feed, which waits for answers, runs ahead of no sink by more than feed.Unanswered batches. A
// batch that the swarm refuses fails the job: its rows would be missing.
func (d *detection) entry(ctx context.Context, e feed.Answer) error {
	if d.Directory != nil {
		d.Directory.Reach(e.Shard, e.Seq)
	}
	if d.summaries != nil {
		defer d.summaries.Reach(e.Place)
		if e.Place <= d.summaries.Sent { // the outputs have it
			if e.Kind != swarms.EntryDecide {
				return nil
			}
			got, _, err := d.decisions(e)
			if err == nil {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.Recent.Add(got, time.Now().UTC())
			}
			return err
		}
	}
	switch e.Kind {
	case swarms.EntrySwapped:
		v := d.evictions()
		if v == nil {
			break // another client has asked for it
		}
		got, err := swarms.DecodeSwapped(e.Data)
		if err != nil {
			return fmt.Errorf("answer %d of detector %s: %w", e.Seq, d.Name, err)
		}
		if err := v.States.Put(ctx, e.Place, got.States); err != nil {
			return err
		}
	case swarms.EntryDecide:
		got, incidents, err := d.decisions(e)
		if err != nil {
			return err
		}
		for _, t := range d.Outputs {
			if to, is := t.Sink.(IncidentSink); is {
				if err := to.SendIncidents(e.Place, incidents); err != nil {
					return err
				}
			}
			if err := t.Send(ctx, e.Place, got); err != nil {
				return err
			}
		}
		d.tally(e.Place, got)
	case swarms.EntryRejected:
		failure, asks, err := refusal(ctx, d.Name, d.Log(e.Shard, swarms.In), e.Entry)
		if err != nil || !asks {
			return cmp.Or(err, failure)
		}
	}
	d.mu.Lock()
	d.now.Waiting = ""
	d.reached = e.Place
	d.mu.Unlock()
	d.window.Reach(e.Shard, e.Seq)
	d.report(false)
	return nil
}

// decisions returns the decisions of an answer, with the numbers of their entities and explained,
// and the incidents that have ended.
func (d *detection) decisions(e feed.Answer) (got *batch.Decisions, ended []explain.Incident, err error) {
	if got, err = batch.DecodeDecisions(e.Data); err != nil {
		return nil, nil, fmt.Errorf("decisions %d of detector %s: %w", e.Seq, d.Name, err)
	}
	if err := d.state.Groups.Renumber(e.Shard, d.Agents, got); err != nil {
		return nil, nil, err
	}
	if err := d.known(got); err != nil {
		return nil, nil, err
	}
	if d.Explainer != nil {
		ended = d.Explainer.Explain(got)
	}
	return got, ended, nil
}

// known refuses decisions that cannot be written: a candidate or an entity that the detector does
// not have. Another client has appended their rows to the log of the swarm.
func (d *detection) known(got *batch.Decisions) error {
	for i := range got.Len() {
		if c := got.Decision[i]; c != batch.NoDecision && int(c) >= len(d.Candidates) {
			return jobs.Errorf(jobs.CodeInvalid, "detector %s: candidate %d of %d", d.Name, c,
				len(d.Candidates))
		}
		if d.Directory == nil {
			if got.Group[i] >= uint32(d.Record.Groups) {
				return jobs.Errorf(jobs.CodeInternal, "detector %s: a decision for group %d of %d", d.Name,
					got.Group[i], d.Record.Groups)
			}
			continue
		}
		if _, ok := d.Directory.Key(int(got.Group[i])); !ok {
			return jobs.Errorf(jobs.CodeInternal, "detector %s: a decision for group %d, which has no entity: another "+
				"client writes to its swarm: use a swarm of its own for that", d.Name, got.Group[i])
		}
	}
	return nil
}

// tally counts the decisions of the answer at a place, unless an earlier attempt has counted them.
// The latency includes the time without an attempt.
func (d *detection) tally(place uint64, got *batch.Decisions) {
	at := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now.LastDecision = at.UTC()
	for i := range got.Len() {
		took := time.Duration(at.UnixNano() - got.Read[i])
		d.latency.record(took)
		d.Metrics.detected(took)
	}
	d.Recent.Add(got, at.UTC())
	if place <= d.counted {
		return
	}
	d.counted = place
	for i := range got.Len() {
		if rows.DropReason(got, i) != "" {
			d.now.count(got, i)
			continue
		}
		d.now.Decisions++
		if int(got.Decision[i]) == len(d.Candidates)-1 {
			d.now.Anomalies++
		}
	}
}

// holds returns the first batch whose decisions a sink holds; 0 if there is none.
func (d *detection) holds() (first uint64) {
	for _, t := range d.Outputs {
		if h, is := t.Sink.(sink.Holder); is {
			if n := h.Held(); n > 0 && (first == 0 || n < first) {
				first = n
			}
		}
	}
	return first
}

func (d *detection) position() feed.Collected {
	first := d.holds()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := feed.Collected{
		Answer: d.reached, Counted: d.counted, Decisions: d.now.Decisions, Anomalies: d.now.Anomalies,
		Late: d.now.Late, Duplicates: d.now.Duplicates,
	}
	if first > 0 {
		c.Answer = min(c.Answer, first-1)
	}
	return c
}

// jobLogger is the log of a job with a bound on messages that repeat.
type jobLogger struct {
	*slog.Logger
	mu   sync.Mutex
	last map[string]time.Time // by message; the messages are few
}

func newJobLogger(l *slog.Logger) *jobLogger {
	return &jobLogger{Logger: l, last: map[string]time.Time{}}
}

// sometimes logs a warning unless it has done so for the same message within messageEvery.
func (l *jobLogger) sometimes(message string, args ...any) {
	l.mu.Lock()
	now := time.Now()
	late := now.Sub(l.last[message]) > messageEvery
	if late {
		l.last[message] = now
	}
	l.mu.Unlock()
	if late {
		l.Warn(message, args...)
	}
}

const messageEvery = time.Minute
