package expr

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Explain returns the plan as text: its kernels with what they read, compute and store, the
// predicted time, and why pairs were not fused.
func (c *Compiled) Explain() string { return c.explain(nil) }

// explain is Explain with the times of the first parts.
func (c *Compiled) explain(times []time.Duration) string {
	if c.plan == nil {
		return "interpreted on the cores of the host\n"
	}
	var b strings.Builder
	total := 0.0
	for i, t := range c.plan.Parts {
		var roots, reads []string
		for _, n := range t.Roots {
			roots = append(roots, n.String())
		}
		for _, n := range t.Reads {
			name := n.String()
			if n.Op == ir.OpInput {
				name = c.p.g.Inputs[n.Imm].Name
			}
			reads = append(reads, name)
		}
		total += t.Cost.Seconds
		fmt.Fprintf(&b, "%d. %v: %s of %s; %d operations, %.4g bytes, predicted %.1f us", i+1, t.Kind,
			strings.Join(roots, ", "), strings.Join(reads, ", "), len(t.Inside), t.Cost.Bytes,
			t.Cost.Seconds*1e6)
		if i < len(times) {
			fmt.Fprintf(&b, ", measured %.1f us", float64(times[i])/1e3)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "predicted %.1f us in %d kernels\n", total*1e6, len(c.plan.Parts))
	for _, note := range c.plan.Notes {
		fmt.Fprintf(&b, "not fused: %s\n", note)
	}
	return b.String()
}

// Predicted returns the time that the model predicts for a run of the length that the plan is for.
func (c *Compiled) Predicted() time.Duration {
	total := 0.0
	if c.plan != nil {
		for _, t := range c.plan.Parts {
			total += t.Cost.Seconds
		}
	}
	return time.Duration(total * 1e9)
}

// timed launches a part between two events and keeps the time between them. It waits for the part.
func (r *run) timed(t *plan.Part) (err error) {
	var events [2]device.Event
	for i := range events {
		if events[i], err = r.c.dev.NewEvent(); err != nil {
			return fmt.Errorf("open an event: %w", err)
		}
		defer func() {
			if e := events[i].Close(); err == nil {
				err = e
			}
		}()
	}
	if err := r.s.Record(events[0]); err != nil {
		return err
	}
	if err := r.enqueue(t); err != nil {
		return err
	}
	if err := r.s.Record(events[1]); err != nil {
		return err
	}
	if err := events[1].Sync(r.ctx); err != nil {
		return err
	}
	took, err := events[1].Since(events[0])
	r.times = append(r.times, took)
	return err
}

// Measure runs the program once and returns Explain with the measured time of each kernel. The plan
// must have run before, because a first launch is slower. The outputs are closed.
func (c *Compiled) Measure(ctx context.Context, s device.Stream, in map[string]Memory) (string, error) {
	if c.plan == nil {
		return c.Explain(), nil
	}
	lengths, err := c.p.lengths(func(name string) (rows, bytes int64, found bool) {
		m, found := in[name]
		if m.Buffer == nil {
			return m.Rows, 1 << 62, found
		}
		return m.Rows, m.Buffer.Size() - m.Off, found
	})
	if err != nil {
		return "", err
	}
	r := &run{c: c, ctx: ctx, s: s, in: in, lengths: lengths, at: map[*ir.Node]Memory{}, measure: true}
	results, err := r.launch(nil)
	if err != nil {
		return "", err
	}
	closed := map[device.Buffer]bool{}
	for _, m := range results {
		if !closed[m.Buffer] {
			closed[m.Buffer] = true
			r.temporary = append(r.temporary, m.Buffer)
		}
	}
	for _, b := range r.temporary {
		if err := s.Release(b); err != nil {
			return "", err
		}
	}
	return c.explain(r.times), s.Sync(ctx)
}
