// Package queue has the commands about the queue of jobs: job, submit, cron, dlq, object and queue.
package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// Job returns exoswarm job with its explain. All its commands but output take the login of a
// tenant, which sees the jobs of that tenant alone. A job has one id from its submission to the end
// of its result; there is no other handle.
func Job(explain cli.Verb) *cobra.Command {
	return cli.Noun{Use: "job", Short: "Show, cancel and repeat jobs", Names: cli.JobIDs, Verbs: []cli.Verb{
		{
			Use: "get ID", Short: "Show the state of a job, or its result", Lists: true,
			Do: cli.Jobs(jobGet),
		},
		{
			Use: "list", Short: "List the jobs of a pool that are not over, oldest first", Lists: true,
			Flags: func(f *pflag.FlagSet) {
				f.String("pool", "cpu", "cpu or gpu")
				f.Int("limit", 100, "most jobs to list; 0 for all")
				f.Bool("all", false, "also list jobs that are over, of all pools, newest first")
			},
			Before: checkJobList,
			Do:     cli.Jobs(jobList),
		},
		{
			Use: "watch ID", Short: "Print the progress of a job, then its result; fails if the job fails",
			Lists: true,
			Flags: func(f *pflag.FlagSet) { f.Duration("timeout", 0, "longest wait; 0: no limit") },
			Do:    cli.Jobs(jobWatch),
		},
		{
			Use: "logs ID", Short: "Print the log lines of a job, attempt by attempt", Lists: true,
			Flags: func(f *pflag.FlagSet) { f.BoolP("follow", "F", false, "continue until the job is over") },
			Do:    cli.Jobs(JobLogs),
		},
		{
			Use: "cancel [ID]", Short: "Cancel a job that waits or runs, or with --kind all of a kind", Lists: true,
			Flags: func(f *pflag.FlagSet) {
				f.Bool("finish", false, "let it finish the work in hand; its result shows how far it came")
				f.String("kind", "", "in place of ID: cancel all jobs of this kind that wait or run")
				f.String("pool", "cpu", "cpu or gpu, of --kind")
				f.Bool("yes", false, "do not ask for confirmation of --kind")
			},
			Before: checkCancel,
			Do:     cli.Jobs(jobCancel),
		},
		{
			Use: "retry ID", Short: "Try a job that failed for good again", Lists: true,
			Do: cli.Jobs(jobRetry),
		},
		// Its -o is a file. It reads the objects of the output, which the login of a tenant cannot.
		{
			Use: "output ID -o FILE", Short: "Write the decisions of a run's job that is done",
			Long: `Write the decisions of a run's job that is done. The cluster keeps them for a day, or
until exoswarm run has fetched them; this command does not remove them. exoswarm run --attach ID
waits for a job that is not over, and also writes its report and rejects.`,
			Flags: func(f *pflag.FlagSet) {
				f.StringP("output", "o", "-", "file for the decisions, with the extension of their format, or - for "+
					"standard output")
			},
			Do: cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
				output, _ := cmd.Flags().GetString("output")
				return runjob.Fetch(cmd.Context(), c, args[0], output, cmd.OutOrStdout())
			}),
		},
		explain,
	}}.Command()
}

// cells returns the columns ATTEMPTS, WORKER, SINCE and DETAIL of a job that is not over. Columns
// that do not apply to the state of the job are empty. Progress comes from the handler and may have
// any form.
func cells(j queue.ListedJob) []any {
	switch {
	case j.Running != nil:
		return []any{
			j.Running.Attempt, j.Running.Worker, j.Running.Since.Format(time.RFC3339), string(j.Running.Progress),
		}
	case len(j.Waits) > 0:
		return []any{"", "", "", "waits for " + strings.Join(j.Waits, ", ")}
	case j.State == queue.StateDelayed:
		return []any{"", "", "", "until " + j.NotBefore.Format(time.RFC3339)}
	}
	return []any{"", "", "", j.Note}
}

