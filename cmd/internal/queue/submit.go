package queue

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
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Submit returns exoswarm submit. The login of a tenant submits jobs of that tenant alone. A
// job is stored when the command prints its id. Whether an agent of its kind is connected does not
// matter. A script that does not know whether a call succeeded repeats it with the same --id: a job
// that is stored is refused the second time, and runs once.
func Submit() *cobra.Command {
	return cli.Verb{
		Use:   "submit --pool POOL --kind KIND --spec JSON | submit --file JOBS.jsonl",
		Short: "Submit a job, or a file of them, and print the ids",
		Long: `Submit a job. With --wait the command ends with the job: exit code 0 if it is done, 2
if its input or specification is wrong, 1 if it failed for another reason.

With --file every line is a job as JSON (docs/protocol.md); id and version may be left out. The
command submits the lines in batches of one pool and level, with up to 1000 jobs and 256 KiB. Either all jobs
of a batch are stored, or none. A job that waits for others (after) must come after them, or in
their batch, where each of its parents counts as one more job. If a line is not valid, the command
ends with an error that names the line. The batches before it are stored.`,
		Lists: true, Flags: submitFlags, Before: checkSubmit, Do: cli.Link(submit),
	}.Command()
}

func submitFlags(f *pflag.FlagSet) {
	// One job; with --file the lines have these fields.
	f.String("pool", "cpu", "cpu or gpu")
	f.String("kind", "", "kind of the job, which selects its handler")
	f.String("spec", "null", "the job's spec: JSON, @FILE, or - for standard input")
	f.String("id", "", "id of the job; empty: a new one. A second job with the same id is refused")
	f.String("lane", "normal", "high, normal or low")
	f.String("tenant", jobs.DefaultTenant, "tenant whose limits the job counts against; with the login of a tenant, "+
		"that tenant")
	f.Duration("delay", 0, "time before the first attempt")
	f.Duration("deadline", 0, "time after which the job fails if it is not done; 0: none")
	f.StringSlice("after", nil, "ids of jobs that must be over first, separated by commas")
	f.String("on-failed-parent", "", "if a job of --after fails: fail (the default), skip or run")
	f.Int("replicas", 0, "servers that store the job while it is queued: 1, 3 or 5, at most as many as the streams of "+
		"the cluster have; 0: as many")
	f.String("durability", "", "synced (the default), or memory: faster, and lost if the server that has the job ends")
	f.Int("max-attempts", jobs.Attempts, "most attempts, 1 to 100")
	f.Duration("result-ttl", 24*time.Hour, "how long the result is kept, 1 s to 168 h")
	// Many jobs.
	f.StringP("file", "f", "", "NDJSON file, one job per line; - for standard input")
	// The end of this command; the job does not depend on it.
	f.Bool("wait", false, "wait for the result and print it")
	f.Duration("timeout", 0, "longest wait with --wait; 0: no limit. The job continues afterwards")
}

// checkSubmit checks the combination of flags before the command connects. jobFromFlags checks the
// values of the flags later. It is PreRunE, so no connection exists.
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

// submit submits one job, and prints its id or, with --wait, its result; or it submits the jobs
// of --file.
//
// Without --wait the item has the field job, the id that the job got: the login of a tenant puts
// the name of the tenant before it.
func submit(cmd *cobra.Command, args []string) error {
	// Each line of the file has its own pool, kind and tenant.
	if file, _ := cmd.Flags().GetString("file"); file != "" {
		if _, err := os.Stat(file); err != nil && file != "-" {
			return command.Usage("--file: %v: name a file of jobs, or - for standard input", err)
		}
		return cli.Jobs(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
			return submitFile(cmd, c, file)
		}).Run(cmd, args)
	}
	j, err := jobFromFlags(cmd)
	if err != nil {
		return err
	}
	return cli.Jobs(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
		return submitOne(cmd, c, j)
	}).Run(cmd, args)
}

func submitOne(cmd *cobra.Command, c command.JobClient, j jobs.Job) error {
	wait, _ := cmd.Flags().GetBool("wait")
	j.Waited = wait
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
	return submittedJobs.Print(cmd, jobID{id})
}

var submittedJobs = cli.Table[jobID]{Columns: []string{"JOB"}, Row: func(id jobID) []any { return []any{id.Job} }}

type jobID struct {
	Job string `json:"job"`
}

// jobFromFlags returns the job of the command line, checked as the queue checks it. --delay and
// --deadline count from now by the clock of this machine. Errors of the specification name its
// field.
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
	j.Replicas, _ = f.GetInt("replicas")
	j.Durability, _ = f.GetString("durability")
	var err error
	if j.MaxAttempts, err = attempts(f); err != nil {
		return j, err
	}
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
	// Jobs store whole seconds; Validate checks the upper bound.
	j.ResultTTL = int(ttl.Seconds())
	text, _ := f.GetString("spec")
	// The specification comes last: it may read standard input, which other errors should leave
	// alone.
	spec, err := readText(cmd, text)
	if err != nil {
		return j, err
	}
	if !json.Valid(spec) {
		return j, command.Usage("submit: --spec is not JSON: %.60q", spec)
	}
	j.Spec = spec
	// The queue checks the same, but an error here names the flag's value before anything is sent.
	if err := j.Validate(); err != nil {
		return j, err
	}
	return j, schema.CheckSpec(j)
}

// attempts returns --max-attempts. A job takes 0 for the default, which a user who writes 0 does
// not mean.
func attempts(f *pflag.FlagSet) (int, error) {
	n, _ := f.GetInt("max-attempts")
	if n < 1 || n > 100 {
		return 0, command.Usage("--max-attempts %d: use 1 to 100", n)
	}
	return n, nil
}

// readText returns the value of a flag that is a text, @FILE, or - for standard input, up to
// jobs.MaxSpec bytes and one. The additional byte shows the caller that a text is too long. White
// space around the text of a file is removed.
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

// waitFor waits for the result of a job and prints it as one item, a jobs.Result. It fails with the
// error of a job that failed, whose code gives the exit code. After --timeout, and after an
// interrupt of the command, the job continues.
func waitFor(cmd *cobra.Command, id string, result func(ctx context.Context, id string) (jobs.Result, error)) error {
	ctx := cmd.Context()
	// The cause becomes the error of result, so the user sees what continues and how to look at it.
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
	// A failed job is printed too, before its error.
	if err := cli.PrintOne(cmd, []string{"JOB", "STATUS", "ATTEMPTS", "WORKER", "OUTPUT"}, r, r.JobID, r.Status,
		r.Attempts, r.Worker, string(r.Output)); err != nil {
		return err
	}
	if r.Error != nil {
		return command.JobFailed(id, r.Error)
	}
	return nil
}

// submitFile submits the jobs of a file, or of standard input for "-", and prints their ids as they
// are submitted. After an error the jobs whose ids were printed are queued. It holds one batch in
// memory, so the file may be longer than memory, or a pipe that does not end.
func submitFile(cmd *cobra.Command, c command.JobClient, file string) error {
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return command.Usage("--file: %v", err)
		}
		defer f.Close()
		in = f
	}
	p, err := submittedJobs.Begin(cmd)
	if err != nil {
		return err
	}
	if err := submitLines(cmd.Context(), c, file, in, func(id string) error {
		return submittedJobs.Item(p, jobID{id})
	}); err != nil {
		return err
	}
	return p.End()
}
