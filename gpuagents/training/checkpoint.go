package training

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// checkpointMagic begins a checkpoint, and names its version.
const checkpointMagic = "exotrain\x01\x00\x00\x00\x00\x00\x00\x00"

// head is what a checkpoint says before its vectors, each eight bytes: the shape, the window, the
// seed and the steps.
func (o *Options) head(steps uint64) [8]uint64 {
	return [8]uint64{
		uint64(o.Hidden), uint64(o.Inputs), uint64(o.Rows), uint64(o.Items), uint64(o.Candidates), uint64(o.Window),
		o.Seed, steps,
	}
}

// Checkpoint returns all that the trainer knows: Restore goes on from it with the same bits. It is
// the magic, the head, the exponents of scales, weights, means and squares, all little-endian, and
// the SHA-256 of that.
func (t *Trainer) Checkpoint(ctx context.Context) ([]byte, error) {
	s, err := t.state(ctx)
	if err != nil {
		return nil, err
	}
	return t.o.bytes(s), nil
}

func (o *Options) bytes(s *state) []byte {
	head := o.head(s.steps)
	out := []byte(checkpointMagic)
	for _, part := range [][]byte{
		device.Bytes(head[:]), device.Bytes(s.exponents), device.Bytes(s.weights), device.Bytes(s.mean),
		device.Bytes(s.square),
	} {
		out = append(out, part...)
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// Restore opens a trainer that goes on from a checkpoint. The options have the shape, the window
// and the seed of the trainer that made it; the others may differ. data is not kept. The error is
// ErrCheckpoint where data is damaged or of other options.
func Restore(ctx context.Context, dev device.Device, o Options, data []byte) (*Trainer, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	s, err := o.parse(data)
	if err != nil {
		return nil, err
	}
	return open(ctx, dev, o, s)
}

// parse reads a checkpoint.
func (o *Options) parse(data []byte) (*state, error) {
	runs, n := (o.Window+trainset.Run-1)/trainset.Run, o.size()
	want := len(checkpointMagic) + 8*8 + 4*runs + 3*4*n + sha256.Size
	if !bytes.HasPrefix(data, []byte(checkpointMagic)) {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrCheckpoint)
	}
	if len(data) < len(checkpointMagic)+8*8+sha256.Size {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrCheckpoint, len(data))
	}
	body := data[:len(data)-sha256.Size]
	if sha256.Sum256(body) != [sha256.Size]byte(data[len(body):]) {
		return nil, fmt.Errorf("%w: its bytes are not the ones that were written", ErrCheckpoint)
	}
	rest := body[len(checkpointMagic):]
	head := [8]uint64{}
	for i := range head {
		head[i] = binary.LittleEndian.Uint64(rest[8*i:])
	}
	if own := o.head(head[7]); head != own {
		return nil, fmt.Errorf("%w: units, inputs, rows, items, candidates, window and seed are %d, and the options "+
			"have %d", ErrCheckpoint, head[:7], own[:7])
	}
	if len(data) != want {
		return nil, fmt.Errorf("%w: %d bytes, want %d", ErrCheckpoint, len(data), want)
	}
	s := &state{head[7], make([]float32, n), make([]float32, n), make([]float32, n), make([]int32, runs)}
	rest = rest[8*8:]
	rest = rest[copy(device.Bytes(s.exponents), rest):]
	for _, v := range [][]float32{s.weights, s.mean, s.square} {
		rest = rest[copy(device.Bytes(v), rest):]
		for i, x := range v {
			if !(math.Abs(float64(x)) <= math.MaxFloat32) {
				return nil, fmt.Errorf("%w: value %d is %v", ErrCheckpoint, i, x)
			}
		}
	}
	for i, e := range s.exponents {
		if e < -trainset.MostExponent || e > trainset.MostExponent {
			return nil, fmt.Errorf("%w: exponent %d is %d", ErrCheckpoint, i, e)
		}
	}
	return s, nil
}
