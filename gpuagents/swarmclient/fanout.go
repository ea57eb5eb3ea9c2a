package swarmclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// each runs do concurrently for every shard for which has is true (nil: all), and waits for all of
// them. It returns the error of the first shard that failed, with lists of the other shards that
// failed and of the shards that answered.
func (s *Swarm) each(has func(k int) bool, do func(k shard) error) error {
	n := s.record.ShardCount()
	errs := make([]error, n)
	var all sync.WaitGroup
	for k := range n {
		if has == nil || has(k) {
			all.Go(func() { errs[k] = do(shard{s, k}) })
		}
	}
	all.Wait()
	var failed, done []int
	for k, err := range errs {
		switch {
		case err != nil:
			failed = append(failed, k)
		case has == nil || has(k):
			done = append(done, k)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	err := errs[failed[0]]
	if n == 1 {
		return err
	}
	if len(failed) > 1 {
		err = fmt.Errorf("%w; %s failed too", err, shardList(failed[1:]))
	}
	switch len(done) {
	case 0:
		return fmt.Errorf("%w; no shard has answered", err)
	case 1:
		return fmt.Errorf("%w; %s has answered", err, shardList(done))
	}
	return fmt.Errorf("%w; %s have answered", err, shardList(done))
}

// shardList returns a list such as "shard 2" or "shards 0, 1, 5".
func shardList(all []int) string {
	var names []string
	for _, k := range all {
		names = append(names, strconv.Itoa(k))
	}
	if len(names) == 1 {
		return "shard " + names[0]
	}
	return "shards " + strings.Join(names, ", ")
}

func ask[T any](ctx context.Context, s *Swarm, kind string, has func(k int) bool, data func(k int) ([]byte, error),
	want string, decode func([]byte) (T, error),
) ([]T, error) {
	return askUntil(ctx, s, time.Now().Add(s.timeout), kind, has, data, want, decode)
}

// askUntil appends an entry of a kind to the log of each shard for which has is true (nil: all),
// and decodes the answers, which must be of the kind want. data returns the data of the entry of a
// shard. All answers must arrive before the deadline. The result is by shard, with the zero value
// for shards that were not asked.
func askUntil[T any](ctx context.Context, s *Swarm, deadline time.Time, kind string, has func(k int) bool,
	data func(k int) ([]byte, error), want string, decode func([]byte) (T, error),
) ([]T, error) {
	all := make([]T, s.record.ShardCount())
	return all, s.each(has, func(k shard) error {
		d, err := data(k.number)
		if err != nil {
			return fmt.Errorf("encode a %s: %w", kind, err)
		}
		if d, err = k.ask(ctx, deadline, kind, d, want); err != nil {
			return err
		}
		all[k.number], err = decode(d)
		return err
	})
}

func askAll[T any](ctx context.Context, s *Swarm, kind string, entry any, want string,
	decode func([]byte) (T, error),
) ([]T, error) {
	return ask(ctx, s, kind, nil, func(int) ([]byte, error) { return json.Marshal(entry) }, want, decode)
}

// askSplit is ask for the shards that have ids of p, and merges their answers. splitErr is the
// error of the split, which names an id that does not exist, and call the call that fails with it.
func askSplit[A, R any](ctx context.Context, s *Swarm, p *Split, splitErr error, call, kind string,
	data func(k int) ([]byte, error), want string, decode func([]byte) (A, error),
	merge func(*Split, []A) (R, error),
) (none R, _ error) {
	if splitErr != nil {
		return none, jobs.Errorf(jobs.CodeInvalid, "%s: %v", call, splitErr)
	}
	all, err := ask(ctx, s, kind, p.Has, data, want, decode)
	if err != nil {
		return none, err
	}
	merged, err := merge(p, all)
	if err != nil {
		return none, s.badAnswer(err)
	}
	return merged, nil
}
