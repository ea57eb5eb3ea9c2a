package training

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// Model is the network on the device: the forward step, the loss, and the sums of gradients.
type Model struct {
	*memory
	keep float32 // what units that the readout sees are multiplied by in training
	drop uint32  // the number of 65,536 units that it does not see
	seed uint64
}

// tableWords is the length of a table of gates.
func tableWords(class int) int64 { return int64(kernels.AgentTableReadout(class)) }

func newModel(m *memory, o *Options) *Model {
	share := decimal(o.Dropout)
	return &Model{memory: m, keep: float32(1 / (1 - share)), drop: uint32(share*65536 + 0.5), seed: o.Seed}
}

// begin clears the totals, and the sums of a batch of some moments.
func (m *Model) begin(moments int) error {
	err := m.stream.Fill(m.totals, 0, 8*trainset.Totals, 0)
	if err == nil {
		err = m.stream.Fill(m.sums, 0, m.sumBytes(moments), 0)
	}
	if err != nil {
		return fmt.Errorf("clear sums: %w", err)
	}
	return nil
}

// inputs returns where the inputs of a part are.
func (m *Model) inputs() (rows device.Arg, embedded uint32) {
	if m.Rows > 0 {
		return device.Ptr(m.embedNumbers), 1
	}
	return device.Ptr(m.room.rows.Buffer), 0
}

// forward steps the sequences of a part.
func (m *Model) forward(p part) error {
	rows, embedded := m.inputs()
	r := &m.room
	return m.launch(trainset.Forward, m.warps(p.sequences), &trainset.ForwardArgs{
		Table: device.Ptr(m.gateTable), Rows: rows, Numbers: device.Ptr(r.numbers.Buffer), Embedded: embedded,
		Lengths: device.Ptr(r.lengths.Buffer), Carry: device.Ptr(r.carry.Buffer), States: device.Ptr(r.states.Buffer),
		Agents: uint32(p.sequences), Moments: uint32(p.moments),
	})
}

// score makes the loss of a part, and in training the gradients of the readout; otherwise
// predictions.
func (m *Model) score(p part, train bool, step uint64) error {
	r := &m.room
	g := device.Geometry{Grid: int(min((p.elements()+127)/128, 4*int64(m.blocks))), Block: trainset.Block}
	return m.launch(trainset.Score, g, &trainset.ScoreArgs{
		Readout: device.Ptr(m.readoutTable), States: device.Ptr(r.states.Buffer), Items: device.Ptr(r.items.Buffer),
		Targets: device.Ptr(r.targets.Buffer), Lengths: device.Ptr(r.lengths.Buffer), Candidates: uint32(m.Candidates),
		ReadoutRows: uint32(m.readoutRows()), Train: device.Bit(train), Drop: m.drop, Keep: m.keep, Seed: m.seed,
		Step: uint32(step), First: uint32(p.first), Control: device.Ptr(m.control),
		Gradients: device.Ptr(r.gradients.Buffer), Masks: device.Ptr(r.masks.Buffer),
		Predictions: device.Ptr(r.predictions.Buffer), Sums: m.readoutSums(), Totals: device.Ptr(m.totals),
		Agents: uint32(p.sequences), Moments: uint32(p.moments),
	})
}

// gradient adds the gradients of a part to the sums.
func (m *Model) gradient(p part, step uint64) error {
	if err := m.forward(p); err != nil {
		return err
	}
	if err := m.score(p, true, step); err != nil {
		return err
	}
	if err := m.back(p); err != nil {
		return err
	}
	if err := m.outer(p); err != nil || m.Rows == 0 {
		return err
	}
	return m.embed(p)
}

