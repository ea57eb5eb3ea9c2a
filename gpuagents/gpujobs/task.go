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

// task is one job in execution. One goroutine uses it, from execute to release; only the closing of
// what is left may run in a goroutine of Handlers.
type task struct {
	h        *Handlers
	ctx      context.Context //nolint:containedctx // the context of one call of a handler
	job      jobs.Job
	progress func(any)

	inline bool // keeps outputs of any size in Data

	inputs []*input
	// bytes counts all arrays, inputs and outputs, before anything is loaded.
	bytes int64 // of all arrays, inputs and outputs

	// place, others, began and ran are set when the devices are chosen. release needs the places.
	place  Place
	others []Place // of a job that runs on several devices
	began  time.Time
	ran    gpujob.Ran
	left   []closer // to close when the work of the stream has ended, in this order
}

// closer is a stream or a buffer. A round and a fuser of package consensus are closers too.
type closer interface{ Close() error }

// input is an array of the specification, whose bytes load fills in.
type input struct {
	field string
	of    *gpujob.Array
	data  []byte
}

// Stage is the progress of a job, as programs that watch the job receive it.
type Stage struct {
	Stage string `json:"stage"` // loading, computing or storing
}

// in announces an array of the specification. It loads nothing: the bytes of the result are set
// when the work begins.
func (t *task) in(field string, a *gpujob.Array) *input {
	i := &input{field: field, of: a}
	t.inputs = append(t.inputs, i)
	t.bytes += a.Size()
	return i
}

// loadAll loads the inputs of a job. The memory limit is checked first, so a job that is too large
// costs nothing. Each agent has its own limit, but the error is final: the queue cannot choose an
// agent by size.
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

// load reads the bytes of an input, inline or from the object store. An object must have exactly
// the bytes of its shape; at most one byte more is read to find that out. A read that breaks off is
// worth another attempt, a missing object is not.
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
	// The shape is the claim of a submitter: memory beyond 64 MiB is taken as bytes arrive.
	buf := bytes.NewBuffer(make([]byte, 0, min(size, 64<<20)+bytes.MinRead))
	n, err := io.Copy(buf, io.LimitReader(r, size+1))
	if err != nil {
		return jobs.Retry(fmt.Errorf("spec.%s.object %q: %w", i.field, i.of.Object, err))
	}
	// n is size+1 if the object is longer: it was not read to its end.
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

// computed ends the time of the computation and returns where it ran. The works call it before
// store, so that the time has no part of the object store.
func (t *task) computed() gpujob.Ran {
	t.ran.Seconds = time.Since(t.began).Seconds()
	return t.ran
}

// store decides how the outputs leave: with up to inlineOutput bytes in all they stay in Data,
// otherwise each becomes an object of the job and Data is nil. names are part of the names of the
// objects. A repeated attempt writes the same names. After an error some objects may be stored;
// they belong to the job and go with it.
func (t *task) store(names []string, arrays []*gpujob.Array) error {
	total := 0
	for _, a := range arrays {
		total += len(a.Data)
	}
	if total <= inlineOutput || t.inline {
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

// stream opens a stream that is closed with the task, before the buffers that are allocated after
// it.
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
	// Only a broken device is reported: the other errors are those of the job.
	for _, p := range append([]Place{t.place}, t.others...) {
		switch {
		case err == nil:
			p.Succeeded(0)
		// Of several devices, those that have failed say so; what connects them may have failed
		// too.
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
	// Close of a stream waits for its launches. The worker waits for the handler, so a cancelled
	// job leaves that to Close of Handlers.
	if t.ctx.Err() == nil || len(t.left) == 0 {
		end()
		return
	}
	t.h.closing.Go(end)
}
