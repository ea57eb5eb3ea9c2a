//go:build cuda

package driver

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/internal/driver/bare"
)

// roundCode is a round of votes 0..4: tally counts them, publish hands the counts to the host.
// There are several of each, and with PDL they may start before the kernel in front of them has
// ended, for which they wait where they need it.
const roundCode = `
#ifdef PDL
#define WAIT asm volatile("griddepcontrol.wait;" ::: "memory")
#define NEXT asm volatile("griddepcontrol.launch_dependents;")
#else
#define WAIT
#define NEXT
#endif

extern "C" __global__ void wipe(unsigned int *counts)
{
    NEXT;
    counts[threadIdx.x] = 0;
}

__device__ __forceinline__ void count(const uint4 *votes, unsigned long long n, unsigned int mine[5])
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n / 16; i += step) {
        const uint4 v = votes[i];
        const unsigned int words[4] = {v.x, v.y, v.z, v.w};
        for (int w = 0; w < 4; w++)
            for (unsigned int c = 0; c < 5; c++)
                mine[c] += __popc(__vcmpeq4(words[w], c * 0x01010101u)) / 8;
    }
    for (int c = 0; c < 5; c++)
        mine[c] = __reduce_add_sync(0xffffffffu, mine[c]);
}

// One atomic a warp and candidate.
extern "C" __global__ void tally(const uint4 *votes, unsigned long long n, unsigned int *counts)
{
    unsigned int mine[5] = {0, 0, 0, 0, 0};
    NEXT;
    count(votes, n, mine);
    WAIT;
    for (int c = 0; c < 5; c++)
        if (threadIdx.x % 32 == 0)
            atomicAdd(&counts[c], mine[c]);
}

// One atomic a block and candidate.
extern "C" __global__ void tally_block(const uint4 *votes, unsigned long long n, unsigned int *counts)
{
    __shared__ unsigned int sums[32][5];
    unsigned int mine[5] = {0, 0, 0, 0, 0};
    NEXT;
    count(votes, n, mine);
    if (threadIdx.x % 32 == 0)
        for (int c = 0; c < 5; c++)
            sums[threadIdx.x / 32][c] = mine[c];
    __syncthreads();
    WAIT;
    if (threadIdx.x < 5) {
        unsigned int sum = 0;
        for (int w = 0; w < blockDim.x / 32; w++)
            sum += sums[w][threadIdx.x];
        atomicAdd(&counts[threadIdx.x], sum);
    }
}

// The counts, a fence, and then the word that says that they are there.
extern "C" __global__ void publish(const unsigned int *counts, unsigned int *sequence, volatile unsigned int *out)
{
    WAIT;
    for (int c = 0; c < 5; c++)
        out[1 + c] = counts[c];
    __threadfence_system();
    out[0] = ++*sequence;
}

// Every count with the number of its round in one word, so that no word has to wait for another.
extern "C" __global__ void publish_stamped(const unsigned int *counts, unsigned int *sequence,
                                           volatile unsigned long long *out)
{
    WAIT;
    const unsigned int round = *sequence + 1;
    __syncwarp();
    if (threadIdx.x < 5)
        out[threadIdx.x] = (unsigned long long)round << 32 | counts[threadIdx.x];
    if (threadIdx.x == 0)
        *sequence = round;
}
`

// voting is what the variants of a round share.
type voting struct {
	d                       *Device
	s                       *stream
	votes, counts, sequence *buffer
	out                     *hostBuffer
	need                    [5]uint32
	rounds                  uint32 // that the device has counted
}

const votingBytes = 1 << 20

