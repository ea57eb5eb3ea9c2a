package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func library(t testing.TB) *Library {
	l := &Library{}
	testkit.Close(t, l)
	return l
}

// data returns the argument of a copy of bytes.
func data(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// TestMemory compares random calls with a plain map of slices.
func TestMemory(t *testing.T) {
	l, ctx, r := library(t), t.Context(), rand.New(rand.NewPCG(1, 2))
	want, all := map[uint64][]byte{}, []uint64(nil)
	for range 3000 {
		if len(all) == 0 || r.IntN(8) == 0 {
			n := 1 + r.Uint64N(2000)
			h, err := l.Malloc(ctx, HostDevice, n)
			testkit.NoError(t, "Malloc", err)
			if h == 0 || want[h] != nil {
				t.Fatalf("Malloc: the handle %#x is used", h)
			}
			want[h], all = make([]byte, n), append(all, h)
		}
		h := all[r.IntN(len(all))]
		is, there := want[h], want[h] != nil
		off, n := r.Uint64N(2200), r.Uint64N(2200)
		host := make([]byte, n)
		for i := range host {
			host[i] = byte(r.Uint32())
		}
		valid := there && off+n <= uint64(len(is))
		switch r.IntN(10) {
		case 0:
			if err := l.Free(h); (err == nil) != there {
				t.Fatalf("Free of %#x: %v, and it is there: %v", h, err, there)
			}
			want[h] = nil
			continue
		case 1, 2, 3, 4:
			if err := l.Write(h+off, data(host), n); (err == nil) != valid ||
				!valid && !errors.Is(err, device.ErrInvalidArgument) {
				t.Fatalf("Write of %d bytes at %d of %d, there: %v: %v", n, off, len(is), there, err)
			}
			if valid {
				copy(is[off:], host)
			}
		default:
			if err := l.Read(data(host), h+off, n); (err == nil) != valid {
				t.Fatalf("Read of %d bytes at %d of %d, there: %v: %v", n, off, len(is), there, err)
			}
			if valid && !bytes.Equal(host, is[off:off+n]) {
				t.Fatalf("Read of %d bytes at %d: other bytes than were written", n, off)
			}
		}
	}
}

// TestRefused: each wrong call has its code and one sentence that names what is wrong.
func TestRefused(t *testing.T) {
	l, ctx := library(t), t.Context()
	h, err := l.Malloc(ctx, HostDevice, 16)
	testkit.NoError(t, "Malloc", err)
	gone, err := l.Malloc(ctx, HostDevice, 16)
	testkit.NoError(t, "Malloc", err)
	testkit.NoError(t, "Free", l.Free(gone))
	c, err := l.Init(ctx, HostDevice)
	testkit.NoError(t, "Init", err)
	malloc := func(number int, n uint64) error {
		h, err := l.Malloc(ctx, number, n)
		if h != 0 {
			t.Errorf("Malloc of %d bytes on device %d: handle %#x beside an error", n, number, h)
		}
		return err
	}
	b := make([]byte, 16)
	wrong := InvalidDevice
	if cuda.Built && Devices() == 0 {
		wrong = DeviceNotFound
	}
	for _, of := range []struct {
		err  error
		code Code
		want string
	}{
		{malloc(HostDevice, 0), InvalidParameter, "0 bytes of device memory: ask for 1 to"},
		{malloc(HostDevice, math.MaxUint64), InvalidParameter, "ask for 1 to"},
		{malloc(HostDevice, 1<<62), OutOfMemory, "out of device memory"},
		{malloc(77, 1), wrong, "device 77: no"},
		{malloc(-2, 1), wrong, "device -2: no"},
		{l.Free(h + 1), InvalidParameter, "is byte 1 of a piece of device memory: free its first byte"},
		{l.Free(gone), InvalidParameter, "was freed before"},
		{l.Free(c), InvalidParameter, "is the handle of a context, not of a piece of device memory"},
		{l.FreeContext(h), InvalidParameter, "is the handle of a piece of device memory, not of a context"},
		{l.Free(4711), InvalidParameter, "0x1267 is no handle of this library"},
		{l.Free(math.MaxUint64), InvalidParameter, "is no handle of this library"},
		{l.Write(0, data(b), 1), InvalidParameter, "the handle is null"},
		{l.Write(h, nil, 1), InvalidParameter, "null pointer"},
		{l.Write(h, data(b), 17), InvalidParameter, "17 bytes at byte 0 of 16"},
		{l.Write(h+9, data(b), math.MaxUint64-8), InvalidParameter, "at byte 9 of 16"},
		{l.Write(h+17, data(b), 0), InvalidParameter, "0 bytes at byte 17 of 16"},
		{l.Write(h-1, data(b), 1), InvalidParameter, "is no handle of this library"},
		{l.Read(data(b), gone, 1), InvalidParameter, "was freed before"},
		{l.Read(data(b), c, 1), InvalidParameter, "is the handle of a context"},
		{fmt.Errorf("%w", context.Canceled), Cancelled, "canceled"},
		{device.ErrLost, MemcpyFailed, "lost"},
	} {
		if code := CodeOf(of.err, MemcpyFailed); code != of.code || !strings.Contains(of.err.Error(), of.want) {
			t.Errorf("%v, with code %d: want code %d and %q", of.err, code, of.code, of.want)
		}
	}
	testkit.NoError(t, "Write of nothing", l.Write(h+16, nil, 0))
	testkit.NoError(t, "Free of null", errors.Join(l.Free(0), l.FreeContext(0)))
	if CodeOf(nil, Unknown) != Success {
		t.Error("CodeOf of no error is an error")
	}
}

// TestContext: contexts of one device share it, and the last one closes it.
func TestContext(t *testing.T) {
	l, ctx := library(t), t.Context()
	a, err := l.Init(ctx, HostDevice)
	testkit.NoError(t, "Init", err)
	b, err := l.Init(ctx, HostDevice)
	testkit.NoError(t, "Init", err)
	testkit.NoError(t, "CheckHealth", l.CheckHealth(ctx, a))
	testkit.NoError(t, "FreeContext", l.FreeContext(a))
	if err := l.CheckHealth(ctx, a); CodeOf(err, Unknown) != InvalidParameter {
		t.Errorf("CheckHealth of a freed context: %v", err)
	}
	if _, err := l.Usage(a); CodeOf(err, Unknown) != InvalidParameter {
		t.Errorf("Usage of a freed context: %v", err)
	}
	opened := l.devices[HostDevice]
	testkit.NoError(t, "FreeContext", l.FreeContext(b))
	if len(l.devices) != 0 {
		t.Errorf("%d devices are open without a context", len(l.devices))
	}
	if _, err := opened.Alloc(1, "test"); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Alloc after the last context: %v, want an ErrClosed", err)
	}
	// Memory keeps its device open, with one user however often it is asked for.
	for range 3 {
		h, err := l.Malloc(ctx, HostDevice, 5)
		testkit.NoError(t, "Malloc", err)
		if c, err := l.Init(ctx, HostDevice); err != nil {
			t.Fatal(err)
		} else if n, err := l.Usage(c); n != 5 || err != nil {
			t.Errorf("Usage: %d, %v, want 5", n, err)
		} else {
			testkit.NoError(t, "FreeContext", l.FreeContext(c))
		}
		testkit.NoError(t, "Free", l.Free(h))
	}
	if o := l.devices[HostDevice]; o == nil || o.users != 1 {
		t.Errorf("the device of memory: %+v, want one user", o)
	}
	free, total, err := l.Info(ctx, HostDevice)
	if err != nil || free == 0 || free > total {
		t.Errorf("Info: %d of %d bytes, %v", free, total, err)
	}
	if n := Devices(); n < 1 && !cuda.Built {
		t.Errorf("Devices: %d", n)
	}
}

