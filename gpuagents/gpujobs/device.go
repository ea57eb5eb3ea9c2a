package gpujobs

import (
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/consensus/round"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// tally returns the work of a job of kind tally: one round of package round. Ballots that name no
// candidate are counted in the output and are no error. Weights whose sum overflows are an error of
// the input. t.bytes does not include the memory of the round.
func (t *task) tally(s *gpujob.TallySpec) func() (any, error) {
	ballots := t.in("ballots", &s.Ballots)
	var weights, priorities *input
	if s.Weights != nil {
		weights = t.in("weights", s.Weights)
	}
	if s.Priorities != nil {
		priorities = t.in("priorities", s.Priorities)
	}
	return func() (_ any, err error) {
		o := round.Options{Candidates: s.Candidates, Capacity: max(1, len(ballots.data))}
		if s.Rule != "" {
			// Check has not parsed the rule, so an error of it belongs to the job.
			if o.Rule, err = consensus.ParseRule(s.Rule); err != nil {
				return nil, jobs.Errorf(jobs.CodeInvalid, "spec.rule: %v", err)
			}
		}
		if len(ballots.data) > round.MaxBallots {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.ballots: %d ballots: use at most %d", len(ballots.data),
				int64(round.MaxBallots))
		}
		if weights != nil {
			o.Weights = map[gpujob.Type]round.Weights{
				gpujob.U8: round.Weights8, gpujob.U32: round.Weights32, gpujob.F32: round.Fractions,
			}[s.Weights.Type]
		}
		r, err := round.New(t.slot.Device(), o)
		if err != nil {
			return nil, fmt.Errorf("tally: %w", err)
		}
		// A cancelled job ends before its launches do, so the task closes the round and not this
		// function.
		t.left = append(t.left, r)
		if err := r.Cast(ballots.data); err != nil {
			return nil, fmt.Errorf("tally: %w", err)
		}
		if weights != nil {
			switch s.Weights.Type {
			case gpujob.U8:
				err = r.Weigh8(weights.data)
			case gpujob.U32:
				err = r.Weigh(gpujob.Decode[uint32](weights.data))
			default:
				err = r.WeighFractions(gpujob.Decode[float32](weights.data))
			}
		}
		if err == nil && priorities != nil {
			err = r.Prioritize(gpujob.Decode[uint32](priorities.data))
		}
		if err != nil {
			return nil, fmt.Errorf("tally: %w", err)
		}
		d, err := r.Decide(t.ctx)
		if errors.Is(err, consensus.ErrOverflow) {
			return nil, jobs.Errorf(jobs.CodeInput, "spec.weights: %v", err)
		}
		if err != nil {
			return nil, fmt.Errorf("tally: %w", err)
		}
		out := &gpujob.TallyOutput{
			QuorumMet: d.QuorumMet, Counts: d.Counts, Total: d.Total, Abstentions: d.Abstentions, Invalid: d.Invalid,
			BadWeights: d.BadWeights, Priority: d.Leader.Priority, Ran: t.computed(),
		}
		if d.Winner != consensus.None {
			out.Winner = &d.Winner
		}
		if d.Leader.Elected {
			out.Leader = &d.Leader.Agent
		}
		return out, nil
	}
}

