package swarmclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// each runs do concurrently for every shard for which has is true (nil: all), and waits for all of
// them. Its error is that of the first shard that failed, followed by the other shards that failed
// and those that answered.
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

// ask is askUntil with the timeout of the swarm.
func ask[T any](ctx context.Context, s *Swarm, kind string, has func(k int) bool, data func(k int) ([]byte, error),
	want string, decode func([]byte) (T, error),
) ([]T, error) {
	return askUntil(ctx, s, time.Now().Add(s.timeout), kind, has, data, want, decode)
}

// askUntil appends an entry of a kind to the log of each shard for which has is true (nil: all),
// and decodes the answers, which must be of the kind want. data returns the data of the entry of a
// shard. All answers must come before one deadline. The result is by shard, with the zero value for
// shards that were not asked.
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

// askAll is ask with one entry for all shards.
func askAll[T any](ctx context.Context, s *Swarm, kind string, entry any, want string,
	decode func([]byte) (T, error),
) ([]T, error) {
	return ask(ctx, s, kind, nil, func(int) ([]byte, error) { return json.Marshal(entry) }, want, decode)
}
