package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// burn is a process that observes on the host device, batch after batch, until its standard input
// ends. Other stages are measured while it runs, as they run beside the process of an agent.
func burn(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("burn", flag.ContinueOnError)
	shards := flags.Int("shards", 1, "states that observe at a time")
	rows := flags.Int("rows", 1000, "of a batch")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := openBench(ctx, *shards, *rows, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	held := make([]byte, ballast)
	defer func() { _ = held[0] }()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		ended(ctx)
		cancel()
	}()
	fmt.Println("burning")
	return parallel(*shards, func(k int) error {
		all, err := b.decoded(k)
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			batch := b.states[k].NewBatch()
			batch.Add(all[i%kinds])
			_, err = batch.Observe(context.WithoutCancel(ctx))
		}
		return err
	})
}

// beside measures packing and appending beside a busy device, and appends with pauses: a process
// that has been idle is slower to answer. Each number of shards has a writer and an appender of
// answers.
func (m *measurement) beside() (err error) {
	c, err := m.openCluster(mostStreams + 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, rows := range m.rows {
		for shards := 0; shards <= m.shards; shards = max(1, 2*shards) {
			if err := m.besideOf(c, rows, shards); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *measurement) besideOf(c *cluster, rows, shards int) (err error) {
	if shards > 0 {
		p, err := spawn(m.ctx, "burn", "-shards", fmt.Sprint(shards), "-rows", fmt.Sprint(rows))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.close()) }()
	}
	of, _, err := swarmOf(1)
	if err != nil {
		return err
	}
	entries := observations(of, 0, rows)
	data, err := entries[0].Pack()
	if err != nil {
		return err
	}
	if err := m.together("encode", max(1, shards), map[string]float64{
		"rows": float64(rows), "beside": float64(shards), "bytes": float64(len(data)),
	}, func(_, i int) (time.Duration, error) {
		began := time.Now()
		_, err := entries[i%kinds].Pack()
		return time.Since(began), err
	}); err != nil {
		return err
	}
	logs, err := m.logs(c, fmt.Sprint("b", rows, "x", shards))
	if err != nil {
		return err
	}
	for _, idle := range []float64{0, 1} {
		if idle == 0 && shards == 0 {
			continue // is measured with the broker
		}
		err = errors.Join(err, m.paced(c, logs[:2*max(1, shards)], len(data), float64(shards), idle))
	}
	for k := range logs {
		err = errors.Join(err, logs[k].log.Delete(m.ctx))
	}
	return err
}

// paced is append of single entries with pauses of random lengths, idle times the mean call on
// average.
func (m *measurement) paced(c *cluster, all []connWith, size int, beside, idle float64) error {
	data := random(size)
	keys := map[string]float64{"bytes": float64(size), "entries": 1, "beside": beside, "idle": idle}
	spent := make([]time.Duration, len(all))
	calls := make([]int64, len(all))
	random := make([]*rand.Rand, len(all))
	for k := range random {
		random[k] = rand.New(rand.NewPCG(uint64(k), 3))
	}
	return m.together("append", len(all), keys, func(k, i int) (time.Duration, error) {
		l := &all[k]
		if idle > 0 && calls[k] > 0 {
			mean := float64(spent[k]) / float64(calls[k])
			sleep(time.Duration(random[k].ExpFloat64() * idle * mean))
		}
		began := time.Now()
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: l.end + 1, Data: data}
		if err := l.log.Append(m.ctx, l.end, e); err != nil {
			return 0, err
		}
		took := time.Since(began)
		l.end++
		calls[k]++
		spent[k] += took
		return took, nil
	})
}
