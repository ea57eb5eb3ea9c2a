package feed

import (
	"context"
	"sync"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Answer is an answer of a swarm. Place is its number among the answers of all shards, in the order
// in which sinks get them; with one shard it is the number of the entry.
type Answer struct {
	swarms.Entry
	Shard int
	Place uint64
}

// Answers reads the answers of all shards in one order, which is the same for every attempt.
type Answers struct {
	out   []swarms.Log
	order *order   // nil for one shard
	from  []uint64 // by shard: the first answer
	place uint64   // of the first answer
	plan  []int    // the shards of the stored answers from there on
	// trimmed are by shard the answers from the asked place on that were removed before they were
	// read. They have places too.
	trimmed []uint64
}

// Answers opens the answers of the swarm from a place on, at most the one after the last answer
// that the sinks have. at is by shard the last answer that they have. Call it before NoteCollected.
func (s *State) Answers(ctx context.Context, from uint64) (a *Answers, at []uint64, err error) {
	a = &Answers{from: []uint64{from}, place: from, trimmed: make([]uint64, len(s.in))}
	at = []uint64{s.Collected.Answer}
	if len(s.in) > 1 {
		if a.order, err = openOrder(ctx, s.o.Log(s.o.Logs.Order, swarms.In), len(s.in)); err != nil {
			return nil, nil, err
		}
		at, _ = a.order.from(s.Collected.Answer + 1)
		a.from, a.plan = a.order.from(from)
		for k := range a.from {
			a.from[k]++
		}
	}
	for k, base := range s.bases {
		a.out = append(a.out, s.o.Log(k, swarms.Out))
		if base > a.from[k] {
			a.trimmed[k], a.from[k] = base-a.from[k], base
		}
	}
	return a, at, nil
}

// Trimmed returns the number of answers from the asked place on that were removed before they were
// read. Call it before Run.
func (a *Answers) Trimmed() (n uint64) {
	for _, of := range a.trimmed {
		n += of
	}
	return n
}

// Run passes the answers on until ctx ends, and returns the error that ended it. One goroutine
// calls it once.
func (a *Answers) Run(ctx context.Context, to chan<- Answer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel(nil)
	failed := make(chan error, len(a.out))
	got := make([]chan swarms.Entry, len(a.out))
	arrived := make(chan struct{}, 1)
	for k, l := range a.out {
		r, err := l.Read(ctx, a.from[k])
		if err != nil {
			return err
		}
		got[k] = make(chan swarms.Entry, ahead)
		reading.Go(func() {
			defer r.Close()
			for {
				e, err := r.Next(ctx)
				if err != nil {
					failed <- err
					return
				}
				select {
				case got[k] <- e:
				case <-ctx.Done():
					return
				}
				select {
				case arrived <- struct{}{}:
				default:
				}
			}
		})
	}
	place := a.place
	pass := func(k int) error {
		if a.trimmed[k] > 0 {
			a.trimmed[k]--
			place++
			return nil
		}
		var e swarms.Entry
		select {
		case e = <-got[k]:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case to <- Answer{Entry: e, Shard: k, Place: place}:
			place++
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for plan := a.plan; ; {
		for _, k := range plan {
			if err := pass(k); err != nil {
				return err
			}
		}
		plan = plan[:0]
		for k := range got {
			for range a.trimmed[k] + uint64(len(got[k])) {
				plan = append(plan, k)
			}
		}
		if len(plan) > 0 && a.order != nil {
			var err error
			if plan, err = a.order.add(ctx, plan); err != nil {
				return err
			}
		}
		if len(plan) > 0 {
			continue
		}
		select {
		case <-arrived:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ahead is the number of answers of a shard that are read before they have a place.
const ahead = 16

// Trim lets the order of answers before a place be removed, which no attempt reads again.
func (a *Answers) Trim(place uint64) {
	if a.order != nil {
		a.order.trim(place)
	}
}
