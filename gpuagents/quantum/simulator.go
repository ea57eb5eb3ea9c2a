package quantum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// Options configure New. The zero value has the limits of the device.
type Options struct {
	// MaxQubits is the largest state: 1 to circuit.MaxQubits. 0: circuit.MaxQubits, and 26 on the host
	// device.
	MaxQubits int
	// BatchBytes is the most memory of the states that a batch has at a time, unless one state takes
	// more; 0: 128 MiB.
	BatchBytes int64
	// Seed is the seed of measurements and resets within a circuit that Run applies.
	Seed uint64
}

// Simulator is a Processor on a device. Its methods may be called from several goroutines at once,
// and run one after the other. The caller closes it, after its states and before the device.
type Simulator struct {
	d device.Device
	o Options
	// unplanned makes a pass of each gate. Tests compare it with plans.
	unplanned bool

	mu     sync.Mutex // one call at a time uses the stream
	stream device.Stream
	closed bool

	// blocks is the most blocks of a launch. On the host device a block prepares its work, so that few
	// of them are faster.
	blocks uint64

	tile, matrix, weight, sample, pauli device.Kernel

	// hosts are for columns of rows. They stay, because it takes milliseconds to allocate them.
	hosts [2]device.HostBuffer
}

var _ Processor = (*Simulator)(nil)

// purpose names the memory of states on the device.
const purpose = "quantum"

// New returns a simulator on a device.
func New(d device.Device, o Options) (*Simulator, error) {
	s := &Simulator{d: d, o: o, blocks: 1 << 20}
	most := circuit.MaxQubits
	if p := d.Properties(); p.ComputeMajor == 0 {
		most, s.blocks = 26, uint64(8*p.Multiprocessors)
	}
	if s.o.MaxQubits == 0 {
		s.o.MaxQubits = most
	}
	if s.o.BatchBytes == 0 {
		s.o.BatchBytes = 128 << 20
	}
	if s.o.MaxQubits < 1 || s.o.MaxQubits > circuit.MaxQubits || s.o.BatchBytes < 0 {
		return nil, fmt.Errorf("%w: %d qubits at most and %d bytes of a batch; give 1 to %d qubits and 0 bytes or more",
			ErrInvalid, o.MaxQubits, o.BatchBytes, circuit.MaxQubits)
	}
	for name, k := range map[string]*device.Kernel{
		quantumset.Tile: &s.tile, quantumset.Matrix: &s.matrix, quantumset.Weight: &s.weight,
		quantumset.Sample: &s.sample, quantumset.Expect: &s.pauli,
	} {
		var err error
		if *k, err = d.Kernel(name); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", name, err)
		}
	}
	var err error
	if s.stream, err = d.NewStream(); err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	return s, nil
}

// Close waits for work in progress and releases the simulator. A second call does nothing.
func (s *Simulator) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.stream.Close()
	for _, host := range s.hosts {
		if host != nil {
			err = errors.Join(err, host.Close())
		}
	}
	return err
}

// lock begins a call. The caller unlocks s.mu if it returns nil.
func (s *Simulator) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("quantum simulator: %w", device.ErrClosed)
	}
	return nil
}

// vector is rows of amplitudes on the device, which all have the same number of qubits.
type vector struct {
	s       *Simulator
	qubits  int   // of the index of an amplitude in its row
	rows    int64 // whole tiles: more than are used where rows are short
	buffer  device.Buffer
	sums    device.Buffer
	scratch []device.Buffer // released at the end of the call
}

// group is the logarithm of the runs of a group of a row.
func (v *vector) group() int { return min(v.qubits-quantumset.MinQubits, quantumset.MaxGroup) }

// groups is the number of groups of a row.
func (v *vector) groups() int64 { return 1 << (v.qubits - quantumset.MinQubits - v.group()) }

func (v *vector) amplitudes() int64 { return v.rows << v.qubits }

func (v *vector) runs() int64 { return v.amplitudes() / quantumset.RunSize }

// rowQubits is the number of qubits of the memory of a row of a circuit.
func rowQubits(qubits int) int { return max(qubits, quantumset.MinQubits) }

