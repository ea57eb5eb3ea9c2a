package training

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// FeatureExtractor brings batches to the device, in parts that fit in its memory: features become
// numbers of 16 bits, as a swarm reads them, or are numbers of rows of the embedding.
type FeatureExtractor struct {
	*memory
	window int
}

func newFeatureExtractor(m *memory, o *Options) *FeatureExtractor {
	return &FeatureExtractor{memory: m, window: o.Window}
}

// parts brings one part of some sequences to the device after the other, and calls do for each.
// Between two parts it waits for the work of do. The work of a batch before has ended.
func (f *FeatureExtractor) parts(
	ctx context.Context, b *Batch, of span, states []float32, do func(p part) error,
) error {
	for start := 0; start < b.Moments; start += f.window {
		moments := min(f.window, b.Moments-start)
		for first := of.from; first < of.to; {
			if start > 0 || first > of.from {
				if err := f.stream.Sync(ctx); err != nil {
					return err
				}
			}
			most, err := f.pace.sequences(moments)
			if err != nil {
				return err
			}
			p := part{first, min(most, of.to-first), start, moments}
			if err := f.load(b, p, states); err != nil {
				return err
			}
			if err := f.pace.time(f.stream, p.elements(), func() error { return do(p) }); err != nil {
				return err
			}
			first += p.sequences
		}
	}
	return nil
}

// load queues the copies of a part. states are units at its beginning, [Sequences][Hidden]; nil:
// zeros.
func (f *FeatureExtractor) load(b *Batch, p part, states []float32) error {
	if err := f.reserve(p); err != nil {
		return err
	}
	r, n := &f.room, p.elements()
	lengths := device.Of[int32](r.lengths.host)
	for i, length := range b.Lengths[p.first:][:p.sequences] {
		lengths[i] = int32(max(0, min(int(length)-p.start, p.moments)))
	}
	pieces := []device.Piece{r.lengths.piece(r.host, 4*int64(p.sequences)), r.targets.piece(r.host, 4*n)}
	f.copy(r.targets.host, b, p, b.Targets)
	if f.Items > 0 {
		f.copy(r.items.host, b, p, b.Items)
		pieces = append(pieces, r.items.piece(r.host, 4*n))
	}
	if f.Rows > 0 {
		f.copy(r.numbers.host, b, p, b.Numbers)
		pieces = append(pieces, r.numbers.piece(r.host, 4*n))
	} else {
		f.extract(b, p)
		pieces = append(pieces, r.rows.piece(r.host, 2*n*int64(f.class())))
	}
	P, H := f.class(), f.Hidden
	if states != nil {
		carry := device.Of[float32](r.carry.host)
		for i := range p.sequences {
			row := carry[i*P:][:P]
			clear(row[copy(row, states[(p.first+i)*H:][:H]):])
		}
		pieces = append(pieces, r.carry.piece(r.host, 4*int64(p.sequences*P)))
	} else if err := f.stream.Fill(r.carry.Buffer, 0, 4*int64(p.sequences*P), 0); err != nil {
		return fmt.Errorf("clear units: %w", err)
	}
	if err := f.stream.UploadAll(pieces); err != nil {
		return fmt.Errorf("upload a batch: %w", err)
	}
	return nil
}

// copy copies the elements of a part. What is behind the end of a sequence is -1.
func (f *FeatureExtractor) copy(to []byte, b *Batch, p part, from []int32) {
	out := device.Of[int32](to)
	for t := range p.moments {
		row := out[t*p.sequences:][:p.sequences]
		copy(row, from[(p.start+t)*b.Sequences+p.first:])
		for i, length := range b.Lengths[p.first:][:p.sequences] {
			if p.start+t >= int(length) {
				row[i] = -1
			}
		}
	}
}

// extract makes numbers of the features of a part, as the cell holds its inputs.
func (f *FeatureExtractor) extract(b *Batch, p part) {
	out, P, I := device.Of[int16](f.room.rows.host), f.class(), f.Inputs
	for t := range p.moments {
		for n := range p.sequences {
			row := out[(t*p.sequences+n)*P:][:P]
			clear(row)
			if p.start+t >= int(b.Lengths[p.first+n]) {
				continue
			}
			for k, v := range b.Inputs[((p.start+t)*b.Sequences+p.first+n)*I:][:I] {
				v = fmath.Clamp(v, kernels.AgentGRUInput)
				// The last bits of a float32 of 1.5 * 2^23 and more are an integer.
				row[k] = int16(math.Float32bits(fmath.FMA(v, 1<<kernels.AgentInputBits, 3<<22)))
			}
		}
	}
}
