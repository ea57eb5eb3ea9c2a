package main

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

	"github.com/exoswarm/exoswarm/cmd/internal/clustercommand"
	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// jobCommand returns exoswarm job. All its commands but output take the login of a tenant, which
// sees the jobs of that tenant alone. A job has one id from its submission to the end of its
// result; there is no other handle.
func jobCommand() *cobra.Command {
	get := &cobra.Command{
		Use: "get ID", Short: "Show the state of a job, or its result", Args: cobra.ExactArgs(1),
		RunE: connect.Submitting(jobGet),
	}
	list := &cobra.Command{
		Use: "list", Short: "List the jobs of a pool that are not over, oldest first",
		Args: cobra.NoArgs, RunE: connect.Submitting(jobList),
	}
	list.Flags().String("pool", "cpu", "cpu or gpu")
	list.Flags().Int("limit", 100, "most jobs to list; 0 for all")
	list.Flags().Bool("all", false, "also list jobs that are over, of all pools, newest first")
	watch := &cobra.Command{Use: "watch ID", Short: "Print the progress of a job, then its result; fails if the " +
		"job fails", Args: cobra.ExactArgs(1), RunE: connect.Submitting(jobWatch)}
	watch.Flags().Duration("timeout", 0, "longest wait; 0: no limit")
	logs := &cobra.Command{
		Use: "logs ID", Short: "Print the log lines of a job, attempt by attempt",
		Args: cobra.ExactArgs(1), RunE: connect.Submitting(jobLogs),
	}
	logs.Flags().BoolP("follow", "F", false, "continue until the job is over")
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a job that waits or runs", Args: cobra.ExactArgs(1),
		RunE: connect.Submitting(jobCancel),
	}
	cancel.Flags().Bool("finish", false, "let it finish the work in hand; its result shows how far it came")
	retry := &cobra.Command{
		Use: "retry ID", Short: "Try a job that failed for good again", Args: cobra.ExactArgs(1),
		RunE: connect.Submitting(jobRetry),
	}
	all := []*cobra.Command{get, list, watch, logs, cancel, retry}
	for _, c := range all {
		connect.Flags(c.Flags())
		command.ListFlag(c.Flags())
	}
	// It has no command.ListFlag: its -o is a file.
	output := jobOutputCommand()
	connect.Flags(output.Flags())
	return command.Group("job", "Show, cancel and repeat jobs", append(all, output,
		clustercommand.Explain("explain ID", "Tell why a job does not progress.", ops.ExplainJob))...)
}

// jobOutputCommand returns exoswarm job output, whose -o names a file and not a format. It reads
// the objects of the output, which the login of a tenant cannot.
func jobOutputCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "output ID -o FILE", Short: "Write the decisions of a run's job that is done", Args: cobra.ExactArgs(1),
		Long: `Write the decisions of a run's job that is done. The cluster keeps them for a day, or
until exoswarm run has fetched them; this command does not remove them. exoswarm run --attach ID
waits for a job that is not over, and also writes its report and rejects.`,
		RunE: connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			output, _ := cmd.Flags().GetString("output")
			return runjob.Fetch(cmd.Context(), c, args[0], output, cmd.OutOrStdout())
		}),
	}
	c.Flags().StringP("output", "o", "-", "file for the decisions, with the extension of their format, or - for "+
		"standard output")
	return c
}

// cells returns the columns ATTEMPTS, WORKER, SINCE and DETAIL of a job that is not over. Columns
// that do not apply to the state of the job are empty. Progress comes from the handler and may have
// any form.
func cells(j queue.ListedJob) (attempts, worker, since, detail any) {
	switch {
	case j.Running != nil:
		return j.Running.Attempt, j.Running.Worker, j.Running.Since.Format(time.RFC3339), string(j.Running.Progress)
	case len(j.Waits) > 0:
		return "", "", "", "waits for " + strings.Join(j.Waits, ", ")
	case j.State == queue.StateDelayed:
		return "", "", "", "until " + j.NotBefore.Format(time.RFC3339)
	}
	return "", "", "", j.Note
}