// TestFreeConcurrently: a call that frees waits for copies, later copies are refused, and of
// several calls one frees.
func TestFreeConcurrently(t *testing.T) {
	l, ctx := library(t), t.Context()
	for range 200 {
		h, err := l.Malloc(ctx, HostDevice, 4096)
		testkit.NoError(t, "Malloc", err)
		var running sync.WaitGroup
		var mu sync.Mutex
		freed := 0
		for i := range 6 {
			running.Go(func() {
				b := make([]byte, 4096)
				if i%3 == 0 {
					if l.Free(h) == nil {
						mu.Lock()
						freed++
						mu.Unlock()
					}
				} else if err := l.Read(data(b), h, 4096); err != nil &&
					!strings.Contains(err.Error(), "was freed before") {
					t.Errorf("Read beside Free: %v", err)
				}
			})
		}
		running.Wait()
		if freed != 1 {
			t.Fatalf("%d of two calls of Free have freed the memory", freed)
		}
	}
}

// TestHandles: a large object has all numbers up to the one behind its last byte, a number is never
// given twice, and the numbers end.
func TestHandles(t *testing.T) {
	var h handles
	m := &memory{}
	const large = 5<<slotBits + 1
	a, err := h.put(m, large)
	testkit.NoError(t, "put", err)
	b, err := h.put(m, 1<<slotBits)
	testkit.NoError(t, "put", err)
	for _, off := range []uint64{0, 1, 1 << slotBits, large - 1, large} {
		if _, at, err := find[*memory](&h, a+off); at != off || err != nil {
			t.Errorf("find of byte %d: %d, %v", off, at, err)
		}
	}
	if a < 1<<57 || b <= a+large {
		t.Errorf("handles %#x of %d bytes and %#x overlap, or are addresses", a, uint64(large), b)
	}
	if _, at, err := find[*memory](&h, b+1<<slotBits); at != 1<<slotBits || err != nil {
		t.Errorf("find behind the last byte: %d, %v", at, err)
	}
	if _, err := take[*memory](&h, b); err != nil || len(h.open) != 6 {
		t.Errorf("take: %v, and %d slots are left, want 6", err, len(h.open))
	}
	c, err := h.put(m, 0)
	if err != nil || c <= b+1<<slotBits {
		t.Errorf("put: %#x, %v, behind %#x", c, err, b)
	}
	h.next = slotLimit - 1
	last, err := h.put(m, 0)
	if err != nil || last>>63 != 0 {
		t.Errorf("the last handle is %#x, %v", last, err)
	}
	if _, err := h.put(m, 0); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("put behind the last handle: %v, want an ErrOutOfMemory", err)
	}
}