// back makes the gradients of the gates.
func (m *Model) back(p part) error {
	rows, embedded := m.inputs()
	r := &m.room
	return m.launch(trainset.Back, m.warps(p.sequences), &trainset.BackArgs{
		Table: device.Ptr(m.gateTable), Rows: rows, Numbers: device.Ptr(r.numbers.Buffer), Embedded: embedded,
		Lengths: device.Ptr(r.lengths.Buffer), States: device.Ptr(r.states.Buffer), Readout: device.Ptr(m.readoutTable),
		ReadoutRows: uint32(m.readoutRows()), Items: device.Ptr(r.items.Buffer), Candidates: uint32(m.Candidates),
		Gradients: device.Ptr(r.gradients.Buffer), Masks: device.Ptr(r.masks.Buffer), Keep: m.keep,
		Control: device.Ptr(m.control), Exponents: device.Ptr(m.exponents), Maxima: device.Ptr(m.maxima),
		Gates: device.Ptr(r.gates.Buffer), Totals: device.Ptr(m.totals), Agents: uint32(p.sequences),
		Moments: uint32(p.moments),
	})
}

// outer adds the gradients of the weights of gates to the sums.
func (m *Model) outer(p part) error {
	rows, embedded := m.inputs()
	r := &m.room
	g := m.threads(8*p.elements(), trainset.WideBlock)
	g.Grid = min(g.Grid, (m.blocks+3)/4) // two of a multiprocessor: each adds to all sums at its end
	return m.launch(trainset.Outer, g, &trainset.OuterArgs{
		Gates: device.Ptr(r.gates.Buffer), Rows: rows, Numbers: device.Ptr(r.numbers.Buffer), Embedded: embedded,
		Lengths: device.Ptr(r.lengths.Buffer), States: device.Ptr(r.states.Buffer),
		Sums: m.gateSums(), Agents: uint32(p.sequences), Moments: uint32(p.moments),
	})
}

// embed adds the gradients of the embedding to the sums.
func (m *Model) embed(p part) error {
	r := &m.room
	return m.launch(trainset.Embed, m.threads(2*p.elements(), trainset.Block), &trainset.EmbedArgs{
		Table: device.Ptr(m.gateTable), Gates: device.Ptr(r.gates.Buffer), Numbers: device.Ptr(r.numbers.Buffer),
		Lengths: device.Ptr(r.lengths.Buffer), Control: device.Ptr(m.control), Exponents: device.Ptr(m.exponents),
		Sums: m.embedSums(), Totals: device.Ptr(m.totals), Agents: uint32(p.sequences), Moments: uint32(p.moments),
	})
}

// predict steps a part and waits for it: predictions and states belong to the batch, as Evaluate
// takes them.
func (m *Model) predict(ctx context.Context, b *Batch, p part, states, predictions []float32) error {
	if err := m.forward(p); err != nil {
		return err
	}
	if err := m.score(p, false, 0); err != nil {
		return err
	}
	r, E := &m.room, m.elements()
	var pieces []device.Piece
	if len(states) > 0 {
		pieces = append(pieces, r.carry.piece(r.host, 4*int64(p.sequences*m.class())))
	}
	if len(predictions) > 0 {
		pieces = append(pieces, r.predictions.piece(r.host, 4*p.elements()*int64(E)))
	}
	if err := m.stream.DownloadAll(pieces); err != nil {
		return fmt.Errorf("download predictions: %w", err)
	}
	if err := m.stream.Sync(ctx); err != nil {
		return fmt.Errorf("predict: %w", err)
	}
	if len(states) > 0 {
		carry := device.Of[float32](r.carry.host)
		for n := range p.sequences {
			copy(states[(p.first+n)*m.Hidden:][:m.Hidden], carry[n*m.class():])
		}
	}
	if len(predictions) == 0 {
		return nil
	}
	for t := range p.moments {
		for n := range p.sequences {
			at := (p.start+t)*b.Sequences + p.first + n
			if p.start+t < int(b.Lengths[p.first+n]) && (m.Items == 0 || b.Items[at] >= 0) {
				copy(predictions[at*E:][:E], device.Of[float32](r.predictions.host)[(t*p.sequences+n)*E:])
			}
		}
	}
	return nil
}
