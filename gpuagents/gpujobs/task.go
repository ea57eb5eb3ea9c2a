package gpujobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// inlineOutput is the most bytes of arrays in a result. More go into the object store: a result is
// one message.
const inlineOutput = 256 << 10

// task is one job in execution. One goroutine uses it.
type task struct {
	h        *Handlers
	ctx      context.Context //nolint:containedctx // the context of one call of a handler
	job      jobs.Job
	progress func(any)

	inputs []*input
	bytes  int64 // of all arrays, inputs and outputs

	place  Place
	others []Place // of a job that runs on several devices
	began  time.Time
	ran    gpujob.Ran
	left   []closer // to close when the work of the stream has ended, in this order
}

// closer is a stream or a buffer.
type closer interface{ Close() error }

// input is an array of the specification, whose bytes load fills in.
type input struct {
	field string
	of    *gpujob.Array
	data  []byte
}

// Stage is the progress of a job.
type Stage struct {
	Stage string `json:"stage"` // loading, computing or storing
}

// in announces an array of the specification. Its data is there when the work begins.
func (t *task) in(field string, a *gpujob.Array) *input {
	i := &input{field: field, of: a}
	t.inputs = append(t.inputs, i)
	t.bytes += a.Size()
	return i
}

// loadAll loads the inputs of a job that is not too large.
func (t *task) loadAll() error {
	if t.bytes > t.h.o.Memory {
		return jobs.Errorf(jobs.CodeInvalid, "arrays of %d bytes, at most %d: split the job, or raise "+
			"--gpu-job-memory", t.bytes, t.h.o.Memory)
	}
	t.progress(Stage{"loading"})
	for _, i := range t.inputs {
		if err := t.load(i); err != nil {
			return err
		}
	}
	return nil
}

// run loads the inputs, takes a device, and calls work.
func (t *task) run(work func() (any, error)) (out any, err error) {
	if err := t.loadAll(); err != nil {
		return nil, err
	}
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer func() { t.release(err) }()
	t.progress(Stage{"computing"})
	t.began = time.Now()
	return work()
}

// enter takes a place on a device. The caller calls release.
func (t *task) enter() (err error) {
	if t.place, err = t.h.o.Place(t.ctx, t.bytes); err != nil {
		return jobs.Retry(jobs.Errorf(jobs.CodeDevice, "no device: %v", err))
	}
	p := t.place.Device().Properties()
	t.ran = gpujob.Ran{Device: p.Name, Model: p.Model}
	return nil
}

// load reads the bytes of an input.
func (t *task) load(i *input) (err error) {
	if i.of.Object == "" {
		if i.of.Format != gpujob.FormatRaw {
			i.data, err = decode(i, i.of.Data)
			return err
		}
		i.data, err = i.of.Inline(i.field)
		return err
	}
	if t.h.o.Objects == nil {
		return jobs.Errorf(jobs.CodeInvalid, "spec.%s.object: this agent has no object store: use data", i.field)
	}
	r, err := t.h.o.Objects.Object(t.ctx, i.of.Object, jobs.OwnerOf(t.job))
	if errors.Is(err, jobs.ErrNotFound) {
		return jobs.Errorf(jobs.CodeInput, "spec.%s.object %q: there is no such object", i.field, i.of.Object)
	}
	if err != nil {
		return fmt.Errorf("spec.%s.object %q: %w", i.field, i.of.Object, err)
	}
	defer r.Close()
	size := i.of.Size()
	if i.of.Format != gpujob.FormatRaw {
		size += maxHeader // and other columns
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(size, 64<<20)+bytes.MinRead))
	n, err := io.Copy(buf, io.LimitReader(r, size+1))
	if err != nil {
		return jobs.Retry(fmt.Errorf("spec.%s.object %q: %w", i.field, i.of.Object, err))
	}
	switch {
	case n > size, n != size && i.of.Format == gpujob.FormatRaw:
		return jobs.Errorf(jobs.CodeInput, "spec.%s.object %q: %d bytes or more, the shape %v of %s needs %d", i.field,
			i.of.Object, n, []int64(i.of.Shape), i.of.Type, i.of.Size())
	case i.of.Format != gpujob.FormatRaw:
		if i.data, err = decode(i, buf.Bytes()); err != nil {
			return jobs.Errorf(jobs.CodeInput, "object %q: %v", i.of.Object, err)
		}
		return nil
	}
	i.data = buf.Bytes()
	return nil
}

// computed ends the time of the computation.
func (t *task) computed() gpujob.Ran {
	t.ran.Seconds = time.Since(t.began).Seconds()
	return t.ran
}

// store returns the outputs as arrays: their bytes inline if there are few, else as objects that
// belong to the job. names are part of the names of the objects.
func (t *task) store(names []string, arrays []*gpujob.Array) error {
	total := 0
	for _, a := range arrays {
		total += len(a.Data)
	}
	if total <= inlineOutput {
		return nil
	}
	t.progress(Stage{"storing"})
	if t.h.o.Objects == nil {
		return jobs.Errorf(jobs.CodeInvalid, "an output of %d bytes: this agent has no object store", total)
	}
	for i, a := range arrays {
		a.Object = "gpu-" + t.job.ID + "-" + names[i]
		_, err := t.h.o.Objects.PutObject(t.ctx, a.Object, jobs.OwnerOf(t.job), bytes.NewReader(a.Data))
		if err != nil {
			return fmt.Errorf("store object %s: %w", a.Object, err)
		}
		a.Data = nil
	}
	return nil
}

// stream opens a stream that is closed with the task.
func (t *task) stream() (device.Stream, error) {
	s, err := t.place.Device().NewStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	t.left = append(t.left, s)
	return s, nil
}

// upload copies bytes into a new buffer, which is closed with the task. A buffer has at least 16
// bytes, because a launch with none is an error on some devices.
func (t *task) upload(data []byte) (device.Buffer, error) {
	b, err := t.alloc(int64(len(data)))
	if err != nil {
		return nil, err
	}
	if err := b.Write(0, data); err != nil {
		return nil, fmt.Errorf("copy %d bytes to the device: %w", len(data), err)
	}
	return b, nil
}

// alloc returns a new buffer, which is closed with the task.
func (t *task) alloc(n int64) (device.Buffer, error) {
	b, err := t.place.Device().Alloc(max(n, 16), "gpu job")
	if err != nil {
		return nil, fmt.Errorf("%d bytes on the device: %w", n, err)
	}
	t.left = append(t.left, b)
	return b, nil
}

// release closes streams and buffers, and gives the place back. After a cancelled job it does so
// when the launches have ended, which it does not wait for.
func (t *task) release(err error) {
	for _, p := range append([]Place{t.place}, t.others...) {
		switch {
		case err == nil:
			p.Succeeded(0)
		// Of several devices, those that have failed say so; what connects them may have failed too.
		case broken(err) && (len(t.others) == 0 || p.Device().Health(context.Background()).State == device.Failed):
			p.Failed(err)
		}
	}
	end := func() {
		for _, c := range t.left {
			if err := c.Close(); err != nil {
				t.h.o.Logger.Warn("releasing the device after a job", "job", t.job.ID, "error", err)
			}
		}
		for _, p := range append([]Place{t.place}, t.others...) {
			p.Release()
		}
	}
	if t.ctx.Err() == nil || len(t.left) == 0 {
		end()
		return
	}
	t.h.closing.Go(end)
}
