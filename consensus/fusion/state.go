package fusion

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Reset sets all sums, weights and counts to 0. It costs nothing: the next fusion or the first read
// of the nodes does it.
func (f *Fuser) Reset(ctx context.Context) error {
	if err := f.idle(ctx); err != nil {
		return err
	}
	f.fresh, f.bound = true, 0
	return nil
}

// settle waits for work under way, and writes zeros to nodes that count as zeros.
func (f *Fuser) settle(ctx context.Context) error {
	if err := f.idle(ctx); err != nil {
		return err
	}
	if f.fresh {
		if err := f.zero(); err != nil {
			return err
		}
	}
	return f.stream.Sync(ctx)
}

// Read copies the nodes to host memory. The result is the caller's.
func (f *Fuser) Read(ctx context.Context) (Nodes, error) {
	if err := f.settle(ctx); err != nil {
		return Nodes{}, fmt.Errorf("read nodes: %w", err)
	}
	n, err := NewNodes(f.opts.Nodes, f.opts.Dim)
	if err != nil {
		return Nodes{}, err
	}
	tallies := make([]uint64, kernels.FuseTallyPair*f.opts.Nodes)
	if err := f.sums.Read(0, device.Bytes(n.Sums)); err != nil {
		return Nodes{}, err
	}
	if err := f.tallies.Read(0, device.Bytes(tallies)); err != nil {
		return Nodes{}, err
	}
	for m := range n.Counts {
		n.Counts[m], n.Weights[m] = tallies[2*m], tallies[2*m+1]
	}
	return n, nil
}

// Write replaces the nodes, for instance by what all shards have learned. n is not changed and
// stays the caller's. A sum that is not finite is ErrValue, another shape ErrLength; the nodes are
// then as before.
func (f *Fuser) Write(ctx context.Context, n Nodes) error {
	if err := n.check(); err != nil {
		return fmt.Errorf("write nodes: %w", err)
	}
	if n.Len() != f.opts.Nodes || n.Dim != f.opts.Dim {
		return fmt.Errorf("write %d nodes of %d values, want %d of %d: %w", n.Len(), n.Dim, f.opts.Nodes, f.opts.Dim,
			ErrLength)
	}
	if err := n.finite(); err != nil {
		return fmt.Errorf("write nodes: %w", err)
	}
	if err := f.idle(ctx); err != nil {
		return err
	}
	tallies := make([]uint64, 0, kernels.FuseTallyPair*f.opts.Nodes)
	bound := uint64(0)
	for m := range n.Counts {
		tallies = append(tallies, n.Counts[m], n.Weights[m])
		sum, carry := bits.Add64(bound, n.Weights[m], 0)
		if bound = sum; carry != 0 {
			bound = math.MaxUint64
		}
	}
	if err := f.stream.Sync(ctx); err != nil { // a Fill may be on its way
		return err
	}
	if err := f.sums.Write(0, device.Bytes(n.Sums)); err != nil {
		return err
	}
	if err := f.tallies.Write(0, device.Bytes(tallies)); err != nil {
		return err
	}
	f.fresh, f.bound = false, bound
	return nil
}

// Means writes the weighted mean of each node to dst, which has [Nodes][Dim] elements; see
// Nodes.Means.
func (f *Fuser) Means(ctx context.Context, dst []float32) error {
	if len(dst) != f.opts.Nodes*f.opts.Dim {
		return fmt.Errorf("means of %d nodes of %d values into %d: %w", f.opts.Nodes, f.opts.Dim, len(dst), ErrLength)
	}
	if err := f.reserve(&f.own.means, f.sums.Size()); err != nil {
		return err
	}
	if err := f.MeansTo(ctx, f.own.means, 0); err != nil {
		return err
	}
	return f.own.means.Read(0, device.Bytes(dst))
}

// MeansTo writes the weighted means to device memory, as float32 from the byte at off on, a
// multiple of 16, and waits until they are there.
func (f *Fuser) MeansTo(ctx context.Context, b device.Buffer, off int64) error {
	if err := check("means", b, off, f.sums.Size()); err != nil {
		return err
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	g := f.mean.Cover(f.sums.Size() / 16)
	if err := f.stream.Launch(f.mean, g, kernels.FuseMeansArgs{
		Sums: device.Ptr(f.sums), Tallies: device.Ptr(f.tallies), Nodes: uint32(f.opts.Nodes), Dim: uint32(f.opts.Dim),
		Means: device.Range(b, off, f.sums.Size()),
	}.Args()...); err != nil {
		return fmt.Errorf("means of %d nodes: %w", f.opts.Nodes, err)
	}
	return f.stream.Sync(ctx)
}
