package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// stream is a load: files below the CPU agent's folder through a swarm into a file and, as
// decisions are made, into a folder of parts. Every second round has a swarm of three shards, which
// makes the same output. Batches of 16 rows make a round of it some seconds of
// synced messages on any machine.
func (r *recovery) stream() *load {
	t := r.t
	const files, batchRows = 4, 16
	perFile := *recoverRows
	r.inputs(files, perFile)
	spec := "name: recovery\nagents_per_group: 64\npage_size: 64KiB\ncheckpoint: {interval: 100ms, entries: 16}\n"
	specs := []json.RawMessage{specJSON(t, spec), specJSON(t, spec+"shards: 3\n")}
	rounds := 0
	var want [2][]string
	l := &load{name: "stream"}
	l.round = func(ctx context.Context, id string) ([]tally, error) {
		work := cpuagents.StreamSpec{
			Name: "recovery", Spec: specs[rounds%2], Candidates: []string{"normal", "suspicious", "anomalous"},
			Columns:  rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}},
			Manifest: "file:r/manifest.json", Output: "file:r/" + id + ".ndjson", Rejects: "file:r/" + id + ".rejects",
			Summary:   "file:r/" + id + ".summary",
			BatchRows: batchRows, Sinks: []sink.Spec{{URI: "file:r/" + id + ".parts", PartRows: 400}},
		}
		result, err := streamed(ctx, r.conn, id, work, l.came)
		if err != nil {
			return nil, err
		}
		rounds++
		if result.Decisions != uint64(files*perFile) {
			return nil, fmt.Errorf("%d decisions of %d rows", result.Decisions, files*perFile)
		}
		var found []tally
		for i, path := range []string{filepath.Join(r.root, id+".ndjson"), filepath.Join(r.root, id+".parts")} {
			got, err := lines(path)
			if err != nil {
				return nil, err
			}
			if want[i] == nil {
				want[i] = got
			}
			if len(want[i]) != files*perFile {
				return nil, fmt.Errorf("%s: %d lines of %d rows", path, len(want[i]), files*perFile)
			}
			found = append(found, compare(want[i], got))
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
		}
		return found, nil
	}
	return l
}

// inputs writes series of a number of rows below the CPU agent's folder, and their manifest.
func (r *recovery) inputs(files, perFile int) {
	r.t.Helper()
	var manifest []source.Series
	for i := range files {
		name := fmt.Sprintf("%d.csv", i)
		write(r.t, filepath.Join(r.root, "in", name), series(uint64(i), perFile))
		manifest = append(manifest, source.Series{Name: name, URI: "file:r/in/" + name})
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		r.t.Fatalf("json.Marshal: %v", err)
	}
	write(r.t, filepath.Join(r.root, "manifest.json"), string(text))
}

// streamed submits a stream job and waits for its end; came is told how many rows were decided
// since the last call.
func streamed(ctx context.Context, c *natsq.Conn, id string, work cpuagents.StreamSpec,
	came func(rows uint64),
) (result cpuagents.StreamResult, err error) {
	data, err := json.Marshal(work)
	if err != nil {
		return result, err
	}
	var mu sync.Mutex // the last progress may come together with the result
	var told uint64
	tell := func(decided uint64) {
		mu.Lock()
		defer mu.Unlock()
		if decided > told { // an attempt that begins anew counts from nothing
			came(decided - told)
			told = decided
		}
	}
	stop, err := c.Results.Progress(id, func(data json.RawMessage) {
		var p cpuagents.StreamProgress
		if json.Unmarshal(data, &p) == nil {
			tell(p.Decisions)
		}
	})
	if err != nil {
		return result, err
	}
	defer stop()
	job := jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: data,
		Submitted:   time.Now().UTC(),
		MaxAttempts: 100, ResultTTL: 600,
	}
	// One of this id is ours, and its acknowledgement was lost.
	if err := c.Queue.Submit(ctx, job); err != nil && !errors.Is(err, jobs.ErrExists) {
		return result, err
	}
	r, err := c.Results.Result(ctx, id)
	if err != nil {
		return result, err
	}
	if r.Status != jobs.Done {
		return result, fmt.Errorf("the job is %s: %w", r.Status, r.Error)
	}
	if err := json.Unmarshal(r.Output, &result); err != nil {
		return result, err
	}
	tell(result.Decisions)
	return result, nil
}

// simulationPage is the page of a simulation's spec in bytes.
const simulationPage = 64 << 10

// simulated is entries for a swarm of 2,400 agents that are addressed: observations, ticks,
// queries, votes, fusions, and some that are not valid.
type simulated struct {
	spec    json.RawMessage
	entries []swarms.Entry
}

