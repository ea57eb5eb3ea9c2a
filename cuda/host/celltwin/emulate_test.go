package celltwin

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// emulator compiles a cell's CUDA source for the CPU and returns the program; see
// testdata/emulate.cpp.
func emulator(t *testing.T, kernel string) string {
	t.Helper()
	source, ok := kernels.Lookup(kernel)
	if !ok {
		t.Fatalf("no kernel %s", kernel)
	}
	return emulatorOf(t, source)
}

func emulatorOf(t *testing.T, source kernels.Source) string {
	t.Helper()
	return emulation.Compile(t, "emulate.cpp", source, emulation.Exact...)
}

// emulate is observe on the emulated kernel with the given number of threads a block.
func (s *swarm) emulate(t *testing.T, program string, threads int, runs []kernels.Run, times []int64,
	features []float64,
) columns {
	t.Helper()
	n, c := len(times), len(s.bound.Cell.Candidates)
	out := columns{make([]float32, n), make([]uint32, n), make([]uint32, n*c), make([]uint32, n), make([]uint64, n)}
	flat := make([]uint32, 0, 4*len(runs))
	for _, r := range runs {
		if r.First%2 == 1 {
			r.Frame |= 1 << kernels.RunHostBit // the emulator has one memory
		}
		flat = r.Words(flat)
	}
	buffers := [][]byte{
		s.page, device.Bytes(s.layout.Table()), device.Bytes(s.bound.ParamBlock()), device.Bytes(s.table),
		device.Bytes(flat),
		device.Bytes(times), device.Bytes(features), device.Bytes(out.scores), device.Bytes(out.decisions),
		device.Bytes(out.counts), device.Bytes(out.leaders), device.Bytes(out.rounds),
	}
	file := []byte{}
	for _, v := range []int{threads, len(runs), s.layout.PageBytes} {
		file = binary.LittleEndian.AppendUint64(file, uint64(v))
	}
	for _, b := range buffers {
		file = binary.LittleEndian.AppendUint64(file, uint64(len(b)))
	}
	head := len(file)
	for _, b := range buffers {
		file = append(file, b...)
	}
	path := filepath.Join(t.TempDir(), "buffers")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(program, path).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, text)
	}
	back, err := os.ReadFile(path)
	if err != nil || len(back) != len(file) {
		t.Fatalf("%d bytes back, want %d (%v)", len(back), len(file), err)
	}
	at := head
	for _, b := range buffers {
		at += copy(b, back[at:at+len(b)])
	}
	return out
}

// TestKernelsEqualTwins runs the CUDA text of every cell, compiled for the CPU, and its Go twin:
// outputs and pages must be the same to the bit, whatever the number of agents, of threads, and of
// features.
func TestKernelsEqualTwins(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	for _, cell := range cells.Names() {
		t.Run(cell, func(t *testing.T) { kernelEqualsTwin(t, cell) })
	}
}

func kernelEqualsTwin(t *testing.T, cell string) {
	c, _ := cells.Lookup(cell)
	program := emulator(t, c.Kernel)
	for i, size := range []struct{ agents, threads, features int }{
		{1, 32, 1}, {5, 1, 64}, {7, 7, 1}, {33, 40, 3}, {40, 7, 2}, {70, 32, 1}, {15, 8, 32},
	} {
		rule := kernels.Rule(i % 5)
		values := warmed(cell, 20)
		if cell == "predictor" { // scores in the short runs of this test, and both ways to an alarm
			values["block"], values["alarms_per_day"] = 2, float64(i%2*90)
		}
		b := bind(t, cell, values, size.agents, size.features, cells.Voting{Rule: rule, Quorum: 0.6})
		b.Drop, b.Own = kernels.Drop(i%4), cell == "gru" && i%2 == 0
		rng := rand.New(rand.NewPCG(uint64(size.agents), 1))
		const pageBytes = 1 << 18
		twin, kernel := newSwarm(t, b, pageBytes), newSwarm(t, b, pageBytes)
		for batch := range testkit.Of(3, 1) {
			var runs []kernels.Run
			var times []int64
			var x []float64
			for _, slot := range rng.Perm(min(twin.layout.Slots, 3))[:2] {
				n := testkit.Of(30, 22) + rng.IntN(testkit.Of(30, 6))
				if cell == "predictor" { // its first scores take two blocks behind the first 20 rows
					n += 60
				}
				runs = append(runs, kernels.Run{
					Slot: uint32(slot), First: uint32(len(times)), Count: uint32(n),
					Group: uint32(slot) + 1<<20,
				})
				for _, e := range randomEvents(rng, n, 1, size.features) {
					times, x = append(times, e.time-int64(rng.IntN(2))*2e18), append(x, doubles(e.features)...)
					if rng.IntN(4) == 0 && len(times) > 1 {
						times[len(times)-1] = times[len(times)-2]
					}
					if rng.IntN(20) == 0 {
						x[len(x)-1] = float64(hostileValue(rng))
					}
					if slot == 1 && i%2 == 1 { // on a base
						x[len(x)-1] += 1e12
					}
				}
			}
			want, got := twin.observe64(runs, times, x), kernel.emulate(t, program, size.threads, runs, times, x)
			if !got.equal(want) {
				t.Errorf("%s %+v, batch %d: other outputs than the twin's", cell, size, batch)
			}
			if !bytes.Equal(kernel.page, twin.page) {
				t.Errorf("%s %+v, batch %d: another page than the twin's", cell, size, batch)
			}
		}
	}
}