// jobGet prints one item, an ops.JobView: the job with its state while it is queued or runs, and
// its result afterwards. An id of which nothing is known is jobs.ErrNotFound. A job that failed is
// no failure of the command.
//
// The result is read first, and again when the job is not found, because it may end between the
// two requests.
func jobGet(cmd *cobra.Command, args []string, c command.JobClient) error {
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "JOB", "STATE", "KIND", "ATTEMPTS", "WORKER", "SINCE",
		"DETAIL")
	if err != nil {
		return err
	}
	for look := range 2 {
		r, err := c.Lookup(cmd.Context(), args[0])
		if err == nil {
			// DETAIL is the output of a job that is done, or the message of its error.
			text := string(r.Output)
			if r.Error != nil {
				text = r.Error.Message
			}
			if err := p.Item(ops.Over(r), r.JobID, r.Status, r.Kind,
				r.Attempts, r.Worker, r.Finished.Format(time.RFC3339), text); err != nil {
				return err
			}
			return p.End()
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		j, err := c.Locate(cmd.Context(), args[0])
		if err == nil {
			attempts, worker, since, detail := cells(j)
			if err := p.Item(ops.Listed(j), j.ID, j.State, j.Kind, attempts, worker, since, detail); err != nil {
				return err
			}
			return p.End()
		}
		if !errors.Is(err, jobs.ErrNotFound) || look == 1 {
			return fmt.Errorf("job %s: neither queued nor over: check the id, or its result has expired: %w", args[0],
				jobs.ErrNotFound)
		}
	}
	return nil
}

// jobList prints the jobs of a pool that are not over as they are read, oldest first:
// queue.ListedJob items. With --all the results of all pools follow, newest first, as
// ops.JobView items. --limit bounds both together.
//
// A reader of standard output that ends early, as head does, ends the list. Jobs that come or
// end meanwhile may be missing, or be listed twice.
func jobList(cmd *cobra.Command, _ []string, c command.JobClient) error {
	text, _ := cmd.Flags().GetString("pool")
	limit, _ := cmd.Flags().GetInt("limit")
	pool, err := poolOf(text)
	if err != nil {
		return err
	}
	over, _ := cmd.Flags().GetBool("all")
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "JOB", "STATE", "KIND", "LANE", "TENANT", "SUBMITTED",
		"ATTEMPTS", "WORKER", "SINCE", "DETAIL")
	if err != nil {
		return err
	}
	// Both lists share one limit, which counts printed items.
	room := func() bool { return limit == 0 || p.Len() < limit }
	var perr error
	// The callback returns false to end the list; its own error is kept in perr.
	err = c.List(cmd.Context(), pool, func(j queue.ListedJob) bool {
		attempts, worker, since, detail := cells(j)
		perr = p.Item(j, j.ID, j.State, j.Kind, j.Lane, j.Tenant, j.Submitted.Format(time.RFC3339), attempts, worker,
			since, detail)
		return perr == nil && room()
	})
	if over && err == nil && perr == nil && room() {
		err = c.Results(cmd.Context(), func(r jobs.Result) bool {
			text := ""
			if r.Error != nil {
				text = r.Error.Message
			}
			perr = p.Item(ops.Over(r), r.JobID, r.Status, r.Kind, "", "", "", r.Attempts, r.Worker,
				r.Finished.Format(time.RFC3339), text)
			return perr == nil && room()
		})
	}
	return errors.Join(err, perr, p.End())
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

// jobLogs prints the log lines of a job, one logView for each line, in the order in which
// attempts wrote them. With --follow it ends with the job. Lines that the log had no room for
// are one item with their number.
//
// Fields: job, attempt, worker, and line with time, level, msg and the fields of the handler, or
// dropped, the number of lines without room. A job without lines prints an empty list, and an
// unknown id is jobs.ErrNotFound.
func jobLogs(cmd *cobra.Command, args []string, c command.JobClient) error {
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
	// A request for a job that is over would be accepted and have no effect.
	if _, err := c.Lookup(cmd.Context(), args[0]); err == nil {
		return command.Usage("job %s is over: exoswarm job get %s shows its result", args[0], args[0])
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	if conn := command.QueueOf(c); conn != nil {
		_, err := operate(cmd, conn, action.Request{Action: "job.cancel", Object: args[0], Finish: finish})
		return err
	}
	return c.Cancel(cmd.Context(), args[0], finish)
}

// jobRetry queues a job again that has a dead letter, under its id, and prints the number of jobs,
// 1. Its earlier result is removed, so watchers see it as queued again.
func jobRetry(cmd *cobra.Command, args []string, c command.JobClient) error {
	retry := func() error { return c.Retry(cmd.Context(), args[0]) }
	if conn := command.QueueOf(c); conn != nil {
		retry = func() error {
			out, err := operate(cmd, conn, action.Request{Action: "dlq.redrive", Object: args[0]})
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
