package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
)

// The states of a job in the model.
type state int

const (
	absent state = iota
	queued
	delayed
	done
	failed
	cancelled
)

// testModel does random sequences of calls on the queue and on a model of it, a map from id to
// state, and compares what both say. There is a worker only while the sequence says that all queued
// jobs are to be done, so that the answer to every call is known. (A pause would not do: it reaches
// a worker some time after the call.)
func testModel(t *testing.T, q Queue) {
	c, wc := q.Connect(t), q.Connect(t)
	// A number below 5 is doubled; another fails for good.
	handlers := map[string]jobs.Handler{"m": func(ctx context.Context, j jobs.Job, p func(any)) (any, error) {
		var n int
		if err := json.Unmarshal(j.Spec, &n); err != nil || n >= 5 {
			return nil, jobs.Errorf(jobs.CodeInput, "%d is too much", n)
		}
		return 2 * n, nil
	}}
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		model := map[string]state{}
		letter := map[string]bool{}
		ids := make([]jobs.Job, 6)
		for i := range ids {
			j := job("m", 3*i)
			j.Lane = jobs.Lanes()[i%3]
			j.Tenant = fmt.Sprint("t", i%2)
			ids[i] = j
		}
		pick := func(rt *rapid.T) jobs.Job { return rapid.SampledFrom(ids).Draw(rt, "job") }
		check := func(rt *rapid.T, err, want error, what string) {
			if !errors.Is(err, want) {
				rt.Fatalf("%s: %v, want %v", what, err, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": func(rt *rapid.T) {
				j := pick(rt)
				var want error
				if model[j.ID] != absent {
					want = jobs.ErrExists
				} else {
					model[j.ID] = queued
				}
				check(rt, c.Submit(ctx, j), want, "submit "+j.ID)
			},
			"submit two": func(rt *rapid.T) {
				a, b := pick(rt), pick(rt)
				var want error
				if a.ID == b.ID || model[a.ID] != absent || model[b.ID] != absent {
					want = jobs.ErrExists
				}
				// A batch does not see that a job is delayed; the delayed one is dropped when it is
				// due.
				if model[a.ID] == delayed || model[b.ID] == delayed {
					return
				}
				if want == nil {
					model[a.ID], model[b.ID] = queued, queued
				}
				check(rt, c.SubmitBatch(ctx, []jobs.Job{a, b}), want, "submit "+a.ID+" and "+b.ID)
			},
			"delay": func(rt *rapid.T) {
				j := pick(rt)
				var want error
				if model[j.ID] != absent {
					want = jobs.ErrExists
				} else {
					model[j.ID] = delayed
				}
				j.NotBefore = j.Submitted.AddDate(1, 0, 0)
				check(rt, c.Submit(ctx, j), want, "delay "+j.ID)
			},
			"cancel": func(rt *rapid.T) {
				j := pick(rt)
				if model[j.ID] == absent {
					return // a cancellation of a job to come would end it when it comes
				}
				if model[j.ID] == queued || model[j.ID] == delayed {
					model[j.ID] = cancelled
				}
				check(rt, c.Cancel(ctx, j, false), nil, "cancel "+j.ID)
			},
			"withdraw": func(rt *rapid.T) {
				j := pick(rt)
				if model[j.ID] == queued || model[j.ID] == delayed {
					model[j.ID] = absent
				}
				check(rt, c.Withdraw(ctx, j), nil, "withdraw "+j.ID)
			},
			"work": func(rt *rapid.T) {
				defer q.Work(t, wc, handlers)()
				for i, j := range ids {
					if model[j.ID] != queued {
						continue
					}
					r := result(t, c, j)
					if model[j.ID] = done; 3*i >= 5 {
						model[j.ID] = failed
						letter[j.ID] = true
					}
					if r.Attempts != 1 {
						rt.Fatalf("%+v", r)
					}
				}
				settle(t, c, letter)
				quiesce(t, c)
			},
			"redrive": func(rt *rapid.T) {
				j := pick(rt)
				if !letter[j.ID] {
					return
				}
				d := letters(t, c, jobs.DeadFilter{ID: j.ID}, 1)[0]
				check(rt, c.Redrive(ctx, d), nil, "redrive "+j.ID)
				model[j.ID] = queued
				delete(letter, j.ID)
			},
			"": func(rt *rapid.T) { // after every step: what the queue says of every job
				for i, j := range ids {
					_, err := c.Find(ctx, j.ID)
					var want error
					if s := model[j.ID]; s != queued && s != delayed {
						want = jobs.ErrNotFound
					}
					check(rt, err, want, fmt.Sprintf("find %s (%d)", j.ID, model[j.ID]))
					r, err := c.Lookup(ctx, j.ID)
					switch model[j.ID] {
					case absent, queued, delayed:
						check(rt, err, jobs.ErrNotFound, "look up "+j.ID)
						continue
					case done:
						if string(r.Output) != fmt.Sprint(6*i) {
							rt.Fatalf("%s: %+v, %v", j.ID, r, err)
						}
					case failed:
						if r.Error == nil || r.Error.Code != jobs.CodeInput {
							rt.Fatalf("%s: %+v, %v", j.ID, r, err)
						}
					case cancelled:
						if r.Error == nil || r.Error.Code != jobs.CodeCanceled {
							rt.Fatalf("%s: %+v, %v", j.ID, r, err)
						}
					}
					check(rt, err, nil, "look up "+j.ID)
				}
			},
		})
		for _, j := range ids { // leave nothing for the next round
			if err := c.Withdraw(ctx, j); err != nil {
				rt.Fatal(err)
			}
			if _, err := c.Purge(ctx, jobs.DeadFilter{ID: j.ID}); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// settle waits for the expected dead letters: a letter follows its result.
func settle(t *testing.T, c Client, want map[string]bool) {
	t.Helper()
	for id := range want {
		letters(t, c, jobs.DeadFilter{ID: id}, 1)
	}
}

// quiesce waits until nothing is queued that a worker could still finish, which is when every
// acknowledgement has come in.
func quiesce(t *testing.T, c Client) {
	t.Helper()
	ctx := within(t)
	for {
		st, err := c.Stats(ctx, jobs.PoolCPU)
		if err != nil {
			t.Fatal(err)
		}
		if st.Jobs == 0 {
			return
		}
	}
}
