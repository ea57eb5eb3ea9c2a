package natsconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// LevelsAge is how long a submitter believes what it has read about the levels of a pool.
const LevelsAge = 5 * time.Second

// levels caches the streams of levels for a connection. The zero value is empty.
type levels struct {
	mu    sync.Mutex
	pools map[jobs.Pool]poolLevels
}

type poolLevels struct {
	exist    []jobs.Level // in the order of jobs.Levels
	read     time.Time    // when exist was read
	replicas int          // of the default level; 0: not known
	counted  time.Time    // when replicas was read
	// silent is until when a level is not asked, because its server did not answer.
	silent map[jobs.Level]time.Time
	// reconnects is the count of the connection when something was read. A server that has started
	// again has lost its streams in memory.
	reconnects uint64
}

// levelsOf returns what is known of the levels of a pool since the connection was last made.
func (c *Conn) levelsOf(p jobs.Pool) poolLevels {
	n := c.NC.Stats().Reconnects
	c.levels.mu.Lock()
	defer c.levels.mu.Unlock()
	if known := c.levels.pools[p]; known.reconnects == n {
		return known
	}
	return poolLevels{reconnects: n}
}

// learn changes the cached levels of a pool, unless the connection was made again since was was
// read.
func (c *Conn) learn(p jobs.Pool, was poolLevels, fn func(*poolLevels)) {
	known := c.levelsOf(p)
	if known.reconnects != was.reconnects {
		return
	}
	c.levels.mu.Lock()
	defer c.levels.mu.Unlock()
	fn(&known)
	if c.levels.pools == nil {
		c.levels.pools = map[jobs.Pool]poolLevels{}
	}
	c.levels.pools[p] = known
}

// AtLevel is Retry for a request to the stream of a pool and level. A level other than the default
// is asked once, and briefly, so that a level whose only server is away does not stop the readers
// of all levels. The call fails with jobs.ErrUnavailable then, at once for the next LevelsAge, and
// with jobs.ErrNotFound if there is no such stream any more.
func (c *Conn) AtLevel(ctx context.Context, p jobs.Pool, l jobs.Level, what string,
	fn func(ctx context.Context) error,
) error {
	if l == "" {
		return c.Retry(ctx, what, fn)
	}
	silent := fmt.Errorf("%s: level %s of pool %s does not answer: start the NATS server that has it: %w", what, l, p,
		jobs.ErrUnavailable)
	was := c.levelsOf(p)
	if time.Now().Before(was.silent[l]) {
		return silent
	}
	try, cancel := context.WithTimeout(ctx, ShortTry)
	defer cancel()
	err := fn(try)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%s: there is no level %s: %w", what, l, jobs.ErrNotFound)
	case !IsTransient(err):
		return err
	}
	c.learn(p, was, func(known *poolLevels) {
		silent := maps.Clone(known.silent)
		if silent == nil {
			silent = map[jobs.Level]time.Time{}
		}
		silent[l] = time.Now().Add(LevelsAge)
		known.silent = silent
	})
	return silent
}

// JobLevels returns the levels of a pool, without the default, whose streams exist. The answer is
// at most maxAge old; with 0 the server is asked. Most clusters have none.
func (c *Conn) JobLevels(ctx context.Context, p jobs.Pool, maxAge time.Duration) (all []jobs.Level, err error) {
	was := c.levelsOf(p)
	if time.Since(was.read) < maxAge {
		return was.exist, nil
	}
	began := time.Now()
	err = c.Retry(ctx, "look for the levels of pool "+string(p), func(ctx context.Context) error {
		all = nil
		list := c.JS.StreamNames(ctx, jetstream.WithStreamListSubject("exo.job."+string(p)+".>"))
		for name := range list.Name() {
			if l, ok := wire.LevelOf(name); ok {
				all = append(all, l)
			}
		}
		return list.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b jobs.Level) int {
		return slices.Index(jobs.Levels(), a) - slices.Index(jobs.Levels(), b)
	})
	c.learn(p, was, func(known *poolLevels) { known.exist, known.read = all, began })
	return all, nil
}

