package gpujobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// inlineOutput is the maximum size of arrays in a result, in bytes. Larger arrays go into the
// object store: a result is one message.
const inlineOutput = 256 << 10

// task is one job in execution. One goroutine uses it, from run to release; only the final closing
// may run in a goroutine of Handlers.
type task struct {
	h        *Handlers
	ctx      context.Context //nolint:containedctx // the context of one call of a handler
	job      jobs.Job
	progress func(any)

	inline bool // keeps outputs of any size in Data

	inputs []*input
	// bytes counts all arrays, inputs and outputs, before anything is loaded.
	bytes int64

	limit int64 // of bytes; 0: Options.Memory
	// room is what the device must have room for, of a job whose arrays stay on the host; 0: bytes.
	room int64
	// refused is why the job cannot run, found before anything is loaded.
	refused error

	// spread returns the most devices that the job runs on, by the properties of one; nil: one.
	spread func(p device.Properties) int

	// slots, slot, began and ran are set when the devices are chosen.
	slots []Slot
	slot  Slot // the first of slots
	began time.Time
	ran   gpujob.Ran
	left  []closer // to close in this order when the work of the stream has ended
}

// closer is a stream, a buffer, or an object of package consensus.
type closer interface{ Close() error }

// input is an array of the specification. load fills in its bytes.
type input struct {
	field string
	of    *gpujob.Array
	data  []byte
}

// Stage is the progress of a job, as programs that watch the job receive it.
type Stage struct {
	Stage string `json:"stage"` // loading, computing or storing
}

// in announces an array of the specification. It loads nothing: data is set when the work starts.
func (t *task) in(field string, a *gpujob.Array) *input {
	i := &input{field: field, of: a}
	t.inputs = append(t.inputs, i)
	t.bytes += a.Size()
	return i
}

// loadAll loads the inputs of a job. It checks the memory limit first, so a job that is too large
// costs nothing. Each agent has its own limit, but the error is final: the queue cannot choose an
// agent by size.
func (t *task) loadAll() error {
	if t.refused != nil {
		return t.refused
	}
	if limit := cmp.Or(t.limit, t.h.o.Memory); t.bytes > limit {
		return jobs.Errorf(jobs.CodeInvalid, "arrays of %d bytes, at most %d: split the job, or raise "+
			"--gpu-job-memory", t.bytes, limit)
	}
	t.progress(Stage{"loading"})
	for _, i := range t.inputs {
		if err := t.load(i); err != nil {
			return err
		}
	}
	return nil
}

func (t *task) run(work func() (any, error)) (out any, err error) {
	if err := t.loadAll(); err != nil {
		return nil, err
	}
	if err := t.take(); err != nil {
		return nil, err
	}
	defer func() { t.release(err) }()
	t.progress(Stage{"computing"})
	t.began = time.Now()
	return work()
}

// take takes a slot on one device, or on several for a job that is spread. The caller calls release.
func (t *task) take() error {
	o, room := &t.h.o, cmp.Or(t.room, t.bytes)
	one, err := o.Slot(t.ctx, room)
	t.slots = []Slot{one}
	if err == nil && t.spread != nil && o.AllSlots != nil && o.Collective != nil {
		if most := t.spread(one.Device().Properties()); most > 1 {
			one.Release()
			t.slots, err = o.AllSlots(t.ctx, room)
			for ; len(t.slots) > most; t.slots = t.slots[:len(t.slots)-1] {
				t.slots[len(t.slots)-1].Release()
			}
		}
	}
	if err != nil {
		t.slots = nil
		return jobs.Retry(jobs.Errorf(jobs.CodeDevice, "no device: %v", err))
	}
	t.slot = t.slots[0]
	p := t.slot.Device().Properties()
	t.ran = gpujob.Ran{Device: p.Name, Model: p.Model}
	return nil
}

// devices returns the devices of the slots.
func (t *task) devices() []device.Device {
	all := make([]device.Device, len(t.slots))
	for i, s := range t.slots {
		all[i] = s.Device()
	}
	return all
}

// load reads the bytes of an input, inline or from the object store. An object must have exactly
// the bytes of its shape; at most one more byte is read. A read that fails is worth another
// attempt, a missing object is not.
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

// computed stops the clock of the computation and returns where it ran. It is called before store,
// so that the time excludes the object store.
func (t *task) computed() gpujob.Ran {
	t.ran.Seconds = time.Since(t.began).Seconds()
	return t.ran
}

// store decides how the outputs leave: up to inlineOutput bytes stay in Data; otherwise each array
// becomes an object of the job, and Data is nil. names are parts of the object names. A repeated
// attempt writes the same names. After an error some objects may be stored; they are removed with
// the job.
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

func (t *task) storeMap(all map[string]gpujob.Array) error {
	names := slices.Sorted(maps.Keys(all))
	arrays := make([]*gpujob.Array, len(names))
	for i, name := range names {
		a := all[name]
		arrays[i] = &a
	}
	if err := t.store(names, arrays); err != nil {
		return err
	}
	for i, name := range names {
		all[name] = *arrays[i]
	}
	return nil
}

// stream opens a stream on d. The task closes it, before the buffers that are allocated after it.
func (t *task) stream(d device.Device) (device.Stream, error) { return t.opened(d.NewStream()) }

// opened is stream for a stream that was just opened.
func (t *task) opened(s device.Stream, err error) (device.Stream, error) {
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	t.left = append(t.left, s)
	return s, nil
}

// upload copies bytes into a new buffer, which is closed with the task.
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

// alloc returns a new buffer, which is closed with the task. It has at least 16 bytes: a launch
// with an empty buffer is an error on some devices.
func (t *task) alloc(n int64) (device.Buffer, error) {
	b, err := t.slot.Device().Alloc(max(n, 16), "gpu job")
	if err != nil {
		return nil, fmt.Errorf("%d bytes on the device: %w", n, err)
	}
	t.left = append(t.left, b)
	return b, nil
}

// release closes streams and buffers, and releases the slots. After a cancelled job it does so when
// the launches have ended, without a wait.
func (t *task) release(err error) {
	// Only a broken device is reported: other errors belong to the job.
	for _, p := range t.slots {
		switch {
		case err == nil:
			p.Succeeded(0)
		// Of several devices, each broken one reports itself; their interconnect may have failed
		// too.
		case broken(err) && (len(t.slots) == 1 || p.Device().Health(context.Background()).State == device.Failed):
			p.Failed(err)
		}
	}
	end := func() {
		for _, c := range t.left {
			if err := c.Close(); err != nil {
				t.h.o.Logger.Warn("releasing the device after a job", "job", t.job.ID, "error", err)
			}
		}
		for _, p := range t.slots {
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
