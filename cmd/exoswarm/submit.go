package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

func submitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit --pool POOL --kind KIND --spec JSON | submit --file JOBS.jsonl",
		Short: "Submit a job, or a file of them, and print the ids",
		Long: `Submit a job. With --wait the command ends when the job does: with 0 when it is done,
2 when its input or spec is at fault, 1 when it failed otherwise.

With --file every line is a job as JSON, as in docs/protocol.md; id and version may be left out.
Lines are submitted in batches of up to 1000 of one pool and 256 KiB, each all or none. A job that
waits for others (after) stands behind those, or in the same batch, where each of its parents counts
as another. A line that is not valid ends the command before its batch; the message names it.`,
		Args:    cobra.NoArgs,
		PreRunE: checkSubmit,
		RunE:    submitting(submit),
	}
	f := cmd.Flags()
	natsFlag(f)
	listing.Flag(f)
	f.String("pool", "cpu", "cpu or gpu")
	f.String("kind", "", "what to do")
	f.String("spec", "null", "the job's spec: JSON, @FILE, or - for standard input")
	f.String("id", "", "the job's id; a new one when empty. The same id is never done twice")
	f.String("lane", "normal", "high, normal or low")
	f.String("tenant", jobs.DefaultTenant, "whose share it uses; that of the login, where it is a tenant's")
	f.Duration("delay", 0, "begin no earlier than after this time")
	f.Duration("deadline", 0, "fail when it is not done after this time; 0 for none")
	f.StringSlice("after", nil, "ids of jobs that must be over before it begins, with commas between")
	f.String("on-failed-parent", "", "when one of those is not done: fail (the default), skip or run")
	f.Int("max-attempts", jobs.Attempts, "how often it may be tried, 1 to 100")
	f.Duration("result-ttl", 24*time.Hour, "how long the result is kept, 1 s to 168 h")
	f.StringP("file", "f", "", "file of jobs, one a line as JSON; - for standard input")
	f.Bool("wait", false, "wait for the result and print it")
	f.Duration("timeout", 0, "longest wait with --wait; 0 for none. The job goes on after it")
	return cmd
}

// checkSubmit finds what is wrong with the flags before anything connects.
func checkSubmit(cmd *cobra.Command, _ []string) error {
	f := cmd.Flags()
	wait, _ := f.GetBool("wait")
	file, _ := f.GetString("file")
	kind, _ := f.GetString("kind")
	pool, _ := f.GetString("pool")
	switch {
	case file != "" && (wait || f.Changed("kind")):
		return command.Usage("submit: --file goes with neither --wait nor --kind")
	case file == "" && kind == "":
		return command.Usage("submit: --kind is missing: name what to do, such as stream")
	}
	_, err := poolOf(pool)
	return err
}

func submit(cmd *cobra.Command, _ []string, c submitter) error {
	f := cmd.Flags()
	wait, _ := f.GetBool("wait")
	file, _ := f.GetString("file")
	if file != "" {
		return submitFile(cmd, c, file)
	}
	j, err := jobFromFlags(cmd)
	if err != nil {
		return err
	}
	id, err := c.Submit(cmd.Context(), j)
	if err != nil {
		return err
	}
	// A hint only: the job is stored, and may be over by now.
	if l, err := c.Locate(cmd.Context(), id); err == nil && l.Note != "" {
		cmd.PrintErrf("job %s waits: %s\n", id, l.Note)
	}
	if wait {
		return waitFor(cmd, id, c.Result)
	}
	p, err := listing.New(cmd.OutOrStdout(), f, "JOB")
	if err != nil {
		return err
	}
	if err := p.Item(map[string]string{"job": id}, id); err != nil {
		return err
	}
	return p.End()
}

