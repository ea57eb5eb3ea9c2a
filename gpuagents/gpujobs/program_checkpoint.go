package gpujobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// programState is how far a training of a program is.
type programState struct {
	digest [sha256.Size]byte // of the settings and the data
	step   int
	losses []float32         // by step
	arrays map[string][]byte // weights and moments of a checkpoint, nil for a training that begins
}

// programMagic begins a checkpoint of a training of a program; its last character is the version.
const programMagic = "exoprogram1"

// digest returns the digest of what decides the weights.
func (r *programRun) digest() (d [sha256.Size]byte) {
	h := sha256.New()
	h.Write(r.spec.Settings())
	for _, name := range slices.Sorted(maps.Keys(r.inputs)) {
		sum := sha256.Sum256(r.inputs[name].data)
		h.Write(sum[:])
	}
	h.Sum(d[:0])
	return d
}

// checkpoint stores the state in place of the one before, unless a weight is not finite, behind
// which no training goes on. The object lives as long as the job and its result are known.
func (r *programRun) checkpoint(ctx context.Context) error {
	b := append([]byte(programMagic), r.state.digest[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.state.step))
	b = append(b, device.Bytes(r.state.losses)...)
	for _, name := range r.names() {
		buffer := r.sets[0][name].Buffer
		at := len(b)
		b = append(b, make([]byte, r.size(name))...)
		if err := buffer.Read(0, b[at:]); err != nil {
			return fmt.Errorf("checkpoint of step %d: %w", r.state.step, err)
		}
		if slices.ContainsFunc(gpujob.Decode[float32](b[at:]), func(v float32) bool { return v-v != 0 }) {
			return jobs.Errorf(jobs.CodeInput, "step %d: weight %s is not finite: use a lower rate, and see that the "+
				"arrays are of size 1; the checkpoint before is kept", r.state.step, name)
		}
	}
	name := checkpointObject(r.job.ID)
	if _, err := r.h.o.Objects.PutObject(ctx, name, jobs.OwnerOf(r.job), bytes.NewReader(b)); err != nil {
		return jobs.Retry(fmt.Errorf("store object %s: %w", name, err))
	}
	r.stored = time.Now()
	return nil
}

// size returns the bytes of a weight or a moment.
func (r *programRun) size(name string) int {
	return len(r.inputs[strings.TrimSuffix(strings.TrimSuffix(name, ".m"), ".v")].data)
}

// lastCheckpoint reads the checkpoint from which this attempt goes on, if there is one. A
// checkpoint of an earlier attempt that does not fit is left out, and the log says so. One that the
// specification names must fit.
func (r *programRun) lastCheckpoint(ctx context.Context) error {
	found, err := r.readCheckpoint(ctx, r.job.ID)
	if errors.Is(err, errCheckpoint) {
		jobs.Logger(r.ctx).Warn("the checkpoint of an earlier attempt is not used", "error", err)
		found, err = false, nil
	}
	if found || err != nil || r.spec.Continue == "" {
		return err
	}
	found, err = r.readCheckpoint(ctx, r.spec.Continue)
	if errors.Is(err, errCheckpoint) || err == nil && !found {
		return jobs.Errorf(jobs.CodeInvalid, "spec.continue %s: no checkpoint of this program and these arrays (%v): "+
			"check the id, or leave it out", r.spec.Continue, err)
	}
	return err
}

// readCheckpoint reads the last checkpoint of a job, from bytes of anybody, and reports whether
// there is one. An errCheckpoint cannot be read, or is of another specification or other data.
func (r *programRun) readCheckpoint(ctx context.Context, job string) (found bool, err error) {
	name := checkpointObject(job)
	o, err := r.h.o.Objects.Object(ctx, name, jobs.OwnerOf(r.job))
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(o, r.h.o.Memory+maxTrainData))
		err = errors.Join(err, o.Close())
	}
	if err != nil {
		return false, jobs.Retry(fmt.Errorf("read object %s: %w", name, err))
	}
	return true, r.decode(b)
}

// decode reads what checkpoint has written into the state.
func (r *programRun) decode(b []byte) error {
	head := len(programMagic) + sha256.Size + 8
	if len(b) < head || string(b[:len(programMagic)]) != programMagic {
		return fmt.Errorf("%w: it begins with %.20q", errCheckpoint, b)
	}
	if !bytes.Equal(b[len(programMagic):head-8], r.state.digest[:]) {
		return fmt.Errorf("%w: it is of another specification or of other data", errCheckpoint)
	}
	step := binary.LittleEndian.Uint64(b[head-8:])
	all := 0
	for _, name := range r.names() {
		all += r.size(name)
	}
	if step > gpujob.MaxProgramSteps || len(b) != head+4*int(step)+all {
		return fmt.Errorf("%w: %d bytes for step %d", errCheckpoint, len(b), step)
	}
	if int(step) > r.spec.Steps {
		return fmt.Errorf("%w: it is of step %d, the training ends at %d", errCheckpoint, step, r.spec.Steps)
	}
	r.state.step, r.state.losses = int(step), slices.Clone(gpujob.Decode[float32](b[head:head+4*int(step)]))
	r.state.arrays = map[string][]byte{}
	at := head + 4*int(step)
	for _, name := range r.names() {
		r.state.arrays[name] = b[at : at+r.size(name)]
		at += r.size(name)
	}
	return nil
}
