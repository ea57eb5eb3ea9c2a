package runjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// carrier brings the inputs to the agent that reads them, and the output back. One goroutine uses
// it.
type carrier interface {
	// source makes input number i available, and returns its URI for the agent.
	source(ctx context.Context, i int, in userfile.Input) (string, error)
	// sinks returns the URIs for decisions, rejects and incidents.
	sinks() (output, rejects, incidents string)
	// collect brings decisions and rejects into the files of the destination.
	collect(ctx context.Context, d *userfile.Destination) error
	// copies reports whether the carrier has copied inputs of this machine.
	copies() bool
	// cleanup removes the copies that the carrier made.
	cleanup(ctx context.Context) error
}

// localCarrier lets an agent in this process read and write the user's files in place.
type localCarrier struct {
	output, rejects, incidents string // names of files
}

// localRoots returns the folders that the agent may use, one for each input, one for the output and
// one for the rejects, and the carrier that names them.
func localRoots(inputs []userfile.Input, d *userfile.Destination) (map[files.Root]string, *localCarrier) {
	roots := map[files.Root]string{
		{Name: "out"}:         filepath.Dir(d.Decisions()),
		{Name: "out-rejects"}: filepath.Dir(d.Rejected()),
	}
	carrier := &localCarrier{output: filepath.Base(d.Decisions()), rejects: filepath.Base(d.Rejected())}
	if file, _ := d.Incidents(); file != "" {
		roots[files.Root{Name: "out-incidents"}] = filepath.Dir(file)
		carrier.incidents = filepath.Base(file)
	}
	for _, in := range inputs {
		// The name of a series is its path below the root, so the root is the path without it.
		suffix := filepath.FromSlash(in.Name)
		roots[files.Root{Name: "in" + strconv.Itoa(in.From)}] = filepath.Clean(strings.TrimSuffix(in.Path, suffix) +
			".")
	}
	return roots, carrier
}

func (c *localCarrier) source(_ context.Context, _ int, in userfile.Input) (string, error) {
	return fmt.Sprintf("file:in%d/%s", in.From, in.Name), nil
}

func (c *localCarrier) sinks() (output, rejects, incidents string) {
	return "file:out/" + c.output, "file:out-rejects/" + c.rejects, "file:out-incidents/" + c.incidents
}

func (c *localCarrier) collect(context.Context, *userfile.Destination) error { return nil }

func (c *localCarrier) copies() bool { return false }

func (c *localCarrier) cleanup(context.Context) error { return nil }

// objectCarrier sends inputs and output through the object store of the cluster, so that no machine
// needs access to the files of another one.
type objectCarrier struct {
	conn *natsq.Conn
	id   string   // of the job, part of the names of all objects
	sent []string // names of the inputs so far, also of one that failed half way
}

func (c *objectCarrier) source(ctx context.Context, i int, in userfile.Input) (string, error) {
	f, err := os.Open(in.Path)
	if err != nil {
		return "", command.Usage("input: %v", err)
	}
	defer f.Close()
	name := fmt.Sprintf("input-%s-%d", c.id, i)
	c.sent = append(c.sent, name)
	if _, err := c.conn.Objects.PutObject(ctx, name, jobs.Owner{Job: c.id}, f); err != nil {
		return "", err
	}
	return "object:" + name, nil
}

func (c *objectCarrier) sinks() (output, rejects, incidents string) {
	return "object:output-" + c.id, "object:rejects-" + c.id, "object:incidents-" + c.id
}

func (c *objectCarrier) collect(ctx context.Context, d *userfile.Destination) error {
	wanted := map[string]string{"rejects-": d.Rejected()}
	if d.HasOutput() {
		wanted["output-"] = d.Decisions()
	}
	if file, _ := d.Incidents(); file != "" {
		wanted["incidents-"] = file
	}
	for name, path := range wanted {
		r, err := c.conn.Objects.Object(ctx, name+c.id, jobs.Owner{})
		if err != nil {
			return err
		}
		err = userfile.WriteFile(path, func(w io.Writer) error { _, err := io.Copy(w, r); return err })
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *objectCarrier) copies() bool { return len(c.sent) > 0 }

// cleanup removes all objects of the run, several at a time, until ctx ends. CPU agents remove the
// others when the result of the job is gone.
func (c *objectCarrier) cleanup(ctx context.Context) error {
	// Sixteen at a time: a run of many files has as many objects.
	names := append(c.sent, "output-"+c.id, "rejects-"+c.id, "manifest-"+c.id, "summary-"+c.id, "run-"+c.id,
		"incidents-"+c.id)
	errs := make([]error, len(names))
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i, name := range names {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			errs[i] = fmt.Errorf("delete object %s and %d others: %w", name, len(names)-i-1, context.Cause(ctx))
		}
		if errs[i] != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = c.conn.Objects.DeleteObject(ctx, name, jobs.Owner{})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// putJSON stores a value as an object that belongs to a job, so that it is removed with the job.
func putJSON(ctx context.Context, conn *natsq.Conn, name, job string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	_, err = conn.Objects.PutObject(ctx, name, jobs.Owner{Job: job}, bytes.NewReader(data))
	return err
}

// getJSON reads an object that putJSON has stored.
func getJSON(ctx context.Context, conn *natsq.Conn, name string, v any) error {
	r, err := conn.Objects.Object(ctx, name, jobs.Owner{})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := json.NewDecoder(r).Decode(v); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return nil
}

// stage is how far a run came.
type stage int

const (
	sending    stage = iota // the inputs; there is no job yet
	submitting              // there is no job if it was refused, and otherwise there may be one
	waiting                 // for the result
	delivering              // the result is there, and its output is not where the user wants it
	delivered
)

// objects are the objects of a job in the store of the cluster: inputs, output, record and summary.
// This is the only place that decides whether a command removes them when it ends; TestRemoved
// has the table. The CPU agents remove the kept objects when the result of the job is gone. One
// goroutine uses it.
type objects struct {
	carrier carrier
	id      string // of the job
	own     bool   // the command has submitted the job
	sole    bool   // nobody else has the inputs, so the job cannot be repeated from its dead letter
	at      stage
}

// removed reports whether the objects are removed, if the command ends with an error; nil for none.
func (o *objects) removed(err error) bool {
	var failed *jobFailure
	var gone withdrawnError
	switch o.at {
	case sending:
		return o.own
	case submitting:
		var refused *jobs.Error
		return o.own && errors.As(err, &refused) && !jobs.Retryable(err)
	case waiting:
		return o.own && (errors.As(err, &gone) || errors.As(err, &failed) && o.sole)
	}
	return o.at == delivered
}

// settle removes the objects, or keeps them, at the end of a command with an error. It returns the
// error, with the way to an output that is kept.
func (o *objects) settle(ctx context.Context, run *Options, err error) error {
	if !o.removed(err) {
		if o.at == delivering && err != nil && run.OnCluster() {
			err = fmt.Errorf("%w: the output is kept: exoswarm run --attach %s --output FILE fetches it", err, o.id)
		}
		return err
	}
	last, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	if cerr := o.carrier.cleanup(last); cerr != nil {
		run.Log.Warn("cleaning up; the CPU agents remove what is left", "error", cerr)
	}
	return err
}
