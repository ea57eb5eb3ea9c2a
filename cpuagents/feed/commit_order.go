package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// orderEntry is an entry of the order of the answers of several shards.
type orderEntry struct {
	First  uint64   `json:"first"`  // the place of the first answer, from 1
	Before []uint64 `json:"before"` // by shard: the last answer before the first place
	Shards []int    `json:"shards"` // of the answers, in their order
	Kept   uint64   `json:"kept"`   // the entries before it are not needed
}

// order is the stored order of the answers of several shards. The goroutine that reads the answers
// adds to it, and the goroutine that collects trims it.
type order struct {
	mu     sync.Mutex
	log    *statelog.Log
	raw    swarms.Log
	next   uint64       // the first place that is not stored
	at     []uint64     // by shard: the last answer before next
	stored []orderEntry // the entries from number kept on
	kept   uint64
	first  uint64 // the entries before it were removed
}

func openOrder(ctx context.Context, l swarms.Log, shards int) (*order, error) {
	for tries := 0; ; tries++ {
		o := &order{log: statelog.New(l, entryOrder), raw: l, next: 1, at: make([]uint64, shards), kept: 1, first: 1}
		err := o.load(ctx)
		if err == nil {
			return o, nil
		}
		// An earlier attempt that still runs may remove entries while they are read.
		if errors.Is(err, statelog.ErrDamaged) || ctx.Err() != nil || tries == takeOverTries {
			return nil, err
		}
	}
}

func (o *order) load(ctx context.Context) error {
	if err := o.log.Open(ctx); err != nil {
		return err
	}
	if err := o.log.Read(ctx, o.log.Last(), func(data []byte) error {
		e, err := o.decode(data)
		o.kept = max(e.Kept, 1)
		o.first = o.kept
		return err
	}); err != nil {
		return err
	}
	return o.read(ctx, o.kept)
}

func (o *order) decode(data []byte) (e orderEntry, err error) {
	if err = json.Unmarshal(data, &e); err != nil {
		return e, err
	}
	wrong := func(shard int) bool { return shard < 0 || shard >= len(o.at) }
	if len(e.Before) != len(o.at) || slices.ContainsFunc(e.Shards, wrong) {
		return e, fmt.Errorf("it is not of %d shards", len(o.at))
	}
	return e, nil
}

func (o *order) read(ctx context.Context, from uint64) error {
	return o.log.Read(ctx, from, func(data []byte) error {
		e, err := o.decode(data)
		if err == nil {
			o.note(e)
		}
		return err
	})
}

func (o *order) note(e orderEntry) {
	o.stored = append(o.stored, e)
	o.next = e.First + uint64(len(e.Shards))
	o.at = slices.Clone(e.Before)
	for _, k := range e.Shards {
		o.at[k]++
	}
}

// from returns the last answers of the shards before a place, and the shards of the stored answers
// from there on. A place that is not stored is the next one.
func (o *order) from(place uint64) (at []uint64, shards []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.stored {
		end := e.First + uint64(len(e.Shards))
		if end <= place {
			continue
		}
		if at == nil {
			at = slices.Clone(e.Before)
		}
		for i, k := range e.Shards {
			if e.First+uint64(i) < place {
				at[k]++
			} else {
				shards = append(shards, k)
			}
		}
	}
	if at == nil {
		at = slices.Clone(o.at)
	}
	return at, shards
}

// add stores the shards of the next answers, and returns them. If another attempt has stored
// others, it returns those.
func (o *order) add(ctx context.Context, shards []int) ([]int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.next
	e := orderEntry{First: next, Before: o.at, Shards: shards, Kept: o.kept}
	err := o.log.Add(ctx, e)
	if err == nil {
		o.note(e)
		if o.kept > o.first { // a reader finds the first entry by the last one
			o.first = o.kept
			err = o.raw.Trim(ctx, o.kept)
		}
		return shards, err
	}
	if !errors.Is(err, jobs.ErrFenced) {
		return nil, err
	}
	from := o.log.Last() + 1
	if err := o.log.Open(ctx); err != nil {
		return nil, err
	}
	had := len(o.stored)
	if err := o.read(ctx, from); err != nil {
		return nil, err
	}
	shards = nil
	for _, e := range o.stored[had:] {
		shards = append(shards, e.Shards...)
	}
	return shards, nil
}

// trimOrder is the number of entries of the order that are removed at a time.
const trimOrder = 64

// trim lets the next add remove the entries whose answers are all before a place. The last entry
// stays.
func (o *order) trim(place uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for n < len(o.stored)-1 && o.stored[n+1].First <= place {
		n++
	}
	if n < trimOrder {
		return
	}
	o.stored = slices.Clone(o.stored[n:])
	o.kept += uint64(n)
}
