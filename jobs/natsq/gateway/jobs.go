package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// Bounds of a page. A page has at least one job, or one message of a log, if there is any.
const (
	pageJobs  = 100                 // jobs or results
	pageBytes = jobs.MaxMessage / 2 // bytes of jobs or lines
	pageTime  = 2 * time.Second     // time that a worker of the gateway spends on a page
	// pageRoom is the part of an answer that is not jobs. A job that leaves less room in a message
	// is listed without its specification.
	pageRoom = 8 << 10
)

// errPage is the error with which the reading of a log ends at the end of a page.
var errPage = errors.New("the page is full")

// list puts a page of the jobs of a pool that have not ended into an answer, or a page of the
// newest results. A tenant gets its own jobs only.
func (g *Gateway) list(ctx context.Context, from owner, p jobs.Pool, data []byte, r *apiReply) error {
	var o struct {
		From  string `json:"from"`
		Limit int    `json:"limit"`
		Ended bool   `json:"ended"`
	}
	err := readRequest(data, &o)
	at, ok := queue.ParsePlace(o.From)
	if err != nil || !ok || o.Limit < 0 || o.Limit > pageJobs {
		return jobs.Errorf(jobs.CodeInvalid, `a request for a list is empty or {"from": "NEXT OF THE PAGE BEFORE", `+
			`"limit": N} with N up to %d, or {"ended": true, "limit": N} for the newest results`, pageJobs)
	}
	if p != jobs.PoolCPU && p != jobs.PoolGPU {
		return jobs.Errorf(jobs.CodeInvalid, "pool %.100q: use %q or %q", p, jobs.PoolCPU, jobs.PoolGPU)
	}
	tenant := "*"
	if from != "" {
		tenant = string(from)
	}
	if o.Limit == 0 {
		o.Limit = pageJobs
	}
	if o.Ended {
		prefix := ""
		if from != "" {
			prefix = string(from) + "--"
		}
		ended, began := []jobs.Result{}, time.Now()
		err := g.results.List(ctx, prefix, func(res jobs.Result) bool {
			res.Output = nil
			ended = append(ended, res)
			return len(ended) < o.Limit && time.Since(began) < pageTime
		})
		r.Ended = &ended
		return err
	}
	page := []queue.ListedJob{}
	began, size := time.Now(), 0
	view, err := g.jobs.Overview(ctx, p, "")
	if err != nil {
		return err
	}
	var werr error
	err = g.jobs.JobsFrom(ctx, p, tenant, at, func(at queue.Place, j jobs.Job) bool {
		// The body of the job names another tenant than its subject. A worker refuses such a job.
		if from.check(j) != nil {
			return true
		}
		rest := j
		rest.Spec = nil
		text, err := json.Marshal(rest)
		if werr = err; err != nil {
			return false
		}
		if len(text)+len(j.Spec) > jobs.MaxMessage-pageRoom {
			j = rest
		}
		if size += len(text) + len(j.Spec); len(page) == o.Limit || len(page) > 0 &&
			(size > pageBytes || time.Since(began) > pageTime) {
			r.Next = at.String()
			return false
		}
		var waits []string
		if waits, werr = g.jobs.Missing(ctx, j); werr != nil {
			return false
		}
		page = append(page, view.Describe(j, at.Stream(p), at.Seq, waits))
		return true
	})
	if err = errors.Join(err, werr); err != nil {
		return err
	}
	r.Listed = &page
	return nil
}

// logs puts a page of the log of a job into an answer. A request may wait for more lines, or for
// the end of the job, if there are none.
func (g *Gateway) logs(ctx context.Context, id string, data []byte, r *apiReply, at *requestPlace) error {
	var o struct {
		From string  `json:"from"`
		Wait float64 `json:"wait_s"`
	}
	err := readRequest(data, &o)
	seq := uint64(1)
	if err == nil && o.From != "" {
		seq, err = strconv.ParseUint(o.From, 10, 64)
	}
	if err != nil || o.Wait < 0 || o.Wait > longestWait.Seconds() {
		return jobs.Errorf(jobs.CodeInvalid, `a request for a log is empty or {"from": "NEXT OF THE PAGE BEFORE", `+
			`"wait_s": N} with N from 0 to %v`, longestWait.Seconds())
	}
	page := []jobs.LogLines{}
	began, size := time.Now(), 0
	add := func(next uint64, l jobs.LogLines) error {
		page, seq = append(page, l), next
		for _, line := range l.Lines {
			size += len(line)
		}
		// The page keeps room for one more message of the largest size.
		if size > pageBytes-jobs.MaxLogMessage || time.Since(began) > pageTime {
			return errPage
		}
		return nil
	}
	err = g.jobLogs.LogsFrom(ctx, id, seq, false, add)
	full := errors.Is(err, errPage)
	if err == nil && len(page) == 0 && o.Wait > 0 {
		if err := at.park(); err != nil {
			return err
		}
		wait, cancel := context.WithTimeoutCause(ctx, seconds(o.Wait), errPage)
		err = g.jobLogs.LogsFrom(wait, id, seq, true,
			func(next uint64, l jobs.LogLines) error { return errors.Join(add(next, l), errPage) })
		cancel()
		r.Over = err == nil
	}
	if err != nil && !errors.Is(err, errPage) {
		return err
	}
	// A client that waits continues until the job has ended. A client that does not wait continues
	// while there are more lines.
	if full || o.Wait > 0 && !r.Over {
		r.Next = strconv.FormatUint(seq, 10)
	}
	r.Logs = &page
	return nil
}

// retry redrives the dead letter of a job. It fails with jobs.ErrNotFound if the job has none.
func (g *Gateway) retry(ctx context.Context, from owner, id string) error {
	var letter *jobs.DeadLetter
	err := g.letters.List(ctx, jobs.DeadFilter{Tenant: string(from), ID: id},
		func(d jobs.DeadLetter) bool { letter = &d; return false })
	if err != nil {
		return err
	}
	if letter == nil {
		return fmt.Errorf("job %s has no dead letter: only a job that failed for good can be tried again: %w", id,
			jobs.ErrNotFound)
	}
	// The body of the job may name another tenant than its subject.
	if j, err := jobs.DecodeJob(letter.Data); err == nil && from.check(j) != nil {
		return from.check(j)
	}
	return g.letters.Redrive(ctx, *letter)
}
