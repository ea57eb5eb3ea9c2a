package runjob

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Attach waits for the job of a run that another process has submitted, and writes its output. When
// ctx ends, the job continues.
func Attach(ctx context.Context, o Options) (err error) {
	switch {
	case o.Output == "" && o.Anomalies == "":
		return command.Usage("run: --output is missing: name a file for the decisions")
	case jobs.CheckID("job", o.Attach) != nil:
		return jobs.CheckID("job", o.Attach)
	}
	dest, err := userfile.NewDestination(o.paths())
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dest.Close(); err == nil {
			err = cerr
		}
	}()
	known, err := readLabels(o.Labels, dest)
	if err != nil {
		return err
	}
	show, err := newProgress(o.Progress, o.Err)
	if err != nil {
		return err
	}
	conn, err := natsq.Connect(ctx, natsconn.Options{
		URL: o.NATS, Login: o.Login, Name: "exoswarm run",
		GiveUp: o.Patience,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	rec, err := recordFor(ctx, conn, o.Attach, dest)
	if err != nil {
		return err
	}
	job, err := conn.Queue.Find(ctx, o.Attach)
	if errors.Is(err, jobs.ErrNotFound) { // it is over
		job, err = jobs.Job{ID: o.Attach}, nil
	}
	if err != nil {
		return err
	}
	owned := &objects{carrier: &objectCarrier{conn: conn, id: o.Attach}, id: o.Attach, at: waiting}
	defer func() { err = owned.settle(context.WithoutCancel(ctx), &o, err) }()
	result, err := await(ctx, context.WithoutCancel(ctx), conn, job, show, false)
	if err != nil {
		if errors.Is(err, command.ErrInterrupted) {
			show.note("the job goes on: exoswarm run --attach " + o.Attach + " takes it up again")
		}
		return err
	}
	if err := (&delivery{
		conn: conn, carrier: owned.carrier, id: o.Attach, record: rec, dest: dest, labels: known, show: show,
		objects: owned,
	}).finish(ctx, &o, result); err != nil {
		return err
	}
	return o.tooManyRejects(result)
}

// checkPlaces returns an error of usage if the job does not make an output that the user wants.
func (r *runRecord) checkPlaces(d *userfile.Destination) error {
	_, incidents := d.Incidents()
	switch {
	case d.HasOutput() && r.NoOutput:
		return command.Usage("run: --output: the job writes incidents alone: leave it out, and name --anomalies")
	case incidents != "" && r.Incidents == "":
		return command.Usage("run: --anomalies: the job writes no incidents: name it when the run is submitted")
	case incidents != "" && r.Incidents != incidents:
		return command.Usage("run: --anomalies %s: the incidents of the job are %s: name a file that ends with .%s",
			d.AnomaliesPath(), r.Incidents, r.Incidents)
	}
	return nil
}

// recordFor returns the record of a run whose output fits a destination.
func recordFor(
	ctx context.Context, conn *natsq.Conn, id string, dest *userfile.Destination,
) (rec runRecord, err error) {
	err = getJSON(ctx, conn, "run-"+id, &rec)
	if errors.Is(err, jobs.ErrNotFound) {
		return rec, jobs.Errorf(jobs.CodeInput, "job %s: no output of a run is kept: the id is wrong, it was fetched "+
			"before, or a day has passed", id)
	}
	if err != nil {
		return rec, err
	}
	if err := dest.CheckFormat(rec.Format); err != nil {
		return rec, err
	}
	return rec, rec.checkPlaces(dest)
}

// Fetch writes the decisions of a job that is done to output, and leaves them in the object store.
// A job that is not over is an error of usage.
func Fetch(ctx context.Context, c *natsq.Conn, id, output string, stdout io.Writer) (err error) {
	if err := jobs.CheckID("job", id); err != nil {
		return err
	}
	dest, err := userfile.NewDestination(userfile.Paths{Output: output})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dest.Close(); err == nil {
			err = cerr
		}
	}()
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
	if _, err := recordFor(ctx, c, id, dest); err != nil {
		return err
	}
	from, err := c.Objects.Object(ctx, "output-"+id, jobs.Owner{})
	if err != nil {
		return err
	}
	defer from.Close()
	return dest.Copy(ctx, stdout, from)
}
