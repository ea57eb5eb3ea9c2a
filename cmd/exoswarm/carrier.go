package main

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
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// carrier brings the input to the agent that reads it, and the output back.
type carrier interface {
	// source returns the URI under which the agent finds input number i.
	source(ctx context.Context, i int, in input) (string, error)
	// sinks returns the URIs for decisions and rejects.
	sinks() (output, rejects string)
	// collect puts decisions and rejects where the user wants them.
	collect(ctx context.Context, d *destination) error
	// cleanup removes what was only for the way.
	cleanup(ctx context.Context) error
}

// localCarrier lets an agent in this process read and write the user's files in place.
type localCarrier struct {
	output, rejects string // names of files
}

// localRoots makes the folders that the agent may see: one for each input and one for the output.
func localRoots(inputs []input, d *destination) (map[files.Root]string, *localCarrier) {
	roots := map[files.Root]string{
		{Name: "out"}:         filepath.Dir(d.decisions),
		{Name: "out-rejects"}: filepath.Dir(d.rejected),
	}
	for _, in := range inputs {
		// The series' name is its path below the root.
		suffix := filepath.FromSlash(in.Name)
		roots[files.Root{Name: "in" + strconv.Itoa(in.from)}] = filepath.Clean(strings.TrimSuffix(in.Path, suffix) +
			".")
	}
	return roots, &localCarrier{output: filepath.Base(d.decisions), rejects: filepath.Base(d.rejected)}
}

func (c *localCarrier) source(_ context.Context, _ int, in input) (string, error) {
	return fmt.Sprintf("file:in%d/%s", in.from, in.Name), nil
}

func (c *localCarrier) sinks() (output, rejects string) {
	return "file:out/" + c.output, "file:out-rejects/" + c.rejects
}

func (c *localCarrier) collect(context.Context, *destination) error { return nil }

func (c *localCarrier) cleanup(context.Context) error { return nil }

// objectCarrier sends everything through the cluster's object store, so that no machine needs to
// see another's files.
type objectCarrier struct {
	conn *natsq.Conn
	id   string
	sent []string
}

func (c *objectCarrier) source(ctx context.Context, i int, in input) (string, error) {
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

func (c *objectCarrier) sinks() (output, rejects string) {
	return "object:output-" + c.id, "object:rejects-" + c.id
}

func (c *objectCarrier) collect(ctx context.Context, d *destination) error {
	for name, path := range map[string]string{"output-": d.decisions, "rejects-": d.rejected} {
		r, err := c.conn.Objects.Object(ctx, name+c.id, jobs.Owner{})
		if err != nil {
			return err
		}
		err = writeFile(path, func(w io.Writer) error { _, err := io.Copy(w, r); return err })
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// cleanup removes everything side by side: ctx bounds all of it. What it does not reach, the CPU
// agents remove when the job's result is gone.
func (c *objectCarrier) cleanup(ctx context.Context) error {
	names := append(c.sent, "output-"+c.id, "rejects-"+c.id, "manifest-"+c.id, "summary-"+c.id, "run-"+c.id)
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

// writeFile writes a file that appears complete or not at all.
func writeFile(path string, fill func(io.Writer) error) (err error) {
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	f, err := os.Create(part)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(part)
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err = fill(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// putJSON stores a value as an object of a job.
func putJSON(ctx context.Context, conn *natsq.Conn, name, job string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	_, err = conn.Objects.PutObject(ctx, name, jobs.Owner{Job: job}, bytes.NewReader(data))
	return err
}

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
