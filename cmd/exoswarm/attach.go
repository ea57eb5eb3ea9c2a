package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// attach waits for the job of a run that another process has submitted, and writes its output.
func attach(cmd *cobra.Command, o runOptions) (err error) {
	switch {
	case o.output == "":
		return command.Usage("run: --output is missing: name a file for the decisions")
	case jobs.CheckID("job", o.attach) != nil:
		return jobs.CheckID("job", o.attach)
	}
	dest, err := newDestination(o.output, o.rejects, o.report)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dest.close(); err == nil {
			err = cerr
		}
	}()
	if err := dest.readLabels(o.labels); err != nil {
		return err
	}
	show, err := newProgress(o.progress, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	conn, err := natsq.Connect(ctx, natsconn.Options{
		URL: o.nats, Login: o.login, Name: "exoswarm run",
		GiveUp: o.patience,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	rec, err := recordOn(ctx, conn, o.attach)
	if err != nil {
		return err
	}
	if err := dest.takes(rec); err != nil {
		return err
	}
	job, err := conn.Queue.Find(ctx, o.attach)
	if errors.Is(err, jobs.ErrNotFound) { // it is over
		job, err = jobs.Job{ID: o.attach}, nil
	}
	if err != nil {
		return err
	}
	result, err := await(ctx, context.WithoutCancel(ctx), conn, job, show, false)
	if err != nil {
		if errors.Is(err, command.ErrInterrupted) {
			show.note("the job goes on: exoswarm run --attach " + o.attach + " takes it up again")
		}
		return err
	}
	carrier := &objectCarrier{conn: conn, id: o.attach}
	if err := finish(cmd, conn, carrier, o.attach, rec, result, dest, show); err != nil &&
		!errors.Is(err, command.ErrInterrupted) {
		return err
	} else if cerr := carrier.cleanup(context.WithoutCancel(ctx)); cerr != nil {
		o.log.Warn("cleaning up", "error", cerr)
	} else if err != nil {
		return err
	}
	return nil
}

// recordOn reads the record of a run.
func recordOn(ctx context.Context, conn *natsq.Conn, id string) (rec runRecord, err error) {
	err = getJSON(ctx, conn, "run-"+id, &rec)
	if errors.Is(err, jobs.ErrNotFound) {
		err = jobs.Errorf(jobs.CodeInput, "job %s: no output of a run is kept: the id is wrong, it was fetched "+
			"before, or a day has passed", id)
	}
	return rec, err
}

// takes refuses a destination for another format than the job's.
func (d *destination) takes(rec runRecord) error {
	if d.format != rec.Format && !d.output.stream() {
		return command.Usage("--output %s: the decisions of the job are %s: name a file that ends with .%s",
			d.output.name, rec.Format, rec.Format)
	}
	if d.hasReport && rec.Format != "ndjson" {
		return command.Usage("--report: it is made from decisions in plain NDJSON, and those of the job are %s",
			rec.Format)
	}
	return nil
}

func jobOutputCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "output ID -o FILE", Short: "Write the decisions of a run's job that is done", Args: cobra.ExactArgs(1),
		Long: `Write the decisions of a run's job that is done. They stay where they are, for a day
after they were made or until exoswarm run has fetched them. exoswarm run --attach ID waits for a
job that is not over, and writes its report and rejects too.`,
		RunE: connected(jobOutput),
	}
	c.Flags().StringP("output", "o", "-", "file for the decisions, with the extension of their format, or - for "+
		"standard output")
	return c
}

func jobOutput(cmd *cobra.Command, args []string, c *natsq.Conn) (err error) {
	id := args[0]
	if err := jobs.CheckID("job", id); err != nil {
		return err
	}
	output, _ := cmd.Flags().GetString("output")
	dest, err := newDestination(output, "", "")
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dest.close(); err == nil {
			err = cerr
		}
	}()
	ctx := cmd.Context()
	r, err := c.Results.Lookup(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		if _, ferr := c.Queue.Find(ctx, id); ferr == nil {
			return command.Usage("job %s is not over: exoswarm run --attach %s waits for it", id, id)
		}
		return err
	case err != nil:
		return err
	case r.Error != nil:
		return fmt.Errorf("job %s has no output: %w", id, r.Error)
	}
	rec, err := recordOn(ctx, c, id)
	if err != nil {
		return err
	}
	if err := dest.takes(rec); err != nil {
		return err
	}
	from, err := c.Objects.Object(ctx, "output-"+id, jobs.Owner{})
	if err != nil {
		return err
	}
	defer from.Close()
	return dest.output.fill(ctx, cmd.OutOrStdout(),
		func(w io.Writer) error { _, err := io.Copy(onlyWriter{w}, from); return err })
}
