//go:build cuda

package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/internal/driver/bare"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv("EXOSWARM_SANITIZE") != "" {
		nvrtcNames = []string{} // NVRTC does not end under AddressSanitizer: kernels come from embedded PTX
	}
	goleak.VerifyTestMain(m)
}

// needGPU fails a test on a machine without a GPU, unless the environment allows that.
func needGPU(t testing.TB) {
	t.Helper()
	n, err := Init()
	if err == nil && n > 0 {
		return
	}
	if os.Getenv("EXOSWARM_SKIP_GPU") == "1" {
		t.Skip("EXOSWARM_SKIP_GPU=1: ", err)
	}
	t.Fatalf("this test needs a GPU: %d devices, %v", n, err)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// openGPU opens cuda:0; the caller closes it.
func openGPU(t testing.TB, opts Options) *Device {
	t.Helper()
	needGPU(t)
	if opts.Logger == nil {
		opts.Logger = quiet()
	}
	if filepath.Base(os.Getenv("EXOSWARM_LIBCUDA")) == "libfakecuda.so" {
		opts.CUBLAS = []string{} // a real library on a driver that is none
	}
	d, err := Open(context.Background(), 0, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeGPU(t testing.TB, d *Device) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestConformance(t *testing.T) {
	needGPU(t)
	cache := t.TempDir()
	devicetest.Run(t, func(t testing.TB, limit int64) device.Device {
		return openGPU(t, Options{MemoryLimit: limit, CacheDir: cache})
	})
}

// Without NVRTC and cuBLAS the whole suite runs on embedded PTX.
func TestConformancePTX(t *testing.T) {
	needGPU(t)
	devicetest.Run(t, func(t testing.TB, limit int64) device.Device {
		return openGPU(t, Options{MemoryLimit: limit, NVRTC: []string{}, CUBLAS: []string{}})
	})
}

func TestMemoryLog(t *testing.T) {
	needGPU(t)
	devicetest.MemoryLog(t, func(log *slog.Logger) device.Device { return openGPU(t, Options{Logger: log}) })
}

func TestProperties(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	p := d.Properties()
	t.Logf("%+v", p)
	if p.Name != "cuda:0" || !strings.HasPrefix(p.UUID, "GPU-") || p.PCIBus == "" || p.ComputeMajor < 7 ||
		p.L2Bytes < 1 || p.DriverVersion < 11000 {
		t.Errorf("%+v", p)
	}
	if _, err := Open(context.Background(), 999, Options{Logger: quiet()}); !errors.Is(err, device.ErrInvalidArgument) {
		t.Error(err)
	}
}

func kernelSource(name, code string, params []device.Param) kernels.Source {
	return kernels.Source{Name: name, File: name + ".cu", Code: code, Params: params}
}

func loadTest(t testing.TB, d *Device, name, code string, params ...device.Param) *kernel {
	t.Helper()
	k, err := d.load(kernelSource(name, code, params))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// runSum proves that a device works.
func runSum(t testing.TB, d *Device) {
	t.Helper()
	data := bytes.Repeat([]byte("sound "), 1000)
	b, err := d.Alloc(int64(len(data)), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sum, err := d.Alloc(8, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer sum.Close()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k, err := d.Kernel("checksum")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]uint64, 1)
	err = errors.Join(b.Write(0, data), sum.Fill(0, 8, 0),
		s.Launch(k, device.Geometry{Grid: 3, Block: 64}, device.Ptr(b), device.Uint64(uint64(len(data))),
			device.Ptr(sum)),
		s.Sync(context.Background()), sum.Read(0, device.Bytes(got)))
	if err != nil || got[0] != devicetest.Checksum(data) {
		t.Errorf("sum %x, want %x: %v", got[0], devicetest.Checksum(data), err)
	}
}

// A wait ends with its context while a kernel runs on, and the kernel's result is there in the end.
func TestSyncLeavesALongKernel(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	k := loadTest(t, d, "slow", `extern "C" __global__ void slow(unsigned int *out, unsigned long long ns) {
	unsigned long long start, now;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < ns);
	out[0] = 7;
}`, device.Param{Name: "out", Kind: device.KindBuffer}, device.Param{Name: "ns", Kind: device.KindUint64})
	b, err := d.Alloc(4, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	if err := s.Launch(k, device.Geometry{Grid: 1, Block: 1}, device.Ptr(b), device.Uint64(1e9)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 800*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if err := s.Sync(context.Background()); err != nil || time.Since(start) < 900*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	got := make([]uint32, 1)
	if err := b.Read(0, device.Bytes(got)); err != nil || got[0] != 7 {
		t.Error(got, err)
	}
}

// The card's own end is an error like the limit, and what is freed can be had again.
func TestExhaustMemory(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	for range 2 {
		var held []device.Buffer
		for {
			b, err := d.Alloc(4<<30, "test")
			if err != nil {
				if !errors.Is(err, device.ErrOutOfMemory) {
					t.Error(err)
				}
				break
			}
			held = append(held, b)
		}
		t.Logf("%d buffers of 4 GiB", len(held))
		for _, b := range held {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if len(held) == 0 {
			t.Error("not one buffer")
		}
		runSum(t, d)
	}
}

// Opening and closing, EXOSWARM_CYCLES times, leaves device memory, host memory and file
// descriptors where they were.
func TestCycles(t *testing.T) {
	cache := t.TempDir()
	watch := openGPU(t, Options{CacheDir: cache})
	defer closeGPU(t, watch)
	var free0, free1, host0, host1, heap0 int64
	var fds0, fds1 int
	cycles := devicetest.Scale(t, "EXOSWARM_CYCLES", 30)
	settled := min(20, cycles/2) // until then, the driver fills its own caches
	start := time.Now()
	for i := range cycles {
		d := openGPU(t, Options{CacheDir: cache})
		runSum(t, d)
		closeGPU(t, d)
		if i == settled {
			free0, fds0 = memoryAndFiles(t, watch)
			host0, heap0 = resident(t), heap()
		}
	}
	free1, fds1 = memoryAndFiles(t, watch)
	host1 = resident(t)
	t.Logf("%d cycles in %v: device memory %+d KiB, host memory %+d KiB, of it Go's heap %+d KiB, files %+d", cycles,
		time.Since(start).Round(time.Millisecond), (free0-free1)>>10, (host1-host0)>>10, (heap()-heap0)>>10, fds1-fds0)
	// what the driver itself keeps of a context that is destroyed
	if cycles >= 300 && filepath.Base(os.Getenv("EXOSWARM_LIBCUDA")) != "libfakecuda.so" {
		text, _ := kernels.PTX("checksum")
		image := append([]byte(text), 0)
		if err := bare.Cycles(0, image, 20); err != nil {
			t.Fatal(err)
		}
		before := resident(t)
		if err := bare.Cycles(0, image, cycles); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d bare cycles: host memory %+d KiB", cycles, (resident(t)-before)>>10)
	}
	// A cycle that lost a buffer or a stack would show more than these after thousands; contexts
	// share what remains.
	if free1 < free0-(64<<20) || fds1 > fds0 || host1 > host0+(64<<20) {
		t.Errorf("free memory %d MiB, then %d MiB; resident %d MiB, then %d MiB; files %d, then %d",
			free0>>20, free1>>20, host0>>20, host1>>20, fds0, fds1)
	}
}

// heap is what Go's heap has in use, after resident has collected the garbage.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident is the memory of this process that is in use, after the garbage is collected.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func memoryAndFiles(t *testing.T, d *Device) (free int64, files int) {
	t.Helper()
	free, _, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return free, len(list)
}

// A second device takes its kernels from the cache; a damaged entry is compiled again, said so, and
// repaired.
func TestCache(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	for i := range 4 {
		log.Reset()
		d := openGPU(t, Options{CacheDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		start := time.Now()
		runSum(t, d)
		t.Logf("run %d: %v", i, time.Since(start))
		closeGPU(t, d)
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("run %d: %v, %v", i, files, err)
		}
		if again := strings.Contains(log.String(), "compiled again"); again != (i == 2) {
			t.Errorf("run %d: %s", i, log.String())
		}
		if i == 1 {
			data, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(files[0], data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// needNVRTC is needGPU for tests of the compiler, which needs no GPU.
func needNVRTC(t testing.TB) *nvrtc {
	t.Helper()
	n := findNVRTC(nvrtcNames)
	if n != nil {
		return n
	}
	if os.Getenv("EXOSWARM_SKIP_GPU") == "1" {
		t.Skip("EXOSWARM_SKIP_GPU=1: no NVRTC")
	}
	t.Fatal("this test needs NVRTC")
	return nil
}

// TestCompileSet compiles every kernel for two chips in a long run, and otherwise a quarter of the
// kernels for each chip.
func TestCompileSet(t *testing.T) {
	n := needNVRTC(t)
	for c, chip := range []string{"sm_80", "sm_90"} {
		t.Run(chip, func(t *testing.T) {
			t.Parallel()
			for i, name := range kernels.Names() {
				if !testkit.Long() && i%4 != 2*c {
					continue
				}
				src, _ := kernels.Lookup(name)
				start := time.Now()
				image, err := n.compile(src, append([]string{"--gpu-architecture=" + chip, "--std=c++17"},
					src.Options()...))
				if err != nil || !bytes.HasPrefix(image, []byte("\x7fELF")) {
					t.Errorf("%s for %s: %d bytes, %v", name, chip, len(image), err)
				}
				t.Logf("%s for %s with NVRTC %d: %d bytes in %v", name, chip, n.version, len(image), time.Since(start))
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	n := needNVRTC(t)
	src := kernels.Source{Name: "wrong", File: "wrong.cu", Code: "extern \"C\" __global__ void wrong(float *x)\n{\n " +
		"   x[0] = undeclared_thing;\n}\n"}
	_, err := n.compile(src, []string{"--gpu-architecture=sm_90"})
	if !errors.Is(err, device.ErrInvalidArgument) || !strings.Contains(err.Error(), "wrong.cu(3)") ||
		!strings.Contains(err.Error(), "line 3 of wrong.cu:     x[0] = undeclared_thing;") {
		t.Error(err)
	}
	_, err = n.compile(src, []string{"--gpu-architecture=sm_999"})
	if !errors.Is(err, device.ErrNotSupported) {
		t.Error(err)
	}
	if findNVRTC([]string{"libnvrtc.so.0"}) != nil {
		t.Error("found a library that does not exist")
	}
}

// Without a driver, and without a device, the process starts, says what is missing, and continues.
func TestNoDriver(t *testing.T) {
	if os.Getenv("DRIVER_TEST_CHILD") == "1" {
		_, err := Open(context.Background(), 0, Options{Logger: quiet()})
		os.Stdout.WriteString("went on after: " + err.Error() + "\n")
		if !errors.Is(err, device.ErrNotSupported) {
			t.Error(err)
		}
		return
	}
	for env, words := range map[string]string{
		"EXOSWARM_LIBCUDA=/nonexistent/libcuda.so": "no NVIDIA driver",
		"CUDA_VISIBLE_DEVICES=":                    "CUDA_VISIBLE_DEVICES",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNoDriver$", "-test.v")
		cmd.Env = append(os.Environ(), "DRIVER_TEST_CHILD=1", env)
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("went on after")) || !bytes.Contains(out, []byte(words)) {
			t.Errorf("%s: %v\n%s", env, err, out)
		}
	}
}

func TestClasses(t *testing.T) {
	known := []error{
		device.ErrOutOfMemory, device.ErrInvalidArgument, device.ErrSticky, device.ErrLost,
		device.ErrNotSupported, device.ErrTransient,
	}
	for code, class := range classes {
		if !slices.Contains(known, class) {
			t.Errorf("%d has the class %v", code, class)
		}
	}
	for code, class := range map[int]error{
		2: device.ErrOutOfMemory, 700: device.ErrSticky, 710: device.ErrSticky, 716: device.ErrSticky,
		719: device.ErrSticky,
		214: device.ErrSticky, 1: device.ErrInvalidArgument, 100: device.ErrNotSupported, 12345: device.ErrSticky,
	} {
		if err := testCallError(code); !errors.Is(err, class) {
			t.Errorf("%d: %v, want %v", code, err, class)
		}
	}
}
