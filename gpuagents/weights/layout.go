package weights

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// align is what the offset of a tensor in its buffer is a multiple of: the widest access of a warp.
const align = 256

// part is the tensors of a layer, or all that are in no layer. They follow one another.
type part struct {
	name   string
	bytes  int64
	pieces []piece // in the order of their places

	pass   int               // the buffer of the mover that it passes through; -1: it stays on the device
	buffer device.Buffer     // its own, or the mover's
	pinned device.HostBuffer // of a part that passes; nil: it is in the file
	given  *pages.Allocation // of its buffer or its pinned memory
	sum    uint64            // the claim of a part that stays
}

// place is where a tensor is.
type place struct {
	in            *part
	at, bytes     int64
	kind          string
	rows, columns int
}

// piece is a run of elements of a tensor, at most pieceBytes in the part.
type piece struct {
	tensor      string
	from, bytes int64  // in the source
	at, to      int64  // in the part; zeros fill up what the elements leave
	decode      string // the type in the source, if the elements become F32
	elements    int64
}

// pieceBytes is the most bytes of a piece. It holds whole blocks of each type as F32.
const pieceBytes = 1 << 20

// typeOf returns the type of a tensor on the device.
func typeOf(kind string, t architecture.Tensor, exact bool) string {
	last := t.Shape[len(t.Shape)-1]
	switch {
	case exact || len(t.Shape) == 1:
		return quant.F32
	case kind == quant.BF16, kind == quant.Q8_0 && last%32 == 0: // rows of whole blocks
		return kind
	}
	return quant.F32
}

// lay divides the tensors of a model among its parts.
func (m *held) lay(exact bool) error {
	p := m.parameters
	m.tensors = map[string]place{}
	for i := range p.Layers {
		m.parts = append(m.parts, &part{name: fmt.Sprintf("layer %d", i), pass: -1})
	}
	rest := &part{name: "embedding, norm and head", pass: -1}
	m.parts = append(m.parts, rest)
	of := map[string]*part{
		architecture.Embedding: rest, architecture.LastNorm: rest, architecture.Head: rest,
		architecture.RopeFreqs: rest,
	}
	per := 0 // tensors of a layer
	for _, t := range p.Tensors() {
		if of[t.Name] == nil {
			per++
		}
	}
	per /= p.Layers
	seen := 0
	for _, t := range p.Tensors() {
		in := of[t.Name]
		if in == nil {
			in = m.parts[seen/per] // layers follow one another, with the same tensors
			seen++
		}
		if err := m.add(in, t, exact); err != nil {
			return err
		}
	}
	return nil
}

// add appends a tensor to a part.
func (m *held) add(in *part, t architecture.Tensor, exact bool) error {
	kind, bytes, err := m.src.Tensor(t.Name)
	if err != nil {
		return err
	}
	at := place{in: in, at: in.bytes, rows: 1, columns: int(t.Shape[len(t.Shape)-1]), kind: typeOf(kind, t, exact)}
	if len(t.Shape) > 1 {
		at.rows = int(t.Shape[0])
	}
	elements := int64(at.rows) * int64(at.columns)
	size := func(kind string) int64 {
		each, bytes, _ := quant.Block(kind)
		return elements / each * bytes
	}
	if size(kind) != bytes {
		return fmt.Errorf("tensor %s has %d bytes, and %d elements of type %s", t.Name, bytes, elements, kind)
	}
	at.bytes = size(at.kind)
	in.bytes += (at.bytes + align - 1) / align * align
	m.tensors[t.Name] = at
	one := piece{tensor: t.Name, at: at.at}
	perBlock, blockBytes, _ := quant.Block(kind)
	most, ratio := int64(pieceBytes), int64(1)
	if at.kind != kind {
		one.decode = kind
		most = pieceBytes / 4 / perBlock * blockBytes // of the source
		ratio = 4 * perBlock                          // bytes of a block as F32
	}
	for ; one.from < bytes; one.from += one.bytes {
		one.bytes = min(most, bytes-one.from)
		n := one.bytes
		if one.decode != "" {
			one.elements = one.bytes / blockBytes * perBlock
			n = one.bytes / blockBytes * ratio
		}
		one.to = one.at + n
		if one.from+one.bytes == bytes {
			one.to = in.bytes
		}
		in.pieces = append(in.pieces, one)
		one.at += n
	}
	return nil
}
