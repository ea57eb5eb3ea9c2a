package natsq

import (
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// sourceTable knows which sources of a pool may have jobs. The server announces each stored job
// once, and announcements can be lost; redeliveries are not announced. So every source is also
// polled from time to time. The methods may be called from several goroutines, and none waits for
// the server.
type sourceTable struct {
	wake func() // called when a source may have jobs, without the lock

	mu      sync.Mutex
	sources map[wire.Source]*sourceState
	polls   int // calls of pollAll
}

// sourceState is what the worker knows of one source.
type sourceState struct {
	ready bool // a fetch may find jobs
	// news counts the announcements and polls. A fetch that found nothing makes the source not
	// ready only if there were no news since the fetch began.
	news        uint64
	announced   time.Time // the last announcement
	hasConsumer bool
	longPoll    bool // the next fetch waits at the server
	open        int  // batches that keep a request open at the source
	away        bool // its stream does not answer; no poll makes it ready
}

func newSourceTable(wake func()) *sourceTable {
	return &sourceTable{wake: wake, sources: map[wire.Source]*sourceState{}}
}

// The server announces a job some microseconds before its consumer hands the job out. A source that
// was announced and had no job is asked again, with growing pauses, until lastRecheck has passed
// since the announcement. Without that, three in ten jobs of an idle worker waited for the next
// poll (measured).
const (
	firstRecheck = 200 * time.Microsecond
	lastRecheck  = 50 * time.Millisecond
	// firstWait is how long the server may wait for a job that it has just announced, before the
	// first recheck.
	firstWait = 2 * time.Millisecond
)

// add makes a source ready; hasConsumer reports whether its consumer exists.
func (t *sourceTable) add(s wire.Source, hasConsumer bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.sources[s]
	if st == nil {
		st = &sourceState{}
		t.sources[s] = st
	}
	st.ready, st.away = true, false
	st.news++
	st.hasConsumer = st.hasConsumer || hasConsumer
}

// announce makes a source ready for which the server has stored a job.
func (t *sourceTable) announce(s wire.Source) {
	t.add(s, false)
	t.mu.Lock()
	t.sources[s].announced = time.Now()
	t.mu.Unlock()
	t.wake()
}

// pollAll makes all sources ready. The next fetch of one source waits at the server. It returns
// their number.
func (t *sourceTable) pollAll() int {
	t.mu.Lock()
	n := len(t.sources)
	t.polls++
	i := 0
	for _, st := range t.sources {
		st.ready = !st.away
		st.news++
		// One per call, because the wait delays the other sources. The order of the map is random,
		// which chooses each of them in the end.
		st.longPoll = i == t.polls%n
		i++
	}
	t.mu.Unlock()
	t.wake()
	return n
}

// candidates returns the sources that are ready and at which no batch keeps a request open.
func (t *sourceTable) candidates() (all []wire.Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, st := range t.sources {
		if st.ready && st.open == 0 {
			all = append(all, s)
		}
	}
	return all
}

// wait returns how long the server may wait for jobs of a source: long if the source is polled,
// short if it was just announced and the worker has no other source to ask meanwhile, else 0. With
// 0 the server answers from a count of pending jobs, which can be 0 while a job exists (nats-server
// 2.15.2, RFC 0007). A request that waits finds the job.
func (t *sourceTable) wait(s wire.Source, ready int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.sources[s]
	long := st.longPoll
	st.longPoll = false
	switch {
	case long:
		return natsconn.ReadWait
	case ready == 1 && time.Since(st.announced) <= lastRecheck:
		return firstWait
	}
	return 0
}

// begin returns the state of a source when a fetch begins: its news, for noJobs and drained, and
// whether its consumer exists.
func (t *sourceTable) begin(s wire.Source) (news uint64, hasConsumer bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.sources[s]
	return st.news, st.hasConsumer
}

// consumer records whether the consumer of a source exists.
func (t *sourceTable) consumer(s wire.Source, exists bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[s].hasConsumer = exists
}

// leave makes a source not ready until add is called for it.
func (t *sourceTable) leave(s wire.Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[s].ready, t.sources[s].away = false, true
}

// noJobs makes a source not ready, unless there were news since begin returned news.
func (t *sourceTable) noJobs(s wire.Source, news uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.sources[s]; st.news == news {
		st.ready = false
	}
}

// drained is noJobs after a fetch got fewer jobs than it asked for. The source is asked again
// shortly if its last announcement is recent.
func (t *sourceTable) drained(s wire.Source, news uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.sources[s]
	if st.news != news {
		return
	}
	st.ready = false
	if since := time.Since(st.announced); since < lastRecheck {
		time.AfterFunc(max(since, firstRecheck), func() { t.add(s, false); t.wake() })
	}
}

// keepOpen records that a batch keeps a request open at a source, until closed. Another fetch of
// the source would take jobs from the batch.
func (t *sourceTable) keepOpen(s wire.Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[s].open++
}

func (t *sourceTable) closed(s wire.Source) {
	t.mu.Lock()
	t.sources[s].open--
	t.mu.Unlock()
	t.wake()
}