func newSimulated(t *testing.T, n int) *simulated {
	t.Helper()
	s := &simulated{spec: specJSON(t, "name: x\naddressed: agent\nagents: 2400\nagents_per_group: 24\npage_size: "+
		"64KiB\nfeatures: [a, b]\n"+
		"vote: {candidates: [a, b, c], rule: majority}\ncheckpoint: {interval: 100ms, entries: 3}\n")}
	r := rand.New(rand.NewPCG(7, 7))
	add := func(kind string, v any) {
		s.entries = append(s.entries, entryOf(t, kind, uint64(len(s.entries)+1), v))
	}
	for len(s.entries) < n {
		o := &batch.AgentObservations{Width: 2}
		for range 200 {
			o.Agent = append(o.Agent, uint32(r.IntN(2400)))
			o.Features = append(o.Features, float32(r.NormFloat64()), float32(r.NormFloat64()))
		}
		switch r.IntN(10) {
		case 0:
			o.Agent[r.IntN(200)] = 2400
			add(swarms.EntryObserve, o)
		case 1:
			add(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: -r.IntN(5)})
		case 2:
			add(swarms.EntryQuery, swarms.Query{Version: jobs.Version, Groups: []uint32{uint32(r.IntN(100)), 3}})
		case 3:
			add(swarms.EntryQuery, swarms.Query{Version: jobs.Version, Agents: o.Agent})
		case 4, 5:
			add(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1 + r.IntN(60)})
		case 6:
			add(swarms.EntryVote, swarms.Vote{
				Version: jobs.Version, Round: r.Uint64N(4), Rule: swarms.RuleMajority,
				Priority: swarms.PrioritySeeded,
			})
		case 7:
			add(swarms.EntryFuse, swarms.Fuse{
				Version: jobs.Version,
				By:      []string{swarms.ByAll, swarms.ByVote, swarms.ByGroup}[r.IntN(3)],
			})
		default:
			add(swarms.EntryObserve, o)
		}
	}
	return s
}

// announce makes a swarm without entries.
func (s *simulated) announce(ctx context.Context, c *natsq.Conn, id string) error {
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := c.Swarms.Log(id, 0, d).Create(ctx); err != nil {
			return err
		}
	}
	return c.Swarms.CreateSwarm(ctx, swarms.Swarm{Version: jobs.Version, ID: id, Name: "x", Spec: s.spec, Groups: 100})
}

// append puts n entries behind the first from in the swarm's log.
func (s *simulated) append(ctx context.Context, c *natsq.Conn, id string, from, n int) error {
	in := c.Swarms.Log(id, 0, swarms.In)
	for i, e := range s.entries[from : from+n] {
		if err := in.Append(ctx, uint64(from+i), e); err != nil {
			return err
		}
	}
	return nil
}

// answers reads n answers of a swarm behind the first from, and looks that there is none behind
// them.
func answers(ctx context.Context, c *natsq.Conn, id string, from, n int, each func(swarms.Entry)) error {
	out := c.Swarms.Log(id, 0, swarms.Out)
	r, err := out.Read(ctx, uint64(from+1))
	if err != nil {
		return err
	}
	defer r.Close()
	for i := range n {
		e, err := r.Next(ctx)
		if err != nil {
			return fmt.Errorf("%s: answer %d of %d: %w", id, from+i+1, from+n, err)
		}
		each(e)
	}
	return endsAt(ctx, out, uint64(from+n))
}

// endsAt reports with an error that a log has more or fewer entries than n. A log that is too short
// is read again: the leader of its stream may have applied less than the replica that the entries
// were read from.
func endsAt(ctx context.Context, log swarms.Log, n uint64) error {
	for began := time.Now(); ; letPass(ctx, 50*time.Millisecond) {
		last, err := log.Last(ctx)
		switch {
		case err != nil || last.Seq == n:
			return err
		case last.Seq > n || time.Since(began) > 2*time.Minute:
			return fmt.Errorf("the log has %d entries, %d are expected; the last one is %s %d", last.Seq, n, last.Kind,
				last.Ref)
		}
	}
}

// answerLine is an answer with its place as a line.
func answerLine(e swarms.Entry) string {
	return fmt.Sprintf("%d %s %d %x\n", e.Seq, e.Kind, e.Ref, e.Data)
}

// addressed is a load: a swarm whose agents are addressed, its entries appended while others are
// answered, up to 32 ahead.
func (r *recovery) addressed(s *simulated) *load {
	var want []string
	l := &load{name: "addressed"}
	l.round = func(ctx context.Context, id string) ([]tally, error) {
		if err := s.announce(ctx, r.conn, id); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		var appending sync.WaitGroup
		defer appending.Wait()
		defer cancel(nil)
		ahead := make(chan struct{}, 32)
		appending.Go(func() {
			for i := range s.entries {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
				if err := s.append(ctx, r.conn, id, i, 1); err != nil {
					cancel(err)
					return
				}
			}
		})
		var got []string
		if err := answers(ctx, r.conn, id, 0, len(s.entries), func(e swarms.Entry) {
			got = append(got, answerLine(e))
			l.came(1)
			<-ahead
		}); err != nil {
			return nil, err
		}
		if want == nil {
			want = got
		}
		return []tally{compare(want, got)}, r.conn.Swarms.RemoveSwarm(ctx, swarms.Swarm{ID: id})
	}
	return l
}