// resultCells returns the same columns of a job that is over. DETAIL is the message of its error,
// or output.
func resultCells(r *jobs.Result, output string) []any {
	if r.Error != nil {
		output = r.Error.Message
	}
	return []any{r.Attempts, r.Worker, r.Finished.Format(time.RFC3339), output}
}

// jobGet prints one item, an ops.JobView: the job with its state while it is queued or runs, and
// its result afterwards. An unknown id is jobs.ErrNotFound. A job that failed is no failure of the
// command.
//
// The result is read first, and again when the job is not found, because it may end between the
// two requests.
func jobGet(cmd *cobra.Command, args []string, c command.JobClient) error {
	columns := []string{"JOB", "STATE", "KIND", "ATTEMPTS", "WORKER", "SINCE", "DETAIL"}
	for look := range 2 {
		r, err := c.Lookup(cmd.Context(), args[0])
		if err == nil {
			return cli.PrintOne(cmd, columns, ops.Over(r),
				append([]any{r.JobID, r.Status, r.Kind}, resultCells(&r, string(r.Output))...)...)
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		j, err := c.Locate(cmd.Context(), args[0])
		if err == nil {
			return cli.PrintOne(cmd, columns, ops.Listed(j), append([]any{j.ID, j.State, j.Kind}, cells(j)...)...)
		}
		if !errors.Is(err, jobs.ErrNotFound) || look == 1 {
			return fmt.Errorf("job %s: neither queued nor over: check the id, or its result has expired: %w", args[0],
				jobs.ErrNotFound)
		}
	}
	return nil
}

// Tables of job list, which have the same columns: jobs that are not over, and results.
var (
	listedJobs = cli.Table[queue.ListedJob]{
		Columns: []string{
			"JOB", "STATE", "KIND", "LANE", "TENANT", "SUBMITTED", "ATTEMPTS", "WORKER", "SINCE", "DETAIL",
		},
		Row: func(j queue.ListedJob) []any {
			return append([]any{j.ID, j.State, j.Kind, j.Lane, j.Tenant, j.Submitted.Format(time.RFC3339)}, cells(j)...)
		},
	}
	endedJobs = cli.Table[ops.JobView]{Row: func(j ops.JobView) []any {
		return append([]any{j.ID, j.State, j.Result.Kind, "", "", ""}, resultCells(j.Result, "")...)
	}}
)

// checkJobList checks the flags of job list before it connects.
func checkJobList(cmd *cobra.Command, _ []string) error {
	if limit, _ := cmd.Flags().GetInt("limit"); limit < 0 {
		return command.Usage("--limit %d: use 0 for all, or more", limit)
	}
	text, _ := cmd.Flags().GetString("pool")
	_, err := poolOf(text)
	return err
}

// jobList prints the jobs of a pool that are not over as they are read, oldest first. With --all
// the results of all pools follow, newest first. --limit bounds both together.
//
// Jobs that come or end meanwhile may be missing, or be listed twice.
func jobList(cmd *cobra.Command, _ []string, c command.JobClient) error {
	text, _ := cmd.Flags().GetString("pool")
	limit, _ := cmd.Flags().GetInt("limit")
	over, _ := cmd.Flags().GetBool("all")
	pool := jobs.Pool(text)
	p, err := listedJobs.Begin(cmd)
	if err != nil {
		return err
	}
	err = listedJobs.Fill(p, limit, func(fn func(queue.ListedJob) bool) error {
		return c.List(cmd.Context(), pool, fn)
	})
	if over && err == nil && (limit == 0 || p.Len() < limit) {
		err = endedJobs.Fill(p, limit, func(fn func(ops.JobView) bool) error {
			return c.Results(cmd.Context(), func(r jobs.Result) bool { return fn(ops.Over(r)) })
		})
	}
	return errors.Join(err, p.End())
}

// jobWatch prints the progress of a job to stderr, a line for each report, and its result as
// waitFor does. Reports may come from any client that knows the id, so they are cleaned for a
// terminal. The result goes to stdout, so both can be redirected apart.
func jobWatch(cmd *cobra.Command, args []string, c command.JobClient) error {
	var mu sync.Mutex // progress comes on another goroutine
	return waitFor(cmd, args[0], func(ctx context.Context, id string) (jobs.Result, error) {
		return c.Watch(ctx, id, func(data json.RawMessage) {
			mu.Lock()
			defer mu.Unlock()
			_, _ = io.WriteString(cmd.ErrOrStderr(), redact.Line(string(data))+"\n") // anybody may publish it
		})
	})
}

// logView is the item of a log line: the line itself, or the number of lines without room.
type logView struct {
	Job     string          `json:"job"`
	Attempt int             `json:"attempt"`
	Worker  string          `json:"worker"`
	Line    json.RawMessage `json:"line,omitempty"`
	Dropped int             `json:"dropped,omitempty"`
}

// JobLogs prints the log lines of a job, one logView for each line, in the order in which
// attempts wrote them. With --follow it ends with the job. Lines that the log had no room for
// are one item with their number.
//
// Fields: job, attempt, worker, and line with time, level, msg and the fields of the handler, or
// dropped, the number of lines without room. A job without lines prints an empty list, and an
// unknown id is jobs.ErrNotFound.
func JobLogs(cmd *cobra.Command, args []string, c command.JobClient) error {
	follow, _ := cmd.Flags().GetBool("follow")
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(),
		"TIME", "ATTEMPT", "WORKER", "LEVEL", "MESSAGE", "FIELDS")
	if err != nil {
		return err
	}
	// Dropped of a message is the sum of its attempt so far, so only a larger number is news.
	dropped := map[string]int{} // of an attempt, as it was shown last
	err = c.Logs(cmd.Context(), args[0], follow, func(l jobs.LogLines) error {
		for _, raw := range l.Lines {
			var line jobs.LogLine
			if err := json.Unmarshal(raw, &line); err != nil {
				return err
			}
			// The line is printed as the handler wrote it: fields are not known here.
			v := logView{Job: l.JobID, Attempt: l.Attempt, Worker: l.Worker, Line: raw}
			if err := p.Item(v, line.Time.Format(time.RFC3339Nano), l.Attempt, l.Worker, line.Level, line.Message,
				logFields(raw)); err != nil {
				return err
			}
		}
		key := fmt.Sprint(l.Attempt, " ", l.Worker)
		if l.Dropped > dropped[key] {
			dropped[key] = l.Dropped
			v := logView{Job: l.JobID, Attempt: l.Attempt, Worker: l.Worker, Dropped: l.Dropped}
			if err := p.Item(v, "", l.Attempt, l.Worker, "", fmt.Sprintf("(%d lines of this attempt had no room so "+
				"far)", l.Dropped), ""); err != nil {
				return err
			}
		}
		// With --follow lines must appear as they come, also in a table.
		return p.Flush()
	})
	return errors.Join(err, p.End())
}