// GrantLevel returns the level at which the cluster stores jobs of a pool that ask for l, and makes
// the stream of the level. The default level, which is empty, is granted for as many replicas as it
// has. More are refused with jobs.CodeInvalid and the cure: results, waiting and delayed jobs and
// dead letters have the replicas of the default level, so no higher number would hold everywhere on
// a job's way.
func (c *Conn) GrantLevel(ctx context.Context, p jobs.Pool, l jobs.Level) (jobs.Level, error) {
	if l == "" {
		return "", nil
	}
	n, err := c.defaultReplicas(ctx, p)
	if err != nil {
		return "", err
	}
	switch {
	case l == jobs.LevelMemory || l.Replicas() < n:
		return l, c.makeLevel(ctx, p, l)
	case l.Replicas() == n:
		return "", nil
	}
	return "", jobs.Errorf(jobs.CodeInvalid, "replicas %d: the streams of this cluster have %d, and a job may ask for "+
		"at most as many: ask for fewer, or give the streams more (exoswarm init --replicas %d, on as many servers)",
		l.Replicas(), n, l.Replicas())
}

func (c *Conn) defaultReplicas(ctx context.Context, p jobs.Pool) (n int, err error) {
	was := c.levelsOf(p)
	if was.replicas > 0 && time.Since(was.counted) < LevelsAge {
		return was.replicas, nil
	}
	began := time.Now()
	err = c.Retry(ctx, "look at the queue of pool "+string(p), func(ctx context.Context) error {
		s, err := c.JS.Stream(ctx, wire.JobStream(p))
		if err == nil {
			n = max(s.CachedInfo().Config.Replicas, 1)
		}
		return err
	})
	if err == nil {
		c.learn(p, was, func(known *poolLevels) { known.replicas, known.counted = n, began })
	}
	return n, err
}

func (c *Conn) makeLevel(ctx context.Context, p jobs.Pool, l jobs.Level) error {
	all, err := c.JobLevels(ctx, p, LevelsAge)
	if err != nil || slices.Contains(all, l) {
		return err
	}
	began := time.Now()
	err = c.Retry(ctx, fmt.Sprintf("make the stream of level %s", l), func(ctx context.Context) error {
		_, err := c.JS.CreateStream(ctx, queued(p, l))
		var api *jetstream.APIError
		switch {
		case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // an operator has changed it
			return nil
		case errors.As(err, &api) && api.ErrorCode == errCodeNoMemory,
			l == jobs.LevelMemory && TooFewServers(err, time.Since(began)):
			return jobs.Errorf(jobs.CodeInvalid, "durability %q: the NATS server has no room for a stream of %d MiB "+
				"in memory (%v): raise its max_memory_store, or leave durability out", jobs.DurabilityMemory,
				maxMemory>>20, err)
		case TooFewServers(err, time.Since(began)):
			return jobs.Errorf(jobs.CodeInvalid, "replicas %d: the NATS server has not as many servers for streams "+
				"(%v): use fewer replicas, or add servers", l.Replicas(), err)
		}
		return err
	})
	if errors.Is(err, jobs.ErrDenied) {
		return fmt.Errorf("%w: the role of this login is of an earlier version: renew it (exoswarm auth), or let an "+
			"operator submit the first job of level %s", err, l)
	}
	if err == nil {
		_, err = c.JobLevels(ctx, p, 0)
	}
	return err
}

// errCodeNoMemory is the error of a server whose limit of memory is reached.
const errCodeNoMemory = 10028

// settled is how long a cluster may report too few servers during an election.
const settled = 10 * time.Second

// errCodeNoCluster is the error of a single server for more than one replica. A cluster with too
// few servers returns ErrCodeNoPeers.
const errCodeNoCluster = 10074

// TooFewServers reports whether a stream was refused because it has more replicas than the cluster
// has servers. A cluster returns the same error for a moment during an election, and as long as one
// of its servers is away. In the second case the error names the offline peer, and the stream can
// be made when that server is back.
func TooFewServers(err error, after time.Duration) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.ErrorCode == errCodeNoCluster || api.ErrorCode == ErrCodeNoPeers && after > settled &&
		!strings.Contains(api.Description, offlinePeer)
}

// offlinePeer is the text that nats-server 2.15.2 adds to the error while a server of the cluster
// is away.
const offlinePeer = "peer offline"
