package natsq

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// atHand keeps the jobs that a worker runs. Its methods may be called from several goroutines.
type atHand struct {
	mu   sync.Mutex
	jobs map[string]*jobs.Running
}

func (a *atHand) begin(t *task, worker string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs == nil {
		a.jobs = map[string]*jobs.Running{}
	}
	a.jobs[t.id] = &jobs.Running{JobID: t.id, Worker: worker, Attempt: t.attempt, Since: time.Now().UTC()}
}

func (a *atHand) end(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.jobs, id)
}

// progress keeps the last progress of a job. data is not changed afterwards.
func (a *atHand) progress(id string, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.jobs[id]; r != nil {
		r.Progress = data
	}
}

// answer returns the jobs that a question asks for, as many as fit into a message.
func (a *atHand) answer(worker string, q queue.RunningQuestion) queue.RunningAnswer {
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

// answerRunning answers questions about the jobs at hand until the subscription ends.
func (w *Worker) answerRunning() (*nats.Subscription, error) {
	return w.c.NC.Subscribe(wire.RunningSubject(w.Pool), func(m *nats.Msg) {
		var q queue.RunningQuestion
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &q) != nil {
			return
		}
		data, err := json.Marshal(w.hand.answer(w.Name, q))
		if err != nil {
			w.Logger.Warn("answering what runs", "error", err)
			return
		}
		_ = m.Respond(data) // a question without an answer is asked again by whoever needs it
	})
}
