package gpujobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/training"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// checkpointMagic begins a checkpoint of a training; its last character is the version.
const checkpointMagic = "exotrain1"

// maxCheckpoint bounds a checkpoint in bytes: two trainers with weights, two moments of Adam and an
// embedding of 2^20 rows of 32.
const maxCheckpoint = 1 << 30

// trainState is how far a training is. With the checkpoints of its trainers it decides all that
// follows.
type trainState struct {
	// Digest is the SHA-256 of the settings and the data.
	Digest string `json:"digest"`
	// Epochs are done, and Best is the one with the best weights, from 1; 0: none.
	Epochs []gpujob.TrainEpoch `json:"epochs"`
	Best   int                 `json:"best"`
	Steps  int64               `json:"steps"` // of the optimizer
	// Done is the number of batches of the present epoch, with the sums of their losses.
	Done      int     `json:"done"`
	Sum       float64 `json:"sum"`
	Count     int64   `json:"count"`
	Saturated int64   `json:"saturated"`

	best []byte // the checkpoint of the trainer with the best weights
}

// add counts a batch, behind which the trainer has made that number of steps.
func (s *trainState) add(l training.Loss, steps uint64) {
	s.Steps, s.Done = int64(steps), s.Done+1
	s.Sum, s.Count, s.Saturated = s.Sum+l.Sum, s.Count+l.Count, s.Saturated+l.Saturated
}

// savedTraining is a checkpoint: the state, and the trainer at it.
type savedTraining struct {
	state   trainState
	trainer []byte
}

// encode returns the bytes of a checkpoint: the magic, and the state as JSON, the trainer and the
// best one, each behind its length.
func (c *savedTraining) encode() ([]byte, error) {
	head, err := json.Marshal(c.state)
	if err != nil {
		return nil, fmt.Errorf("encode a checkpoint: %w", err)
	}
	b := []byte(checkpointMagic)
	for _, part := range [][]byte{head, c.trainer, c.state.best} {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(part))), part...)
	}
	return b, nil
}

// errCheckpoint is the class of bytes that are no checkpoint.
var errCheckpoint = errors.New("not a checkpoint that can be read")

// decodeTraining reads what encode has written, from bytes of anybody. The error is an
// errCheckpoint.
func decodeTraining(b []byte) (*savedTraining, error) {
	rest, ok := bytes.CutPrefix(b, []byte(checkpointMagic))
	if !ok {
		return nil, fmt.Errorf("%w: it begins with %.20q", errCheckpoint, b)
	}
	var parts [3][]byte
	for i := range parts {
		if len(rest) < 8 || binary.LittleEndian.Uint64(rest) > uint64(len(rest)-8) {
			return nil, fmt.Errorf("%w: it ends early", errCheckpoint)
		}
		n := 8 + int(binary.LittleEndian.Uint64(rest))
		parts[i], rest = rest[8:n], rest[n:]
	}
	c := &savedTraining{trainer: parts[1]}
	if err := json.Unmarshal(parts[0], &c.state); err != nil {
		return nil, fmt.Errorf("%w: %w", errCheckpoint, err)
	}
	c.state.best = parts[2]
	s := &c.state
	if len(rest) > 0 || s.Best < 0 || s.Best > len(s.Epochs) || s.Done < 0 || (s.Best == 0) != (len(s.Epochs) == 0) ||
		(s.Best == 0) != (len(s.best) == 0) {
		return nil, fmt.Errorf("%w: its parts contradict each other", errCheckpoint)
	}
	return c, nil
}

// checkpoint stores the state in place of the one before.
func (r *trainRun) checkpoint(ctx context.Context) error {
	c := savedTraining{state: r.state}
	var err error
	if c.trainer, err = r.trainer.Checkpoint(ctx); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.state.Steps, err)
	}
	b, err := c.encode()
	if err != nil {
		return err
	}
	if err := r.storeCheckpoint(ctx, b); err != nil {
		return err
	}
	r.stored = time.Now()
	return nil
}

// lastCheckpoint returns the checkpoint from which this attempt goes on; nil: it begins from the
// start.
func (r *trainRun) lastCheckpoint(ctx context.Context) (c *savedTraining, err error) {
	found, err := r.findCheckpoint(ctx, r.spec.Continue, maxCheckpoint, func(b []byte) (err error) {
		if c, err = decodeTraining(b); err == nil && c.state.Digest != r.data.digest {
			err = errOtherTraining
		}
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	return c, nil
}

// errOtherTraining is an errCheckpoint of another specification or of other data.
var errOtherTraining = fmt.Errorf("%w: it is of another specification or of other data", errCheckpoint)

// checkpointObject returns the name of the object with the last checkpoint of a job.
func checkpointObject(job string) string { return "train-" + job + "-checkpoint" }

// storeCheckpoint stores the checkpoint of a training in place of the one before. The object lives
// as long as the job and its result are known.
func (t *task) storeCheckpoint(ctx context.Context, b []byte) error {
	name := checkpointObject(t.job.ID)
	if _, err := t.h.o.Objects.PutObject(ctx, name, jobs.OwnerOf(t.job), bytes.NewReader(b)); err != nil {
		return jobs.Retry(fmt.Errorf("store object %s: %w", name, err))
	}
	return nil
}

// keepLast stores a checkpoint of this moment for another attempt, when a job ends early.
func (t *task) keepLast(ctx context.Context, store func(context.Context) error) {
	last, cancel := context.WithTimeout(ctx, lastWait)
	defer cancel()
	if err := store(last); err != nil {
		jobs.Logger(t.ctx).Warn("no checkpoint of the last steps", "error", err)
	}
}

// findCheckpoint decodes the checkpoint from which an attempt goes on, and reports whether there is
// one. A checkpoint of an earlier attempt that does not fit is left out, and the log says so. One of
// the job from, that the specification names, must fit; empty: it names none. decode takes bytes of
// anybody, up to most of them, and returns an errCheckpoint for bytes that do not fit.
func (t *task) findCheckpoint(ctx context.Context, from string, most int64, decode func(b []byte) error) (
	found bool, err error,
) {
	found, err = t.readCheckpoint(ctx, t.job.ID, most, decode)
	if errors.Is(err, errCheckpoint) {
		jobs.Logger(t.ctx).Warn("the checkpoint of an earlier attempt is not used", "error", err)
		found, err = false, nil
	}
	if found || err != nil || from == "" {
		return found, err
	}
	found, err = t.readCheckpoint(ctx, from, most, decode)
	switch {
	case errors.Is(err, errCheckpoint):
		return false, jobs.Errorf(jobs.CodeInvalid, "spec.continue %s: %v: use the specification and the data of that "+
			"job, or leave it out", from, err)
	case err == nil && !found:
		return false, jobs.Errorf(jobs.CodeInvalid, "spec.continue %s: that job has no checkpoint: check the id; "+
			"checkpoints are kept for %d days behind the end of a job", from, gpujob.TrainResult/(24*3600))
	}
	return found, err
}

// readCheckpoint decodes the last checkpoint of a job, and reports whether there is one.
func (t *task) readCheckpoint(ctx context.Context, job string, most int64, decode func(b []byte) error) (
	found bool, err error,
) {
	name := checkpointObject(job)
	o, err := t.h.o.Objects.Object(ctx, name, jobs.OwnerOf(t.job))
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(o, most))
		err = errors.Join(err, o.Close())
	}
	if err != nil {
		return false, jobs.Retry(fmt.Errorf("read object %s: %w", name, err))
	}
	return true, decode(b)
}
