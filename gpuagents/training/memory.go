package training

import (
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// purpose names the memory of a training on the device.
const purpose = "training"

// memory is what the parts of a trainer share: a stream, kernels and buffers.
type memory struct {
	Shape
	dev     device.Device
	stream  device.Stream
	kernels map[string]device.Kernel
	blocks  int             // the most blocks of a launch
	buffers []device.Buffer // that live as long as the memory
	args    []device.Arg
	room    room
	pace    pace

	// The vector of weights, and what is made of it: the tables of the gates and of the readout, and
	// the numbers of the embedding. control and totals have the words of package trainset; exponents
	// and maxima are by run of a window. sums has the sums of the readout, of the embedding, and of the
	// gates by run.
	weights, gateTable, readoutTable, embedNumbers device.Buffer
	control, totals, exponents, maxima, sums       device.Buffer
	gateBytes, readoutBytes, embedBytes, runs      int64
}

func openMemory(dev device.Device, o *Options) (m *memory, err error) {
	m = &memory{
		Shape: o.Shape, dev: dev, kernels: map[string]device.Kernel{}, blocks: 8 * dev.Properties().Multiprocessors,
		runs: int64(o.Window+trainset.Run-1) / trainset.Run,
	}
	P, K := int64(o.class()), int64(o.readoutRows())
	m.gateBytes = 8 * int64(trainset.GateWeights(o.class()))
	m.readoutBytes, m.embedBytes = 8*(K*P+int64(trainset.Padded(int(K)))), 8*int64(o.Rows)*P
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	for _, what := range []string{
		trainset.Forward, trainset.Score, trainset.Back, trainset.Outer, trainset.Embed, trainset.Gather,
		trainset.Adam, trainset.Maxima, trainset.Table,
	} {
		name := what
		switch what {
		case trainset.Gather, trainset.Adam, trainset.Maxima, trainset.Table:
		default:
			name = trainset.Name(what, o.class())
		}
		if m.kernels[what], err = dev.Kernel(name); err != nil {
			return m, fmt.Errorf("kernel %s: %w", name, err)
		}
	}
	if m.stream, err = dev.NewBackgroundStream(); err != nil {
		return m, fmt.Errorf("open a stream: %w", err)
	}
	moment, sequence := o.roomBytes()
	most := min(o.BatchBytes/(moment+sequence/int64(o.Window)), math.MaxInt32)
	if m.pace, err = newPace(dev, most); err != nil {
		return m, err
	}
	size := 4 * int64(o.size())
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
	}{
		{&m.weights, size},
		{&m.gateTable, 4 * tableWords(o.class())},
		{&m.readoutTable, 4*trainset.ReadoutHead + 4*int64(trainset.Padded(int(K))) + 2*K*P},
		{&m.embedNumbers, max(16, m.embedBytes/4)},
		{&m.control, 4 * trainset.ControlWords},
		{&m.totals, 8 * trainset.Totals},
		{&m.exponents, 4 * m.runs},
		{&m.maxima, 4 * m.runs},
		{&m.sums, m.sumBytes(o.Window)},
	} {
		if *b.to, err = m.keep(b.bytes); err != nil {
			return m, err
		}
	}
	return m, nil
}

// alloc reserves device memory.
func (m *memory) alloc(bytes int64) (device.Buffer, error) {
	b, err := m.dev.Alloc(bytes, purpose)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of a training: %w", bytes, err)
	}
	return b, nil
}

// keep reserves device memory that close releases.
func (m *memory) keep(bytes int64) (device.Buffer, error) {
	b, err := m.alloc(bytes)
	if err == nil {
		m.buffers = append(m.buffers, b)
	}
	return b, err
}

// sumBytes is the length of the sums of a batch of some moments.
func (m *memory) sumBytes(moments int) int64 {
	return m.readoutBytes + m.embedBytes + int64(moments+trainset.Run-1)/trainset.Run*m.gateBytes
}

// readoutSums, embedSums and gateSums are parts of sums.
func (m *memory) readoutSums() device.Arg { return device.Range(m.sums, 0, m.readoutBytes) }

func (m *memory) embedSums() device.Arg { return device.Range(m.sums, m.readoutBytes, m.embedBytes) }

func (m *memory) gateSums() device.Arg {
	return device.Range(m.sums, m.readoutBytes+m.embedBytes, m.runs*m.gateBytes)
}

// launch queues a kernel over n units of work, each for some threads of a block.
func (m *memory) launch(what string, g device.Geometry, args interface {
	AppendTo(to []device.Arg) []device.Arg
},
) error {
	m.args = args.AppendTo(m.args[:0])
	if err := m.stream.Launch(m.kernels[what], g, m.args...); err != nil {
		return fmt.Errorf("launch %s: %w", what, err)
	}
	return m.pace.mark(m.stream)
}

// warps is the shape of a launch in which 16 agents are a warp. Few agents have a block for each
// warp, and more blocks than a GPU needs, which the host device divides them over.
func (m *memory) warps(agents int) device.Geometry {
	if agents <= m.blocks {
		return device.Geometry{Grid: min((agents+1)/2, m.blocks), Block: 32}
	}
	return device.Geometry{Grid: min((agents+63)/64, 4*m.blocks), Block: trainset.Block}
}

// threads is the shape of a launch of n threads, or of fewer that have several turns.
func (m *memory) threads(n int64, block int) device.Geometry {
	return device.Geometry{Grid: int(min((n+int64(block)-1)/int64(block), int64(m.blocks))), Block: block}
}

// close waits for the stream and releases everything. A second call does nothing.
func (m *memory) close() error {
	var wrong []error
	if m.stream != nil {
		wrong = append(wrong, m.stream.Close())
	}
	for _, b := range m.buffers {
		wrong = append(wrong, b.Close())
	}
	m.stream, m.buffers = nil, nil
	wrong = append(wrong, m.room.close(m.Shape), m.pace.close())
	return errors.Join(wrong...)
}
