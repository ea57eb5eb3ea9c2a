package shard

import (
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// replay is the progress of a shard whose entries were answered by an earlier process. The
// goroutine that serves the shard moves it; any goroutine reads it.
type replay struct {
	from, to uint64 // it begins after entry from and ends with entry to
	began    time.Time
	at       atomic.Uint64 // the last entry that was replayed
	told     time.Time     // when the log was told last
}

// replayTold is the time between two log lines about a replay.
const replayTold = 10 * time.Second

// recovery returns the progress as the registry has it.
func (r *replay) recovery(key string) jobs.Recovery {
	at := r.at.Load()
	return jobs.Recovery{
		Shard: key,
		Entry: at,
		Of:    r.to,
		Rate:  float64(at-r.from) / max(time.Since(r.began).Seconds(), 1e-3),
	}
}