func newVoting(b *testing.B) *voting {
	b.Helper()
	v := &voting{d: openGPU(b, Options{})}
	b.Cleanup(func() { closeGPU(b, v.d) })
	made := func(h interface{ Close() error }, err error) {
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = h.Close() })
	}
	for _, m := range []struct {
		at *(*buffer)
		n  int64
	}{{&v.votes, votingBytes}, {&v.counts, 64}, {&v.sequence, 64}} {
		mem, err := v.d.Alloc(m.n, "bench")
		made(mem, err)
		*m.at = mem.(*buffer)
	}
	out, err := v.d.AllocHost(64, "bench")
	made(out, err)
	s, err := v.d.NewStream()
	made(s, err)
	v.out, v.s = out.(*hostBuffer), s.(*stream)
	data := make([]byte, votingBytes)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range data {
		data[i] = byte(r.IntN(5))
		v.need[data[i]]++
	}
	if err := errors.Join(v.votes.Write(0, data), v.sequence.Fill(0, 64, 0)); err != nil {
		b.Fatal(err)
	}
	return v
}

// shape is one way to write the round of three nodes.
type shape struct {
	clear   string // memset8, memset32, kernel
	tally   string
	blocks  int
	stamped bool
	pdl     bool
	upload  bool // cuGraphUpload before the first launch
	plain   bool // three calls, no graph
}

func (v *voting) put(b *testing.B, sh shape) func() error {
	b.Helper()
	code := roundCode
	if sh.pdl {
		code = "#define PDL 1\n" + code
	}
	ptr := func(name string) device.Param { return device.Param{Name: name, Kind: device.KindBuffer} }
	wipe := loadTest(b, v.d, "wipe", code, ptr("counts"))
	tally := loadTest(b, v.d, sh.tally, code, ptr("votes"), device.Param{Name: "n", Kind: device.KindUint64},
		ptr("counts"))
	name, threads := "publish", 1
	if sh.stamped {
		name, threads = "publish_stamped", 32
	}
	publish := loadTest(b, v.d, name, code, ptr("counts"), ptr("sequence"), ptr("out"))
	ctx, raw := uintptr(unsafe.Pointer(v.d.raw)), uintptr(unsafe.Pointer(v.s.raw))
	launch := func(k *kernel, grid, block int, args ...device.Arg) error {
		if !sh.pdl || k == wipe {
			return v.s.Launch(k, device.Geometry{Grid: grid, Block: block}, args...)
		}
		var values []uint64
		for _, a := range args {
			switch m := a.Memory().(type) {
			case *buffer:
				values = append(values, uint64(m.ptr))
			case *hostBuffer:
				values = append(values, uint64(m.mapped))
			default:
				values = append(values, a.Bits())
			}
		}
		return bare.LaunchEarly(ctx, uintptr(unsafe.Pointer(k.fn)), raw, grid, block, values)
	}
	return func() error {
		var err error
		switch sh.clear {
		case "memset8":
			err = v.s.Fill(v.counts, 0, 64, 0)
		case "memset32":
			err = bare.Clear(ctx, raw, uint64(v.counts.ptr), 5)
		default:
			err = launch(wipe, 1, 5, device.Ptr(v.counts))
		}
		return errors.Join(err, launch(tally, sh.blocks, 256, device.Ptr(v.votes), device.Uint64(votingBytes),
			device.Ptr(v.counts)),
			launch(publish, 1, threads, device.Ptr(v.counts), device.Ptr(v.sequence), device.Mapped(v.out, 0, 64)))
	}
}

// check compares what the host has with what the votes are.
func (v *voting) check(b *testing.B, sh shape) {
	b.Helper()
	words := device.Of[uint32](v.out.Bytes())
	for c, n := range v.need {
		count, round := words[1+c], words[0]
		if sh.stamped {
			count, round = words[2*c], words[2*c+1]
		}
		if count != n || round != v.rounds {
			b.Fatalf("round %d: %v, want %v", v.rounds, words[:10], v.need)
		}
	}
}