func jobFromFlags(cmd *cobra.Command) (jobs.Job, error) {
	f := cmd.Flags()
	j := jobs.Job{Version: jobs.Version, Submitted: time.Now().UTC()}
	pool, _ := f.GetString("pool")
	lane, _ := f.GetString("lane")
	j.Pool, j.Lane = jobs.Pool(pool), jobs.Lane(lane)
	j.Kind, _ = f.GetString("kind")
	j.Tenant, _ = f.GetString("tenant")
	j.After, _ = f.GetStringSlice("after")
	policy, _ := f.GetString("on-failed-parent")
	j.OnFailedParent = jobs.ParentPolicy(policy)
	j.MaxAttempts, _ = f.GetInt("max-attempts")
	if j.ID, _ = f.GetString("id"); j.ID == "" {
		j.ID = natsconn.NewID()
	}
	delay, _ := f.GetDuration("delay")
	deadline, _ := f.GetDuration("deadline")
	ttl, _ := f.GetDuration("result-ttl")
	if delay < 0 || deadline < 0 || ttl < time.Second {
		return j, command.Usage("submit: --delay and --deadline must not be negative, --result-ttl at least 1s")
	}
	if delay > 0 {
		j.NotBefore = j.Submitted.Add(delay)
	}
	if deadline > 0 {
		j.Deadline = j.Submitted.Add(deadline)
	}
	j.ResultTTL = int(ttl.Seconds())
	text, _ := f.GetString("spec")
	spec, err := readText(cmd, text)
	if err != nil {
		return j, err
	}
	if !json.Valid(spec) {
		return j, command.Usage("submit: --spec is not JSON: %.60q", spec)
	}
	j.Spec = spec
	if err := j.Validate(); err != nil {
		return j, err
	}
	return j, schema.CheckSpec(j)
}

// readText reads a flag that holds a text, @FILE, or - for standard input.
func readText(cmd *cobra.Command, text string) ([]byte, error) {
	var r io.Reader
	switch {
	case text == "-":
		r = cmd.InOrStdin()
	case strings.HasPrefix(text, "@"):
		f, err := os.Open(text[1:])
		if err != nil {
			return nil, command.Usage("--spec: %v", err)
		}
		defer f.Close()
		r = f
	default:
		return []byte(text), nil
	}
	data, err := io.ReadAll(io.LimitReader(r, jobs.MaxSpec+1))
	if err != nil {
		return nil, fmt.Errorf("--spec: %w", err)
	}
	return bytes.TrimSpace(data), nil
}

// waitFor prints a job's result, and fails as the job did.
func waitFor(cmd *cobra.Command, id string, result func(ctx context.Context, id string) (jobs.Result, error)) error {
	ctx := cmd.Context()
	if limit, _ := cmd.Flags().GetDuration("timeout"); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has no result after %v; it goes on: "+
			"exoswarm job get %s", limit, id))
		defer cancel()
	}
	r, err := result(ctx, id)
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "JOB", "STATUS", "ATTEMPTS", "WORKER", "OUTPUT")
	if err != nil {
		return err
	}
	if err := p.Item(r, r.JobID, r.Status, r.Attempts, r.Worker, string(r.Output)); err != nil {
		return err
	}
	if err := p.End(); err != nil {
		return err
	}
	if r.Error != nil {
		return fmt.Errorf("job %s failed: %w", id, r.Error)
	}
	return nil
}

// batchBytes bounds the lines of a batch, so that they and what is added to each fit a message to
// an agent. A quarter of the largest message is room for that: no line of ids and kinds alone
// becomes four times as long.
const batchBytes = jobs.MaxMessage / 4

// submitFile reads jobs line by line and holds one batch of them at a time.
func submitFile(cmd *cobra.Command, c submitter, file string) error {
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return command.Usage("--file: %v", err)
		}
		defer f.Close()
		in = f
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "JOB")
	if err != nil {
		return err
	}
	var batch []jobs.Job
	size, length := 0, 0 // of the batch, with what its jobs wait for, and in bytes
	flush := func() error {
		ids, err := c.SubmitBatch(cmd.Context(), batch)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := p.Item(map[string]string{"job": id}, id); err != nil {
				return err
			}
		}
		batch, size, length = batch[:0], 0, 0
		return nil
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), jobs.MaxMessage)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		j, err := gateway.ParseSubmission(line)
		if err != nil {
			return fmt.Errorf("%s line %d: %w", file, n, err)
		}
		if j.NotBefore.After(time.Now()) && len(j.After) == 0 { // a delayed job goes by itself
			id, err := c.Submit(cmd.Context(), j)
			if err != nil {
				return fmt.Errorf("%s line %d: %w", file, n, err)
			}
			if err := p.Item(map[string]string{"job": id}, id); err != nil {
				return err
			}
			continue
		}
		size, length = size+1+len(j.After), length+len(line)
		if len(batch) > 0 && (size > jobs.MaxBatch || length > batchBytes || j.Pool != batch[0].Pool) {
			if err := flush(); err != nil {
				return fmt.Errorf("%s before line %d: %w", file, n, err)
			}
			size, length = 1+len(j.After), len(line)
		}
		batch = append(batch, j)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return command.Usage("%s: a line of more than %d bytes: submit that job with --spec", file, jobs.MaxMessage)
	} else if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if err := flush(); err != nil {
		return fmt.Errorf("%s, last batch: %w", file, err)
	}
	return p.End()
}
