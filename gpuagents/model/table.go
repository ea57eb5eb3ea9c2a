package model

import (
	"context"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
)

// tensorsOf returns the tensors of a cell whose agents are addressed. A gru has the names of
// torch.nn.GRUCell, of a torch.nn.Linear called readout, and of a torch.nn.Embedding called embed
// where the cell has one; quantum has the angles of its circuit. All are of F32.
func tensorsOf(cell *cells.Addressed) []Tensor {
	of := func(name string, shape ...int64) Tensor {
		return Tensor{Name: name, Type: safetensors.F32, Shape: shape}
	}
	if cell.Measures() {
		return []Tensor{of("angles", int64(cell.Angles()))}
	}
	H, I, C := int64(cell.Value("hidden")), int64(cell.Features+cell.Hears), int64(cell.Candidates)
	if cell.Items > 0 {
		C = int64(cell.Items)
	}
	all := []Tensor{
		of("weight_ih", 3*H, I), of("weight_hh", 3*H, H), of("bias_ih", 3*H), of("bias_hh", 3*H),
		of("readout.weight", C, H), of("readout.bias", C),
	}
	if cell.Rows > 0 {
		all = append(all, of("embed.weight", int64(cell.Rows), int64(cell.Features)))
	}
	return all
}

// Fits returns an ErrMismatch that names the first tensor that the cell does not have, or has with
// another type or shape. The order of the tensors does not matter.
func (m *Manifest) Fits(cell *cells.Addressed) error {
	want := tensorsOf(cell)
	named := func(name string) func(Tensor) bool { return func(t Tensor) bool { return t.Name == name } }
	for _, w := range want {
		i := slices.IndexFunc(m.Tensors, named(w.Name))
		if i < 0 {
			return fmt.Errorf("model %s: %w: it has no tensor %s, of %s %v", m.Name, ErrMismatch, w.Name, w.Type,
				w.Shape)
		}
		if t := m.Tensors[i]; !t.equal(w) {
			return fmt.Errorf("model %s: %w: its tensor %s is of %s %v, and the cell takes %s %v: change the cell, or "+
				"name another model", m.Name, ErrMismatch, w.Name, t.Type, t.Shape, w.Type, w.Shape)
		}
	}
	for _, t := range m.Tensors {
		if !slices.ContainsFunc(want, named(t.Name)) {
			return fmt.Errorf("model %s: %w: its tensor %s is none of the cell %s", m.Name, ErrMismatch, t.Name,
				cell.Cell.Name)
		}
	}
	return nil
}

// Table returns the weights table of a cell with the weights of the model, whose file it reads
// whole and checks. Tensors that do not fit the cell are an ErrMismatch. Weights that are not
// finite, or too large, are a cells.ErrParameter.
func (m *Manifest) Table(ctx context.Context, store snapshot.Store, cell *cells.Addressed) ([]uint32, error) {
	if err := m.Fits(cell); err != nil {
		return nil, err
	}
	f, err := Read(ctx, store, m)
	if err != nil {
		return nil, err
	}
	if cell.Measures() {
		angles, err := f.Floats("angles")
		var table []uint32
		if err == nil {
			table, err = cell.AnglesTable(angles)
		}
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		return table, nil
	}
	var w cells.GRUWeights
	to := []*[]float32{
		&w.InputHidden, &w.HiddenHidden, &w.InputBias, &w.HiddenBias, &w.Readout, &w.ReadoutBias, &w.Embed,
	}
	for i, of := range tensorsOf(cell) {
		if *to[i], err = f.Floats(of.Name); err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	table, err := cell.Table(w)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return table, nil
}