// await waits for the words of the round.
func (v *voting) await(ctx context.Context, sh shape) error {
	if !sh.stamped {
		return v.s.Await(ctx, v.out, 0, v.rounds)
	}
	for c := range v.need {
		if err := v.s.Await(ctx, v.out, int64(8*c+4), v.rounds); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkGraph is a round of three nodes over a million votes, from the call to the counts in
// host memory, in several ways; bare-us is the same graph from a loop in C, device-us the time
// between events around it. base is the form of the runs of 2026-11-21; each other changes what its
// name says, best has what is expected to win.
func BenchmarkGraph(b *testing.B) {
	ctx := context.Background()
	v := newVoting(b)
	var events [2]device.Event
	for i := range events {
		e, err := v.d.NewEvent()
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		events[i] = e
	}
	base := shape{clear: "memset8", tally: "tally", blocks: 132}
	with := func(sh shape, change func(*shape)) shape { change(&sh); return sh }
	block := with(base, func(s *shape) { s.tally, s.blocks = "tally_block", 264 })
	best := with(block, func(s *shape) { s.clear, s.stamped = "kernel", true })
	for _, c := range []struct {
		name string
		shape
		sync bool
	}{
		{"base/sync", base, true},
		{"base", base, false},
		{"upload", with(base, func(s *shape) { s.upload = true }), false},
		{"memset32", with(base, func(s *shape) { s.clear = "memset32" }), false},
		{"kernel_clear", with(base, func(s *shape) { s.clear = "kernel" }), false},
		{"tally_block_132", with(block, func(s *shape) { s.blocks = 132 }), false},
		{"tally_block_264", block, false},
		{"stamped", with(base, func(s *shape) { s.stamped = true }), false},
		{"best", best, false},
		{"best/memset32", with(best, func(s *shape) { s.clear = "memset32" }), false},
		{"best/sync", best, true},
		{"best/plain", with(best, func(s *shape) { s.plain = true }), false},
		{"best/pdl", with(best, func(s *shape) { s.pdl = true }), false},
		{"best/pdl_plain", with(best, func(s *shape) { s.pdl, s.plain = true, true }), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			if c.pdl && v.d.props.ComputeMajor < 9 {
				b.Skip("chips before sm_90 have no early start")
			}
			put := v.put(b, c.shape)
			do := put
			var g *graph
			if !c.plain {
				made, err := v.s.Capture(put)
				if err != nil {
					b.Fatal(err)
				}
				defer made.Close()
				g = made.(*graph)
				do = func() error { return v.s.Replay(g) }
			}
			dctx, raw := uintptr(unsafe.Pointer(v.d.raw)), uintptr(unsafe.Pointer(v.s.raw))
			if c.upload {
				if err := bare.UploadGraph(dctx, raw, uintptr(unsafe.Pointer(g.exec))); err != nil {
					b.Fatal(err)
				}
			}
			took := medians(b, func() error {
				v.rounds++
				if err := do(); err != nil {
					return err
				}
				if c.sync {
					return v.s.Sync(ctx)
				}
				return v.await(ctx, c.shape)
			})
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
			var onDevice []int64
			for range 200 {
				v.rounds++
				if err := errors.Join(v.s.Record(events[0]), do(), v.s.Record(events[1]), v.s.Sync(ctx)); err != nil {
					b.Fatal(err)
				}
				t, err := events[1].Since(events[0])
				if err != nil {
					b.Fatal(err)
				}
				onDevice = append(onDevice, t.Nanoseconds())
			}
			b.ReportMetric(float64(median(onDevice))/1e3, "device-us")
			if g != nil {
				word := &device.Of[uint32](v.out.Bytes())[0]
				if c.stamped {
					word = &device.Of[uint32](v.out.Bytes())[9] // the last count's
				}
				const times = 5000
				t, err := bare.Rounds(dctx, raw, uintptr(unsafe.Pointer(g.exec)), word, times)
				if err != nil {
					b.Fatal(err)
				}
				v.rounds += times
				b.ReportMetric(float64(t.Nanoseconds())/1e3, "bare-us")
			}
			if err := v.s.Sync(ctx); err != nil {
				b.Fatal(err)
			}
			v.check(b, c.shape)
		})
	}
}