// TestHeader: this package and worker_cuda.h have the same codes.
func TestHeader(t *testing.T) {
	text, err := os.ReadFile("../../worker/worker_cuda.h")
	testkit.NoError(t, "os.ReadFile", err)
	got := map[string]Code{}
	for _, m := range regexp.MustCompile(`CUDA_(?:ERROR_)?([A-Z_]+) = (\d+)`).FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(m[2]))
		got[string(m[1])] = Code(n)
	}
	want := map[string]Code{
		"SUCCESS": Success, "DEVICE_NOT_FOUND": DeviceNotFound, "OUT_OF_MEMORY": OutOfMemory,
		"INVALID_DEVICE": InvalidDevice, "MODEL_LOAD_FAILED": ModelLoadFailed, "INFERENCE_FAILED": InferenceFailed,
		"VRAM_RESIDENCY_FAILED": ResidencyFailed, "KERNEL_LAUNCH_FAILED": KernelLaunchFailed,
		"INVALID_PARAMETER": InvalidParameter, "MEMCPY_FAILED": MemcpyFailed,
		"INITIALIZATION_FAILED": InitializationFailed, "QUERY_FAILED": QueryFailed, "CANCELLED": Cancelled,
		"FORKED": Forked, "UNKNOWN": Unknown,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("worker_cuda.h has the codes %v, and the package %v", got, want)
	}
	if !regexp.MustCompile(`CUDA_HOST_DEVICE \(` + strconv.Itoa(HostDevice) + `\)`).Match(text) {
		t.Errorf("worker_cuda.h has another number of the host device than %d", HostDevice)
	}
}