// fuse returns the work of a job of kind fuse. Members that name no node and embeddings that are
// not finite are counted in the output and left out. The output also has weights and counts, with
// which means of several jobs can be merged.
func (t *task) fuse(s *gpujob.FuseSpec) func() (any, error) {
	embeddings, members := t.in("embeddings", &s.Embeddings), t.in("members", &s.Members)
	var weights *input
	if s.Weights != nil {
		weights = t.in("weights", s.Weights)
	}
	dim := s.Embeddings.Shape[1]
	t.bytes += int64(s.Nodes) * (2*4*dim + 16) // sums, means, weights and counts
	return func() (any, error) {
		agents := s.Embeddings.Shape[0]
		if agents > math.MaxUint32-1 {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.embeddings: %d agents: use at most %d", agents,
				int64(fusion.MaxAgents))
		}
		f, err := fusion.New(t.slot.Device(), fusion.Options{Nodes: s.Nodes, Dim: int(dim), Agents: int(agents)})
		if err != nil {
			return nil, fmt.Errorf("fuse: %w", err)
		}
		t.left = append(t.left, f)
		err = f.Members(gpujob.Decode[uint32](members.data))
		if err == nil {
			err = f.Embed(gpujob.Decode[float32](embeddings.data))
		}
		if err == nil && weights != nil {
			err = f.Weigh(gpujob.Decode[uint32](weights.data))
		}
		if err != nil {
			return nil, fmt.Errorf("fuse: %w", err)
		}
		report, err := f.Fuse(t.ctx)
		if err != nil {
			return nil, fmt.Errorf("fuse: %w", err)
		}
		nodes, err := f.Read(t.ctx)
		if err != nil {
			return nil, fmt.Errorf("fuse: %w", err)
		}
		means := make([]float32, len(nodes.Sums))
		if err := f.Means(t.ctx, means); err != nil {
			return nil, fmt.Errorf("fuse: %w", err)
		}
		out := &gpujob.FuseOutput{
			Means: gpujob.From(means, int64(s.Nodes), dim), Weights: gpujob.From(nodes.Weights),
			Counts: gpujob.From(nodes.Counts), Fused: report.Fused, Refused: report.Refused, Nobody: report.Nobody,
			Invalid: report.Invalid, Ran: t.computed(),
		}
		return out, t.store([]string{"means", "weights", "counts"},
			[]*gpujob.Array{&out.Means, &out.Weights, &out.Counts})
	}
}

// gemm returns the work of a job of kind gemm: C = Alpha * A * B. An Alpha of 0 counts as absent
// and means 1. Check of the specification has compared the inner sizes.
func (t *task) gemm(s *gpujob.GemmSpec) func() (any, error) {
	a, b := t.in("a", &s.A), t.in("b", &s.B)
	m, _, _, n := s.Dims()
	t.bytes += t.product(m, n)
	return func() (any, error) {
		stream, err := t.stream(t.slot.Device())
		if err != nil {
			return nil, err
		}
		left, err := t.matrix(a, s.TA)
		if err != nil {
			return nil, err
		}
		right, err := t.matrix(b, s.TB)
		if err != nil {
			return nil, err
		}
		// run has checked the product against the memory limit, so this one does not overflow.
		size := m * n * gpujob.F32.Bytes()
		c, err := t.alloc(size)
		if err != nil {
			return nil, err
		}
		if err := c.Fill(0, size, 0); err != nil { // for an inner size of 0
			return nil, fmt.Errorf("gemm: %w", err)
		}
		alpha := s.Alpha
		if alpha == 0 {
			alpha = 1
		}
		err = stream.Gemm(alpha, left, right, 0, device.Matrix{Buffer: c, Rows: int(m), Cols: int(n), Elem: device.F32})
		if err == nil {
			err = stream.Sync(t.ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("gemm: %w", err)
		}
		data := make([]byte, size)
		if err := c.Read(0, data); err != nil {
			return nil, fmt.Errorf("gemm: %w", err)
		}
		out := &gpujob.GemmOutput{
			C:   gpujob.Array{Type: gpujob.F32, Shape: gpujob.Shape{m, n}, Data: data},
			Ran: t.computed(),
		}
		return out, t.store([]string{"c"}, []*gpujob.Array{&out.C})
	}
}

// product returns the size of an m by n matrix of f32 in bytes. If the product overflows, the
// result exceeds any limit, so that run refuses the job, but the sum with the bytes of the inputs
// still fits.
func (t *task) product(m, n int64) int64 {
	if n > 0 && m > math.MaxInt64/8/n {
		return math.MaxInt64 / 4
	}
	return m * n * gpujob.F32.Bytes()
}

// matrix copies a factor to the device in the order of the input. Gemm reads it transposed.
func (t *task) matrix(in *input, transposed bool) (device.Matrix, error) {
	b, err := t.upload(in.data)
	return device.Matrix{
		Buffer: b, Rows: int(in.of.Shape[0]), Cols: int(in.of.Shape[1]), Elem: device.F32, Transposed: transposed,
	}, err
}
