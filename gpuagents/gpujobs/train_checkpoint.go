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

// checkpointObject returns the name of the object with the last checkpoint of a job.
func checkpointObject(job string) string { return "train-" + job + "-checkpoint" }

// checkpoint stores the state in place of the one before. The object lives as long as the job and
// its result are known.
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
	name := checkpointObject(r.job.ID)
	if _, err := r.h.o.Objects.PutObject(ctx, name, jobs.OwnerOf(r.job), bytes.NewReader(b)); err != nil {
		return jobs.Retry(fmt.Errorf("store object %s: %w", name, err))
	}
	r.stored = time.Now()
	return nil
}

// lastCheckpoint returns the checkpoint from which this attempt goes on; nil: it begins from the
// start. A checkpoint of an earlier attempt that does not fit is left out, and the log says so. One
// that the specification names must fit.
func (r *trainRun) lastCheckpoint(ctx context.Context) (*savedTraining, error) {
	c, err := r.readCheckpoint(ctx, r.job.ID)
	if errors.Is(err, errCheckpoint) {
		jobs.Logger(r.ctx).Warn("the checkpoint of an earlier attempt is not used", "error", err)
		c, err = nil, nil
	}
	if err != nil || c != nil || r.spec.Continue == "" {
		return c, err
	}
	c, err = r.readCheckpoint(ctx, r.spec.Continue)
	switch {
	case errors.Is(err, errCheckpoint):
		return nil, jobs.Errorf(jobs.CodeInvalid, "spec.continue %s: %v: use the specification and the data of that "+
			"job, or leave it out", r.spec.Continue, err)
	case err == nil && c == nil:
		return nil, jobs.Errorf(jobs.CodeInvalid, "spec.continue %s: that job has no checkpoint: check the id; "+
			"checkpoints are kept for %d days behind the end of a job", r.spec.Continue, gpujob.TrainResult/(24*3600))
	}
	return c, err
}

// readCheckpoint reads the last checkpoint of a job; nil for none. An errCheckpoint cannot be read,
// or is of another specification or other data.
func (r *trainRun) readCheckpoint(ctx context.Context, job string) (*savedTraining, error) {
	name := checkpointObject(job)
	o, err := r.h.o.Objects.Object(ctx, name, jobs.OwnerOf(r.job))
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, nil
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(o, maxCheckpoint))
		err = errors.Join(err, o.Close())
	}
	if err != nil {
		return nil, jobs.Retry(fmt.Errorf("read object %s: %w", name, err))
	}
	c, err := decodeTraining(b)
	if err != nil {
		return nil, err
	}
	if c.state.Digest != r.data.digest {
		return nil, fmt.Errorf("%w: it is of another specification or of other data", errCheckpoint)
	}
	return c, nil
}
