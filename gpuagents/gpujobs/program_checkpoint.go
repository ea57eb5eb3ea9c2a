package gpujobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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
// which no training goes on.
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
	if err := r.storeCheckpoint(ctx, b); err != nil {
		return err
	}
	r.stored = time.Now()
	return nil
}

// size returns the bytes of a weight or a moment.
func (r *programRun) size(name string) int {
	return len(r.inputs[strings.TrimSuffix(strings.TrimSuffix(name, ".m"), ".v")].data)
}

// lastCheckpoint reads the checkpoint from which this attempt goes on, if there is one.
func (r *programRun) lastCheckpoint(ctx context.Context) error {
	_, err := r.findCheckpoint(ctx, r.spec.Continue, r.h.o.Memory+maxTrainData, r.decode)
	return err
}

// decode reads what checkpoint has written into the state.
func (r *programRun) decode(b []byte) error {
	head := len(programMagic) + sha256.Size + 8
	if len(b) < head || string(b[:len(programMagic)]) != programMagic {
		return fmt.Errorf("%w: it begins with %.20q", errCheckpoint, b)
	}
	if !bytes.Equal(b[len(programMagic):head-8], r.state.digest[:]) {
		return errOtherTraining
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
