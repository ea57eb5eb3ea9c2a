package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/jobclient"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs"
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

func submit(cmd *cobra.Command, _ []string, c jobclient.Client) error {
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

// submitFile submits the jobs of a file, or of standard input for "-", and prints their ids as they
// are submitted.
func submitFile(cmd *cobra.Command, c jobclient.Client, file string) error {
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
	if err := jobclient.SubmitLines(cmd.Context(), c, file, in, func(id string) error {
		return p.Item(map[string]string{"job": id}, id)
	}); err != nil {
		return err
	}
	return p.End()
}
