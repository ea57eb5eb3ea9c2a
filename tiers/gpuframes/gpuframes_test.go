package gpuframes_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/gpuframes"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// opened opens the device under test. At its end nothing may be open on it.
func opened(t testing.TB) device.Device {
	t.Helper()
	return opentest.Open(t, *opentest.Name, cuda.Options{})
}

func made(t testing.TB, d device.Device, o gpuframes.Options, pinned int) (*gpuframes.Device, *gpuframes.Pinned) {
	t.Helper()
	o.Device = d
	gpu, err := gpuframes.NewDevice(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Count = pinned
	host, err := gpuframes.NewPinned(o)
	if err != nil {
		t.Fatal(errors.Join(err, gpu.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(gpu.Close(), host.Close(), gpu.Close(), host.Close()); err != nil {
			t.Error(err)
		}
	})
	return gpu, host
}

func TestConformance(t *testing.T) {
	d := opened(t)
	for _, o := range []gpuframes.Options{
		{},
		{SlabBytes: 3 * tierstest.PageSize, Depth: 1, Lanes: 1},
		{SlabBytes: 5*tierstest.PageSize + 1, Depth: 7, Lanes: 2},
	} {
		t.Run(fmt.Sprintf("slabs of %d, depth %d", o.SlabBytes, o.Depth), func(t *testing.T) {
			o.Count, o.PageSize = tierstest.Count, tierstest.PageSize
			gpu, host := made(t, d, o, o.Count)
			t.Run("device", func(t *testing.T) { tierstest.Frames(t, gpu) })
			t.Run("pinned", func(t *testing.T) { tierstest.Frames(t, host) })
			t.Run("copier", func(t *testing.T) { tierstest.Copier(t, gpu, host) })
		})
	}
}

// TestClosed uses frames after Close: errors, and nothing touched.
func TestClosed(t *testing.T) {
	d := opened(t)
	gpu, host := made(t, d, gpuframes.Options{Count: 2, PageSize: 4096}, 2)
	if err := gpu.Close(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	for _, err := range []error{
		gpu.Read(0, 0, b), gpu.Write(0, 0, b), gpu.CopyIn(t.Context(), host, []tiers.Move{{}}, tiers.Demand),
		gpu.CopyOut(t.Context(), host, []tiers.Move{{}}, tiers.Background),
	} {
		if !errors.Is(err, tiers.ErrClosed) {
			t.Errorf("after close: %v, want ErrClosed", err)
		}
	}
}

func TestOptionsAreRefused(t *testing.T) {
	d := opened(t)
	for _, o := range []gpuframes.Options{
		{Count: 1, PageSize: 4096},
		{Device: d, Count: -1, PageSize: 4096},
		{Device: d, Count: 1},
		{Device: d, Count: 1, PageSize: 4096 + 8},
		{Device: d, Count: 1, PageSize: 4096, Depth: -1},
		{Device: d, Count: 1, PageSize: 4096, Lanes: -1},
		{Device: d, Count: 1, PageSize: 4096, SlabBytes: -1},
	} {
		if _, err := gpuframes.NewDevice(o); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", o, err)
		}
		if _, err := gpuframes.NewPinned(o); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("pinned, %+v: %v, want ErrInvalid", o, err)
		}
	}
	// More than there is: what was taken before is given back, which the close of the device
	// checks.
	if _, err := gpuframes.NewDevice(gpuframes.Options{
		Device: d, Count: 1 << 30, PageSize: 1 << 20,
		SlabBytes: 1 << 40,
	}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("a petabyte: %v, want ErrOutOfMemory", err)
	}
}

// TestLaunchOnPins has goroutines pin random pages in the device and launch a kernel on each where
// it lies, while pages come and go: every page counts its launches, wherever it has been, and after
// a checkpoint and a restart too.
func TestLaunchOnPins(t *testing.T) {
	const pageSize, pages, words = 4096, 60, 4096 / 4
	d := opened(t)
	fill, err := d.Kernel("fill_u32")
	if err != nil {
		t.Fatal(err)
	}
	gpu, host := made(t, d, gpuframes.Options{Count: 12, PageSize: pageSize, SlabBytes: 5 * pageSize}, 16)
	fs := tierstest.NewMem(0)
	store, err := pagestore.Open(pagestore.Options{
		FS: fs, Tables: tierstest.Backend{FS: fs}, PageSize: pageSize,
		Tiers: []pagestore.Tier{
			{Dir: "/nvme", Capacity: 16 << 20}, {Dir: "/ssd", Capacity: 16 << 20},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := pager.Open(pager.Options{
		Store: store, Memory: []pager.Memory{{Name: "gpu", Frames: gpu}, {Name: "cpu", Frames: host}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for page := range uint64(pages) {
		if err := p.Create(ctx, page, 1); err != nil {
			t.Fatal(err)
		}
	}
	var counts [pages]uint32
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			s, err := d.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for range 300 {
				page := rng.IntN(pages/3)*3 + w // Each page has one writer.
				if err := bump(ctx, p, gpu, s, fill, uint64(page), counts[page], words); err != nil {
					t.Errorf("page %d: %v", page, err)
					return
				}
				counts[page]++
			}
		})
	}
	wg.Wait()
	check := func(p *pager.Pager) {
		t.Helper()
		b := make([]byte, pageSize)
		for page, n := range counts {
			if err := p.Read(ctx, uint64(page), 0, b); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(b); i += 4 {
				if v := binary.LittleEndian.Uint32(b[i:]); v != n {
					t.Fatalf("page %d has %d at %d, want %d", page, v, i, n)
				}
			}
		}
	}
	check(p)
	if _, err := p.Checkpoint(ctx, []byte("here")); err != nil {
		t.Fatal(err)
	}
	st := p.Stats()
	if st.Memory[0].In < 100 || st.Memory[0].Out < 100 {
		t.Errorf("%d pages came and %d left: the test shows nothing", st.Memory[0].In, st.Memory[0].Out)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := pager.Open(pager.Options{Store: store, Memory: []pager.Memory{{Name: "gpu", Frames: gpu}}})
	if err != nil {
		t.Fatal(err)
	}
	check(again)
	if err := errors.Join(again.Close(), store.Close()); err != nil {
		t.Error(err)
	}
}

// bump pins a page, checks that every word of it is count, and has a kernel make it one more.
func bump(ctx context.Context, p *pager.Pager, gpu *gpuframes.Device, s device.Stream, fill device.Kernel, page uint64,
	count uint32, words int64,
) error {
	h, err := p.Pin(ctx, page, 0, pager.ForWriting)
	if err != nil {
		return err
	}
	defer h.Unpin()
	b, off := gpu.Buffer(h.Frame())
	got := make([]byte, 8)
	if err := b.Read(off+4*(words-2), got); err != nil {
		return err
	}
	if v := binary.LittleEndian.Uint32(got); v != count {
		return fmt.Errorf("it was filled with %d, want %d: %w", v, count, tiers.ErrCorrupt)
	}
	err = s.Launch(fill, fill.Cover(words), device.Range(b, off, 4*words), device.Uint64(uint64(words)),
		device.Uint32(count+1))
	return errors.Join(err, s.Sync(ctx))
}