// logFields returns the fields of a line besides time, level and message, as NAME=JSON in the order
// of their names. It is empty for a line that is not an object.
func logFields(raw json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return ""
	}
	var text []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if k != "time" && k != "level" && k != "msg" {
			text = append(text, k+"="+string(all[k]))
		}
	}
	return strings.Join(text, " ")
}

// jobCancel asks for the end of a job, and does not wait for it. A job that is over is an error of
// usage. A job that runs gets the request soon, and its result then says that it was cancelled;
// with --finish it ends as done.
func jobCancel(cmd *cobra.Command, args []string, c command.JobClient) error {
	finish, _ := cmd.Flags().GetBool("finish")
	if kind, _ := cmd.Flags().GetString("kind"); kind != "" {
		return cancelKind(cmd, c, kind, finish)
	}
	// A request for a job that is over would be accepted and have no effect.
	if _, err := c.Lookup(cmd.Context(), args[0]); err == nil {
		return command.Usage("job %s is over: exoswarm job get %s shows its result", args[0], args[0])
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	if conn := command.QueueOf(c); conn != nil {
		_, err := cli.Operate(cmd, conn, action.Request{Action: "job.cancel", Object: args[0], Finish: finish})
		return err
	}
	return c.Cancel(cmd.Context(), args[0], finish)
}

// checkCancel checks what is to be cancelled before the command connects.
func checkCancel(cmd *cobra.Command, args []string) error {
	kind, _ := cmd.Flags().GetString("kind")
	switch {
	case kind == "" && len(args) == 0:
		return command.Usage("ID is missing: name a job, or a kind of jobs with --kind")
	case kind != "" && len(args) > 0:
		return command.Usage("--kind %s: it is in place of an ID: leave one of the two out", kind)
	}
	text, _ := cmd.Flags().GetString("pool")
	_, err := poolOf(text)
	return err
}

// cancelling is how many requests cancelKind has under way, each a round trip of the server.
const cancelling = 16

// cancelKind asks for the end of all jobs of a kind that are not over, and prints how many they
// are. Jobs that come meanwhile stay. The audit has one record.
func cancelKind(cmd *cobra.Command, c command.JobClient, kind string, finish bool) error {
	text, _ := cmd.Flags().GetString("pool")
	var ids []string
	if err := c.List(cmd.Context(), jobs.Pool(text), func(j queue.ListedJob) bool {
		if j.Kind == kind {
			ids = append(ids, j.ID)
		}
		return true
	}); err != nil {
		return err
	}
	if len(ids) == 0 {
		return printCancelled(cmd, 0)
	}
	if err := command.Confirm(cmd, "cancel "+command.Count(len(ids), "job", "jobs")+" of kind "+kind); err != nil {
		return err
	}
	cancel := func() error {
		ctx, stop := context.WithCancelCause(cmd.Context())
		defer stop(nil)
		var group sync.WaitGroup
		for part := range cancelling {
			group.Go(func() {
				for i := part; i < len(ids) && ctx.Err() == nil; i += cancelling {
					// A job that has ended meanwhile needs no cancel.
					if err := c.Cancel(ctx, ids[i], finish); err != nil && !errors.Is(err, jobs.ErrNotFound) {
						stop(fmt.Errorf("job %s: %w", ids[i], err))
					}
				}
			})
		}
		group.Wait()
		return context.Cause(ctx)
	}
	if conn := command.QueueOf(c); conn != nil {
		once := cancel
		cancel = func() error { return cli.Recorded(cmd, conn, "job.cancel", "kind "+kind, once) }
	}
	if err := cancel(); err != nil {
		return err
	}
	return printCancelled(cmd, len(ids))
}

func printCancelled(cmd *cobra.Command, n int) error {
	return cli.PrintOne(cmd, []string{"JOBS cancelled"}, map[string]int{"cancelled": n}, n)
}

// jobRetry queues a job again that has a dead letter, under its id, and prints the number of jobs,
// 1. Its earlier result is removed, so watchers see it as queued again.
func jobRetry(cmd *cobra.Command, args []string, c command.JobClient) error {
	retry := func() error { return c.Retry(cmd.Context(), args[0]) }
	if conn := command.QueueOf(c); conn != nil {
		retry = func() error {
			out, err := cli.Operate(cmd, conn, action.Request{Action: "dlq.redrive", Object: args[0]})
			if err == nil && out.Count == 0 {
				err = jobs.ErrNotFound
			}
			return err
		}
	}
	switch err := retry(); {
	// Jobs without a dead letter are queued, running, done or unknown; none of them can be
	// repeated.
	case errors.Is(err, jobs.ErrNotFound):
		return command.Usage("job %s has no dead letter: only a job that failed for good can be tried again", args[0])
	case err != nil:
		return err
	}
	return printCount(cmd, "redriven", 1, nil)
}