// tileRows rounds rows up to whole tiles.
func tileRows(rows int64, qubits int) int64 {
	each := int64(1) << max(quantumset.TileQubits-qubits, 0)
	return (rows + each - 1) / each * each
}

// bytesOf is the memory of some rows: amplitudes, and the sums of their weights.
func bytesOf(rows int64, qubits int) int64 {
	v := vector{qubits: qubits, rows: tileRows(rows, qubits)}
	return 8*v.amplitudes() + 8*v.runs() + 8*v.rows*v.groups()
}

// room returns ErrRoom if a state of this many qubits does not fit, before anything is allocated.
// It is a device.ErrOutOfMemory too if other work has the memory of the device.
func (s *Simulator) room(qubits int) error {
	free, total, err := s.d.Memory()
	if err != nil {
		return fmt.Errorf("memory of the device: %w", err)
	}
	fits := 0
	for fits < s.o.MaxQubits && bytesOf(1, rowQubits(fits+1))+reserve <= free {
		fits++
	}
	if qubits <= fits {
		return nil
	}
	err = fmt.Errorf("%w: %d qubits take %d MiB, and the device has %d of %d MiB free; at most %d qubits fit",
		ErrRoom, qubits, bytesOf(1, rowQubits(qubits))>>20, free>>20, total>>20, fits)
	if qubits <= s.o.MaxQubits && bytesOf(1, rowQubits(qubits))+reserve <= total {
		err = fmt.Errorf("%w: %w", err, device.ErrOutOfMemory)
	}
	return err
}

// reserve is memory for plans, matrices and samples beside a state.
const reserve = 16 << 20

// newVector allocates rows of amplitudes, whose content is undefined.
func (s *Simulator) newVector(rows int64, qubits int) (*vector, error) {
	v := &vector{s: s, qubits: rowQubits(qubits)}
	v.rows = tileRows(rows, v.qubits)
	for _, part := range []struct {
		buffer *device.Buffer
		bytes  int64
	}{{&v.buffer, 8 * v.amplitudes()}, {&v.sums, 8 * v.runs()}} {
		var err error
		if *part.buffer, err = s.d.Alloc(part.bytes, purpose); err != nil {
			return nil, errors.Join(fmt.Errorf("allocate %d rows of %d qubits: %w", rows, v.qubits, err), v.close())
		}
	}
	return v, nil
}

// close releases the memory when the queued work is done.
func (v *vector) close() (err error) {
	for _, b := range append(v.scratch, v.buffer, v.sums) {
		if b != nil {
			err = errors.Join(err, v.s.release(b))
		}
	}
	v.scratch, v.buffer, v.sums = nil, nil, nil
	return err
}

// release closes a buffer behind the queued work.
func (s *Simulator) release(b device.Buffer) error {
	if s.closed {
		return b.Close()
	}
	return s.stream.Release(b)
}

// alloc returns memory that is released at the end of the call, or when the vector is closed.
func (v *vector) alloc(n int64) (device.Buffer, error) {
	b, err := v.s.d.Alloc(max(n, device.RangeAlign), purpose)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes beside a state: %w", n, err)
	}
	v.scratch = append(v.scratch, b)
	return b, nil
}

// upload returns words in memory as alloc does.
func upload[T device.Scalar](v *vector, words []T) (device.Buffer, error) {
	b, err := v.alloc(int64(len(device.Bytes(words))))
	if err != nil {
		return nil, err
	}
	return b, b.Write(0, device.Bytes(words))
}

// forget releases what alloc returned.
func (v *vector) forget() (err error) {
	for _, b := range v.scratch {
		err = errors.Join(err, v.s.release(b))
	}
	v.scratch = nil
	return err
}

// warps is a launch with a warp for each of n items.
func (s *Simulator) warps(n int64) device.Geometry {
	const each = quantumset.Block / 32
	return device.Geometry{Grid: int(max(1, min(uint64(n+each-1)/each, s.blocks, 1<<16))), Block: quantumset.Block}
}

