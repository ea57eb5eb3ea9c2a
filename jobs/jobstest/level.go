package jobstest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// testLevels: jobs of several levels are one queue to every reader, a worker does all of them, and
// jobs that are delayed or wait for others keep their level.
func testLevels(t *testing.T, q Queue) {
	c := q.Connect(t)
	ctx := within(t)
	asking := func(j jobs.Job, l jobs.Level) jobs.Job {
		if l == "" {
			j.Replicas, j.Durability = 0, jobs.DurabilitySynced
			return j
		}
		return j.WithLevel(l)
	}
	at := func(l jobs.Level, change func(j *jobs.Job)) jobs.Job {
		j := asking(job("a", 1), l)
		change(&j)
		return j
	}
	none := func(*jobs.Job) {}
	plain, memory, one := at("", none), at(jobs.LevelMemory, none), at(jobs.LevelOne, none)
	delayed := at(jobs.LevelMemory, func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Second) })
	child := at(jobs.LevelMemory, func(j *jobs.Job) { j.After = []string{plain.ID, memory.ID} })
	grandchild := at("", func(j *jobs.Job) { j.After = []string{child.ID} })
	cancelled, withdrawn := at(jobs.LevelMemory, none), at(jobs.LevelMemory, none)
	all := []jobs.Job{plain, memory, one, delayed, child, grandchild, cancelled, withdrawn}
	for _, j := range all {
		submit(t, c, j)
	}
	for _, again := range []jobs.Job{
		asking(plain, jobs.LevelMemory), asking(memory, ""), asking(delayed, ""), plain, memory, delayed,
	} {
		if err := c.Submit(ctx, again); !errors.Is(err, jobs.ErrExists) {
			t.Errorf("job %s was taken again at level %q: %v", again.ID, again.Level(), err)
		}
	}
	if err := c.SubmitBatch(ctx, []jobs.Job{asking(memory, "")}); !errors.Is(err, jobs.ErrExists) {
		t.Errorf("a batch took the id of a job of another level: %v", err)
	}
	for _, j := range all {
		found, err := c.Find(ctx, j.ID)
		if err != nil || found.Level() != j.Level() {
			t.Errorf("the job of level %q is found as %+v, %v", j.Level(), found, err)
		}
	}
	if err := c.Cancel(ctx, jobs.Job{ID: cancelled.ID, Pool: cancelled.Pool, Kind: "a"}.WithDefaults(),
		false); err != nil {
		t.Error(err)
	}
	if r := result(t, c, cancelled); r.Error == nil || r.Error.Code != jobs.CodeCanceled {
		t.Errorf("%+v", r)
	}
	if err := c.Withdraw(ctx, withdrawn); err != nil {
		t.Error(err)
	}
	var listed []string
	if err := c.Jobs(ctx, jobs.PoolCPU, func(j jobs.Job) bool {
		listed = append(listed, j.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, j := range []jobs.Job{plain, memory, one, child, grandchild} {
		if !slices.Contains(listed, j.ID) {
			t.Errorf("the job of level %q is not listed in %v", j.Level(), listed)
		}
	}
	if st, err := c.Stats(ctx, jobs.PoolCPU); err != nil || st.Jobs != 3 || len(st.Sources) != 2 ||
		st.Sources[0].Waiting != 2 || st.Sources[1].Waiting != 1 || st.Sources[1].Level != jobs.LevelMemory {
		t.Errorf("%+v, %v", st, err)
	}
	var r recorder
	defer q.Work(t, q.Connect(t), map[string]jobs.Handler{"a": r.handle, "broken": broken})()
	for _, j := range []jobs.Job{plain, memory, one, delayed, child, grandchild} {
		if res := result(t, c, j); res.Status != jobs.Done || res.Attempts != 1 {
			t.Errorf("level %q: %+v", j.Level(), res)
		}
	}
	late := at(jobs.LevelMemory, none) // the worker hears of it
	submit(t, c, late)
	result(t, c, late)

	dead := at(jobs.LevelMemory, func(j *jobs.Job) { j.Kind, j.MaxAttempts = "broken", 1 })
	submit(t, c, dead)
	result(t, c, dead)
	for _, d := range letters(t, c, jobs.DeadFilter{}, 1) {
		if d.Level != jobs.LevelMemory || d.ID != dead.ID {
			t.Errorf("the letter of a job in memory: %+v", d)
		}
		if err := c.Redrive(ctx, d); err != nil {
			t.Error(err)
		}
	}
	for _, d := range letters(t, c, jobs.DeadFilter{}, 1) {
		if d.Level != jobs.LevelMemory {
			t.Errorf("the second letter of a job in memory: %+v", d)
		}
	}
}

// testLevelsRefused: a level that does not exist, or that the queue cannot give, is refused with
// the cure, and nothing is stored.
func testLevelsRefused(t *testing.T, q Queue) {
	c := q.Connect(t)
	for want, change := range map[string]func(j *jobs.Job){
		`replicas 2: use 1, 3 or 5`:                   func(j *jobs.Job) { j.Replicas = 2 },
		`durability "fast": use "synced" or "memory"`: func(j *jobs.Job) { j.Durability = "fast" },
		`durability "memory" with 3 replicas`:         func(j *jobs.Job) { *j = j.WithLevel("memory"); j.Replicas = 3 },
		`exoswarm init --replicas 3`:                  func(j *jobs.Job) { j.Replicas = 3 },
		`the streams of this cluster have 1`:          func(j *jobs.Job) { j.Replicas = 5 },
	} {
		for _, more := range []func(j *jobs.Job){
			func(*jobs.Job) {}, func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) },
		} {
			j := job("a", 1)
			change(&j)
			more(&j)
			if err := c.Submit(within(t), j); jobs.AsError(err).Code != jobs.CodeInvalid ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
			if _, err := c.Find(within(t), j.ID); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("it is stored: %v", err)
			}
		}
	}
}
