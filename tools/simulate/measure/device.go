package main

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// bench is the states of a swarm on the host device, and packed entries for each.
type bench struct {
	dev    *host.Device
	states []state.State
	packed [][][]byte // by state
}

// openBench makes a swarm of some shards with entries of some rows. workers 0 means all cores.
func openBench(ctx context.Context, shards, rows, workers int) (_ *bench, err error) {
	b := &bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dev, err = host.Open(host.Options{Workers: workers}); err != nil {
		return nil, err
	}
	of, spec, err := swarmOf(shards)
	if err != nil {
		return nil, err
	}
	for k := range shards {
		s, err := state.New(b.dev, pages.NewBudget(0, 0), spec, state.RangeOf(of, k))
		if err != nil {
			return nil, err
		}
		b.states = append(b.states, s)
		if err := s.Memory().Open(ctx, nil); err != nil {
			return nil, err
		}
		if err := s.Reset(ctx); err != nil {
			return nil, err
		}
		var all [][]byte
		for _, o := range observations(of, k, rows) {
			data, err := o.Pack()
			if err != nil {
				return nil, err
			}
			all = append(all, data)
		}
		b.packed = append(b.packed, all)
	}
	return b, nil
}

func (b *bench) close() error {
	var errs []error
	for _, s := range b.states {
		errs = append(errs, s.Memory().Shut(), s.Close())
	}
	if b.dev != nil {
		errs = append(errs, b.dev.Close())
	}
	return errors.Join(errs...)
}

func (b *bench) decoded(k int) ([]state.Observations, error) {
	all := make([]state.Observations, kinds)
	for i, data := range b.packed[k] {
		o, err := b.states[k].Decode(data)
		if err != nil {
			return nil, err
		}
		all[i] = o
	}
	return all, nil
}

// device measures what the process of a GPU agent does with entries: it decodes them, merges them
// into batches, observes, and encodes the answers.
func (m *measurement) device() error {
	for _, rows := range m.rows {
		for shards := 1; shards <= m.shards; shards *= 2 {
			if err := m.observe(shards, rows); err != nil {
				return err
			}
		}
		for _, workers := range powers() {
			b, err := openBench(m.ctx, 1, rows, workers)
			if err != nil {
				return err
			}
			keys := map[string]float64{"rows": float64(rows), "workers": float64(workers), "entries": 1}
			if err := errors.Join(m.batches(b, "workers", 1, keys), b.close()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *measurement) observe(shards, rows int) (err error) {
	b, err := openBench(m.ctx, shards, rows, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	s := b.states[0]
	if shards == 1 {
		keys := map[string]float64{"rows": float64(rows), "bytes": float64(len(b.packed[0][0]))}
		if err := m.repeat("decode", keys, func(i int) error {
			_, err := s.Decode(b.packed[0][i%kinds])
			return err
		}); err != nil {
			return err
		}
		if err := m.answers(b, rows); err != nil {
			return err
		}
	}
	for entries := 1; entries <= 64 && entries*rows <= 1<<17; entries *= 4 {
		keys := map[string]float64{"rows": float64(rows), "entries": float64(entries)}
		if err := m.batches(b, "observe", entries, keys); err != nil {
			return err
		}
	}
	return nil
}

// batches measures batches of entries, of all states at a time: "merge" is the filling of a batch,
// and name its observation.
func (m *measurement) batches(b *bench, name string, entries int, keys map[string]float64) error {
	all := make([][]state.Observations, len(b.states))
	for k := range all {
		var err error
		if all[k], err = b.decoded(k); err != nil {
			return err
		}
	}
	var merged times.Histogram
	var worked time.Duration
	calls := 0
	one := len(b.states) == 1
	err := m.together(name, len(b.states), keys, func(k, i int) (time.Duration, error) {
		began := time.Now()
		batch := b.states[k].NewBatch()
		for e := range entries {
			batch.Add(all[k][(i*entries+e)%kinds])
		}
		ready := time.Now()
		before := time.Duration(0)
		if one {
			merged.Add(ready.Sub(began).Nanoseconds())
			before = ownTime()
			ready = time.Now()
		}
		_, err := batch.Observe(m.ctx)
		took := time.Since(ready)
		if one {
			worked += ownTime() - before
			calls++
		}
		return took, err
	})
	if one && err == nil {
		keys["cpu"] = float64(worked.Nanoseconds()) / float64(max(1, calls))
		if name == "observe" {
			m.add("merge", map[string]float64{"rows": keys["rows"], "entries": keys["entries"]}, merged)
		}
	}
	return err
}

func (m *measurement) answers(b *bench, rows int) error {
	all, err := b.decoded(0)
	if err != nil {
		return err
	}
	batch := b.states[0].NewBatch()
	batch.Add(all[0])
	given, err := batch.Observe(m.ctx)
	if err != nil {
		return err
	}
	done, err := given[0].Encoded()
	if err != nil {
		return err
	}
	keys := map[string]float64{"rows": float64(rows), "bytes": float64(len(done.Data))}
	return m.repeat("answer", keys, func(int) error {
		_, err := given[0].Encoded()
		return err
	})
}

// cores measures how much slower the same work is on several cores at a time: it decodes entries.
func (m *measurement) cores() error {
	b, err := openBench(m.ctx, 1, m.rows[1], 1)
	if err != nil {
		return err
	}
	for _, k := range powers() {
		keys := map[string]float64{"rows": float64(m.rows[1])}
		if err = m.together("cores", k, keys, func(_, i int) (time.Duration, error) {
			began := time.Now()
			_, err := b.states[0].Decode(b.packed[0][i%kinds])
			return time.Since(began), err
		}); err != nil {
			break
		}
	}
	return errors.Join(err, b.close())
}
