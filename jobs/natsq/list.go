package natsq

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
)

// ListedJob is a job that is not over, and the jobs that it waits for.
type ListedJob struct {
	jobs.Job
	Waits []string `json:"waits_for,omitempty"`
}

// place is where a list of jobs goes on: among those that are queued, or behind them among those that wait for others, and the sequence
// number there.
type place struct {
	waiting bool
	seq     uint64
}

func (at place) String() string {
	if at.waiting {
		return "waiting-" + strconv.FormatUint(at.seq, 10)
	}
	return "queued-" + strconv.FormatUint(at.seq, 10)
}

// parsePlace is the inverse of String; the beginning of the list is "".
func parsePlace(text string) (at place, ok bool) {
	if text == "" {
		return place{seq: 1}, true
	}
	word, number, _ := strings.Cut(text, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	return place{word == "waiting", seq}, err == nil && (word == "queued" || word == "waiting")
}

// Jobs calls fn with the jobs of a pool that are queued, running or waiting for a retry, oldest first, until fn returns
// false; then those that wait for others, oldest first. Messages that are no jobs are left out. It reads one at a time.
func (c *Conn) Jobs(ctx context.Context, p jobs.Pool, fn func(jobs.Job) bool) error {
	return c.jobsFrom(ctx, p, "*", place{seq: 1}, func(_ place, j jobs.Job) bool { return fn(j) })
}

// jobsFrom is Jobs of one tenant, or of all when tenant is *, from a place on; at is that of the job.
func (c *Conn) jobsFrom(ctx context.Context, p jobs.Pool, tenant string, from place, fn func(at place, j jobs.Job) bool) error {
	tail := string(p) + ".*.*." + tenant + ".*"
	for ; ; from.seq++ {
		stream, subject := jobStream(p), "exo.job."+tail
		if from.waiting {
			stream, subject = waitStream, "exo.wait."+tail
		}
		var m *stored
		err := c.retry(ctx, "list the jobs of pool "+string(p), func(ctx context.Context) (err error) {
			m, err = c.next(ctx, stream, subject, from.seq)
			return err
		})
		switch {
		case errors.Is(err, jobs.ErrNotFound) && from.waiting:
			return nil
		case errors.Is(err, jobs.ErrNotFound):
			from = place{waiting: true}
			continue
		case err != nil:
			return err
		}
		from.seq = m.Seq
		if j, err := jobs.DecodeJob(m.Data); err == nil && !fn(from, j) {
			return nil
		}
	}
}