// weigh queues that the weights of the amplitudes of all rows are added up whose index has a value
// where a mask is set. It returns the memory of the sums of groups.
func (v *vector) weigh(mask, value uint64) (device.Buffer, error) {
	totals, err := v.alloc(8 * v.rows * v.groups())
	if err != nil {
		return nil, err
	}
	if err := v.s.stream.Fill(totals, 0, totals.Size(), 0); err != nil {
		return nil, err
	}
	return totals, v.s.stream.Launch(v.s.weight, v.s.warps(v.runs()), quantumset.WeightArgs{
		Amplitudes: device.Ptr(v.buffer), Runs: uint64(v.runs()), Group: uint32(v.group()),
		Mask: mask, Value: value, Sums: device.Ptr(v.sums), Totals: device.Ptr(totals),
	}.Args()...)
}

// weights returns the running totals of the groups of each of the first rows from what weigh
// returned, when the work is done.
func (v *vector) weights(from device.Buffer, rows int) ([]uint64, error) {
	groups := int(v.groups())
	totals := make([]uint64, rows*groups)
	if err := from.Read(0, device.Bytes(totals)); err != nil {
		return nil, fmt.Errorf("read the weights of %d rows: %w", rows, err)
	}
	for i := range totals {
		if i%groups > 0 {
			totals[i] += totals[i-1]
		}
	}
	return totals, nil
}

// rowWeights returns the weight of each row from what weights returns.
func (v *vector) rowWeights(totals []uint64) []uint64 {
	groups := int(v.groups())
	rows := make([]uint64, len(totals)/groups)
	for r := range rows {
		rows[r] = totals[(r+1)*groups-1]
	}
	return rows
}

// read returns the amplitudes of some rows, in the order of an index in which qubit q is bit q.
func (v *vector) read(ctx context.Context, row, rows int, place []int) ([]complex64, error) {
	if err := v.s.stream.Sync(ctx); err != nil {
		return nil, err
	}
	all := make([]float32, 2*rows<<v.qubits)
	if err := v.buffer.Read(int64(row)<<v.qubits*8, device.Bytes(all)); err != nil {
		return nil, fmt.Errorf("read %d amplitudes: %w", len(all)/2, err)
	}
	ordered := make([]complex64, rows<<len(place))
	for i := range ordered {
		r, index := i>>len(place), i&(1<<len(place)-1)
		at := r << v.qubits
		for left := uint(index); left != 0; left &= left - 1 {
			at |= 1 << place[bits.TrailingZeros(left)]
		}
		ordered[i] = complex(all[2*at], all[2*at+1])
	}
	return ordered, nil
}

// write makes a number of rows the given amplitudes, divided by their norm, and 0 behind them.
func (v *vector) write(ctx context.Context, rows int64, values []float32) error {
	var norm float64
	for i, x := range values {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("%w: amplitude %d is %v; give finite ones", ErrInvalid, i, x)
		}
		norm += float64(x) * float64(x)
	}
	if norm == 0 {
		return fmt.Errorf("%w: %d amplitudes have the norm 0; give one that is not 0", ErrInvalid, len(values))
	}
	if err := v.s.stream.Fill(v.buffer, 0, v.buffer.Size(), 0); err != nil {
		return err
	}
	if err := v.s.stream.Sync(ctx); err != nil {
		return err
	}
	scale := 1 / math.Sqrt(norm)
	const each = 1 << 20
	part := make([]float32, 0, 2*min(each, len(values)))
	for at := 0; at < len(values); at += each {
		part = part[:0]
		for _, x := range values[at:min(at+each, len(values))] {
			part = append(part, float32(float64(x)*scale), 0)
		}
		if err := v.buffer.Write(int64(at)*8, device.Bytes(part)); err != nil {
			return fmt.Errorf("write %d amplitudes: %w", len(part)/2, err)
		}
	}
	row := int64(8) << v.qubits
	for done := int64(1); done < rows; done *= 2 {
		n := min(done, rows-done)
		if err := v.s.stream.Copy(v.buffer, done*row, v.buffer, 0, n*row); err != nil {
			return err
		}
	}
	return nil
}
