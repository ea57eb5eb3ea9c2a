package natsq

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// runningJobs are the jobs that a worker executes now. The zero value is empty and ready. Its
// methods may be called from several goroutines.
type runningJobs struct {
	mu   sync.Mutex
	jobs map[string]*jobs.Running
}

// begin adds an attempt at a job, and takes the place of an earlier one that has not ended: a
// server that was killed may give out a job again. The caller calls end with the result when the
// handler has returned.
func (a *runningJobs) begin(id string, attempt int, worker string) *jobs.Running {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs == nil {
		a.jobs = map[string]*jobs.Running{}
	}
	r := &jobs.Running{JobID: id, Worker: worker, Attempt: attempt, Since: time.Now().UTC()}
	a.jobs[id] = r
	return r
}

// end removes an attempt, unless a later one has its place.
func (a *runningJobs) end(r *jobs.Running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs[r.JobID] == r {
		delete(a.jobs, r.JobID)
	}
}

// progress keeps the last progress of an attempt; nil for none. The caller must not change data
// afterwards.
func (a *runningJobs) progress(r *jobs.Running, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r != nil {
		r.Progress = data
	}
}

// answer returns the jobs that a question asks for, as many as fit into one message.
func (a *runningJobs) answer(worker string, q queue.RunningQuestion) queue.RunningAnswer {
	const most = jobs.MaxMessage / 2
	r := queue.RunningAnswer{Worker: worker, Running: []jobs.Running{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	size := 0
	for id, one := range a.jobs {
		if q.Job != "" && q.Job != id {
			continue
		}
		if size += len(one.Progress) + 256; size > most {
			r.Partial = true
			break
		}
		r.Running = append(r.Running, *one)
	}
	return r
}

// serve answers questions about the jobs of a worker until the subscription ends.
func (a *runningJobs) serve(nc *nats.Conn, p jobs.Pool, worker string,
	log *slog.Logger,
) (*nats.Subscription, error) {
	return nc.Subscribe(wire.RunningSubject(p), func(m *nats.Msg) {
		var q queue.RunningQuestion
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &q) != nil {
			return
		}
		data, err := json.Marshal(a.answer(worker, q))
		if err != nil {
			log.Warn("answering what runs", "error", err)
			return
		}
		_ = m.Respond(data) // best effort: the caller does not rely on all answers
	})
}

// oldest returns the time since the start of the job that has been running for the longest, 0
// without one.
func (a *runningJobs) oldest() (age time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.jobs {
		age = max(age, time.Since(r.Since))
	}
	return age
}
