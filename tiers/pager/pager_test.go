package pager_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/policy"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pageSize = 4096

type stack struct {
	*pager.Pager
	store *pagestore.Store
}

// open opens a store of two tiers on a file system, and a pager of memory tiers over it.
func open(t tester, fs vfs.FS, memory ...pager.Memory) stack {
	t.Helper()
	s, err := pagestore.Open(pagestore.Options{
		FS: fs, Tables: tierstest.Backend{FS: fs}, PageSize: pageSize,
		Tiers: []pagestore.Tier{
			{Dir: "/nvme", Capacity: 16 << 20, SegmentBytes: 256 << 10, Codec: pagestore.Codec{ID: pagestore.LZ4}},
			{Dir: "/ssd", Capacity: 16 << 20, SegmentBytes: 256 << 10},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Groups of three, so that a few pages are several groups.
	p, err := pager.Open(pager.Options{
		Memory: memory, Store: s, Batch: 3,
		Breaker: pager.BreakerOptions{Pause: 20 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	return stack{p, s}
}

func (s stack) close(t tester) {
	t.Helper()
	if err := errors.Join(s.Close(), s.store.Close()); err != nil {
		t.Error(err)
	}
}

func frames(n int) pager.Memory {
	return pager.Memory{Frames: tierstest.NewHostFrames(n, pageSize)}
}

// create makes the pages 0 up to n in a tier, with the content of a version.
func (s stack) create(t *testing.T, n uint64, tier int, version uint64) {
	t.Helper()
	for page := range n {
		if err := s.Create(t.Context(), page, tier); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), page, 0, stamp(page, version)); err != nil {
			t.Fatal(err)
		}
	}
}

// holds fails unless the pages 0 up to n have the content of a version.
func (s stack) holds(t *testing.T, n, version uint64) {
	t.Helper()
	b := make([]byte, pageSize)
	for page := range n {
		if err := s.Read(t.Context(), page, 0, b); err != nil {
			t.Fatal(err)
		}
		if v, err := versionOf(page, b); err != nil || v != version {
			t.Fatalf("page %d: version %d, want %d: %v", page, v, version, err)
		}
	}
}

func stamp(page, version uint64) []byte {
	b := make([]byte, pageSize)
	for i := 0; i < pageSize; i += 16 {
		binary.LittleEndian.PutUint64(b[i:], page)
		binary.LittleEndian.PutUint64(b[i+8:], version)
	}
	return b
}

func versionOf(page uint64, b []byte) (uint64, error) {
	version := binary.LittleEndian.Uint64(b[8:])
	if version == 0 && bytes.Equal(b, make([]byte, pageSize)) {
		return 0, nil
	}
	if !bytes.Equal(b, stamp(page, version)) {
		return 0, fmt.Errorf("page %d does not hold one version of itself: %x", page, b[:32])
	}
	return version, nil
}

// TestAgainstMap runs random operations against a map, with power losses, over several shapes of
// memory and policy.
func TestAgainstMap(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		fs := tierstest.NewMem(0)
		var experts []policy.New
		if rapid.Bool().Draw(t, "lru") {
			experts = []policy.New{func(n int, f func(uint64)) policy.Expert { return policy.NewLRU(n, f) }}
		}
		levels := rapid.IntRange(1, 3).Draw(t, "levels")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), levels, levels).Draw(t, "sizes")
		start := func() stack {
			var memory []pager.Memory
			for _, n := range sizes {
				m := frames(n)
				m.Policy = experts
				memory = append(memory, m)
			}
			return open(t, fs, memory...)
		}
		s := start()
		defer func() { s.close(t) }()
		now, last := map[uint64]uint64{}, map[uint64]uint64{}
		copyOf := func(m map[uint64]uint64) map[uint64]uint64 {
			c := map[uint64]uint64{}
			for k, v := range m {
				c[k] = v
			}
			return c
		}
		anyPage := rapid.Uint64Range(0, 15)
		anyTier := rapid.IntRange(0, levels-1)
		version := uint64(0)
		check := func(t *rapid.T, page uint64, err error) bool {
			_, ok := now[page]
			if ok != (err == nil) || (err != nil && !errors.Is(err, tiers.ErrNotFound)) {
				t.Fatalf("page %d: %v, there: %v", page, err, ok)
			}
			return ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				page := anyPage.Draw(t, "page")
				err := s.Create(ctx, page, anyTier.Draw(t, "tier"))
				if _, ok := now[page]; ok != errors.Is(err, tiers.ErrExist) || (!ok && err != nil) {
					t.Fatalf("create page %d: %v, there: %v", page, err, ok)
				}
				if err == nil {
					now[page] = 0
				}
			},
			"write": func(t *rapid.T) {
				page := anyPage.Draw(t, "page")
				version++
				if check(t, page, s.Write(ctx, page, 0, stamp(page, version))) {
					now[page] = version
				}
			},
			"pin": func(t *rapid.T) {
				page, tier := anyPage.Draw(t, "page"), anyTier.Draw(t, "tier")
				h, err := s.Pin(ctx, page, tier, pager.ForReading)
				if check(t, page, err) {
					if h.Tier() != tier {
						t.Fatalf("pinned in tier %d, want %d", h.Tier(), tier)
					}
					h.Unpin()
				}
			},
			"pin all": func(t *rapid.T) {
				tier := anyTier.Draw(t, "tier")
				pages := rapid.SliceOfN(anyPage, 1, sizes[tier]).Draw(t, "pages")
				pins, err := s.PinAll(ctx, pages, tier, pager.ForReading, nil)
				all := true
				for _, page := range pages {
					_, ok := now[page]
					all = all && ok
				}
				if all != (err == nil) || (err != nil && !errors.Is(err, tiers.ErrNotFound)) ||
					(err != nil) != (len(pins) == 0) {
					t.Fatalf("pin %v: %v, all there: %v, %d pins", pages, err, all, len(pins))
				}
				seen := map[int]uint64{}
				for i, h := range pins {
					if other, twice := seen[h.Frame()]; h.Tier() != tier || twice && other != pages[i] {
						t.Fatalf("page %d in frame %d of tier %d, as page %d", pages[i], h.Frame(), h.Tier(), other)
					}
					seen[h.Frame()] = pages[i]
				}
				pager.UnpinAll(pins)
			},
			"pin in place": func(t *rapid.T) {
				last := sizes[levels-1]
				pages := rapid.SliceOfN(anyPage, 1, last+1).Draw(t, "pages")
				pins, err := s.PinInPlace(ctx, pages, pager.ForWriting, nil)
				all := true
				for _, page := range pages {
					_, ok := now[page]
					all = all && ok
				}
				switch {
				case len(pages) > last:
					if !errors.Is(err, tiers.ErrInvalid) || len(pins) > 0 {
						t.Fatalf("pin %d pages in place, %d frames: %v, %d pins", len(pages), last, err, len(pins))
					}
				case all != (err == nil) || (err != nil && !errors.Is(err, tiers.ErrNotFound)) ||
					(err != nil) != (len(pins) == 0):
					t.Fatalf("pin %v in place: %v, all there: %v, %d pins", pages, err, all, len(pins))
				}
				seen := map[[2]int]uint64{}
				for i, h := range pins {
					at := [2]int{h.Tier(), h.Frame()}
					if other, twice := seen[at]; twice && other != pages[i] {
						t.Fatalf("page %d in frame %d of tier %d, as page %d", pages[i], h.Frame(), h.Tier(), other)
					}
					seen[at] = pages[i]
				}
				for i, h := range pins { // held: nothing takes one away, nor moves it
					again, err := s.Pin(ctx, pages[i], h.Tier(), pager.ForReading)
					if err != nil || again.Tier() != h.Tier() || again.Frame() != h.Frame() {
						t.Fatalf("page %d has left frame %d of tier %d: %v", pages[i], h.Frame(), h.Tier(), err)
					}
					again.Unpin()
				}
				pager.UnpinAll(pins)
			},
			"write all": func(t *rapid.T) {
				pages := rapid.SliceOfNDistinct(anyPage, 1, 10, rapid.ID[uint64]).Draw(t, "pages")
				var parts []pager.Part
				for _, page := range pages {
					if _, ok := now[page]; ok {
						version++
						parts = append(parts, pager.Part{Page: page, Bytes: stamp(page, version)})
						now[page] = version
					}
				}
				if err := s.WriteAll(ctx, parts); err != nil {
					t.Fatal(err)
				}
				for i := range parts {
					parts[i].Bytes = make([]byte, pageSize)
				}
				if err := s.ReadAll(ctx, parts); err != nil {
					t.Fatal(err)
				}
				for _, part := range parts {
					if got, err := versionOf(part.Page, part.Bytes); err != nil || got != now[part.Page] {
						t.Fatalf("page %d has version %d, want %d: %v", part.Page, got, now[part.Page], err)
					}
				}
			},
			"done": func(t *rapid.T) {
				pages := rapid.SliceOfN(anyPage, 1, 16).Draw(t, "pages")
				if err := s.DoneWith(ctx, anyTier.Draw(t, "tier"), pages...); err != nil {
					t.Fatal(err)
				}
			},
			"need": func(t *rapid.T) {
				if err := s.WillNeed(anyTier.Draw(t, "tier"), anyPage.Draw(t, "page")); err != nil {
					t.Fatal(err)
				}
			},
			"delete": func(t *rapid.T) {
				page := anyPage.Draw(t, "page")
				if check(t, page, s.Delete(ctx, page)) {
					delete(now, page)
				}
			},
			"resize": func(t *rapid.T) {
				tier, n := anyTier.Draw(t, "tier"), rapid.IntRange(1, 9).Draw(t, "frames")
				if err := s.Resize(ctx, tier, pager.Size{Frames: n}); err != nil {
					t.Fatal(err)
				}
				sizes[tier] = n
			},
			"checkpoint": func(t *rapid.T) {
				if _, err := s.Checkpoint(ctx, []byte(fmt.Sprint(version))); err != nil {
					t.Fatal(err)
				}
				last = copyOf(now)
			},
			"crash": func(t *rapid.T) {
				left := fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
				s.close(t)
				fs = left
				s = start()
				now = copyOf(last)
			},
			"": func(t *rapid.T) {
				if got := len(s.Pages()); got != len(now) {
					t.Fatalf("%d pages, want %d", got, len(now))
				}
				b := make([]byte, pageSize)
				for page, version := range now {
					if err := s.Read(ctx, page, 0, b); err != nil {
						t.Fatal(err)
					}
					if got, err := versionOf(page, b); err != nil || got != version {
						t.Fatalf("page %d has version %d, want %d: %v", page, got, version, err)
					}
				}
			},
		})
	})
}

// TestResizeKeepsTheHottest: a tier with fewer frames keeps the pages that were used last, a tier
// without frames takes none until it has some, and what cannot be is refused.
func TestResizeKeepsTheHottest(t *testing.T) {
	ctx := t.Context()
	s := open(t, tierstest.NewMem(0), frames(12), frames(0))
	defer s.close(t)
	const pages = 12
	used := map[uint64]int64{}
	for page := range uint64(pages) {
		if err := s.Create(ctx, page, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(ctx, page, 0, stamp(page, page+1)); err != nil {
			t.Fatal(err)
		}
		used[page] = int64(page * 5 % pages) // another order than the frames have
	}
	h, err := s.Pin(ctx, 3, 0, pager.ForReading)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resize(ctx, 0, pager.Size{Frames: 5}); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("resize with a pinned page: %v, want ErrUnavailable", err)
	}
	h.Unpin()
	for _, bad := range []pager.Size{{}, {Frames: -1}, {Frames: 4, Low: 2, High: 1}, {Frames: 4, Low: 4, High: 4}} {
		if err := s.Resize(ctx, 0, bad); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("resize to %+v: %v, want ErrInvalid", bad, err)
		}
	}
	if _, err := s.Pin(ctx, 3, 1, pager.ForReading); !errors.Is(err, tiers.ErrInvalid) {
		t.Errorf("pin in a tier without frames: %v, want ErrInvalid", err)
	}
	for _, size := range []struct{ gpu, cpu, inGPU, inCPU int }{
		{gpu: 7, cpu: 0, inGPU: 6}, // one is kept free
		{gpu: 5, cpu: 4, inGPU: 4, inCPU: 2},
		{gpu: 9, cpu: 0, inGPU: 4},
	} {
		if err := s.Resize(ctx, 1, pager.Size{Frames: size.cpu}); err != nil {
			t.Fatal(err)
		}
		if err := s.Resize(ctx, 0, pager.Size{
			Frames: size.gpu, High: 1, Used: func(page uint64) int64 { return used[page] },
		}); err != nil {
			t.Fatal(err)
		}
		places := make([]pager.Place, pages)
		s.Places(0, places)
		count := map[int]int{}
		for page, p := range places {
			count[p.Tier]++
			if hot := used[uint64(page)] >= int64(pages-size.inGPU); hot != (p.Tier == 0) {
				t.Errorf("%+v: page %d, used at %d, is in tier %d", size, page, used[uint64(page)], p.Tier)
			}
		}
		if count[0] != size.inGPU || count[1] != size.inCPU {
			t.Errorf("%+v: %v pages by tier", size, count)
		}
	}
	for page := range uint64(pages) {
		b := make([]byte, pageSize)
		if err := s.Read(ctx, page, 0, b); err != nil {
			t.Fatal(err)
		}
		if got, err := versionOf(page, b); err != nil || got != page+1 {
			t.Errorf("page %d has version %d: %v", page, got, err)
		}
	}
}

// tester is what the helpers need of a test, which rapid's has as well.
type tester interface {
	Helper()
	Fatal(args ...any)
	Error(args ...any)
}

// TestEpochsAreConsistent has writers change pairs of pages together while checkpoints run and a
// few frames make pages move all the time. Every checkpoint holds both pages of a pair at one
// version, and no older one than was finished before it began.
func TestEpochsAreConsistent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fs := tierstest.NewMem(0)
	s := open(t, fs, frames(8), frames(9))
	const pairs = 12
	for page := range uint64(2 * pairs) {
		if err := s.Create(ctx, page, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Checkpoint(ctx, nil); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	finished := [pairs]uint64{}
	// gate is held by whoever writes: where the writers leave no moment without a pin, as on a busy
	// machine, a checkpoint makes one.
	var gate sync.RWMutex
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for n := uint64(1); ctx.Err() == nil; n++ {
				pair := rng.Uint64N(pairs/3)*3 + uint64(w) // Each pair has one writer.
				gate.RLock()
				err := writePair(ctx, s, pair, n, rng.IntN(2))
				gate.RUnlock()
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				finished[pair] = n
				mu.Unlock()
				<-time.After(200 * time.Microsecond) // A checkpoint needs a moment without pins.
			}
		})
	}
	checkpoints, refused := 0, 0
	for checkpoints < 64 && !t.Failed() {
		mu.Lock()
		least := finished
		mu.Unlock()
		_, err := s.Checkpoint(ctx, fmt.Append(nil, checkpoints))
		if errors.Is(err, tiers.ErrUnavailable) {
			if refused++; refused%16 != 0 {
				continue
			}
			gate.Lock()
			_, err = s.Checkpoint(ctx, fmt.Append(nil, checkpoints))
			gate.Unlock()
		}
		if err != nil {
			t.Error(err)
			break
		}
		checkpoints++
		if checkpoints%8 == 0 {
			checkPairs(t, fs.Crash(0, rand.New(rand.NewPCG(1, 1))), least[:], fmt.Sprint(checkpoints-1))
		}
	}
	cancel()
	wg.Wait()
	s.close(t)
	t.Logf("%d checkpoints, %d refused for a pin", checkpoints, refused)
}

// heldStore is a store that holds puts back while hold is not nil, until it is closed.
type heldStore struct {
	tiers.Store
	hold atomic.Pointer[chan struct{}]
}

func (h *heldStore) Put(ctx context.Context, tier int, page uint64, b []byte, kind tiers.Kind) error {
	if hold := h.hold.Load(); hold != nil {
		<-*hold
	}
	return h.Store.Put(ctx, tier, page, b, kind)
}

// TestCheckpointAndMoveDoNotWaitForEachOther: a page that the checkpoint has to save is on its way
// to a tier whose only frame holds what was written since, and so may not leave before the
// checkpoint is over.
func TestCheckpointAndMoveDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the bubble's clock
		defer cancel()
		s := open(t, tierstest.NewMem(0), frames(1))
		store := &heldStore{Store: s.store}
		p, err := pager.Open(pager.Options{Memory: []pager.Memory{frames(1), frames(5)}, Store: store})
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		s.Pager = p
		defer s.close(t)
		pin := func(page uint64, tier int, access pager.Access) pager.Pin {
			h, err := p.Pin(ctx, page, tier, access)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		checkpoint := func() {
			if _, err := p.Checkpoint(ctx, nil); err != nil {
				t.Error(err)
			}
		}
		const moved, written = 4, 5 // The four savers of a checkpoint are held at the pages before them.
		for page := range uint64(written + 1) {
			if err := p.Create(ctx, page, min(1, int(written-page))); err != nil {
				t.Fatal(err)
			}
		}
		checkpoint()
		for page := range uint64(moved + 1) {
			pin(page, 1, pager.ForWriting).Unpin()
		}
		var stay []pager.Pin // Nobody's way out leads through the frames of these.
		for page := range uint64(moved) {
			stay = append(stay, pin(page, 1, pager.ForReading))
		}
		hold := make(chan struct{})
		store.hold.Store(&hold)
		var all sync.WaitGroup
		all.Go(checkpoint)
		synctest.Wait()
		pin(written, 0, pager.ForWriting).Unpin()
		all.Go(func() {
			h, err := p.Pin(ctx, moved, 0, pager.ForReading)
			if err != nil {
				t.Error(err)
				return
			}
			h.Unpin()
		})
		pass(time.Second) // The pin waits for its frame.
		store.hold.Store(nil)
		close(hold)
		all.Wait()
		pager.UnpinAll(stay)
	})
}

// pass advances the clock of a synctest bubble, and waits for the background work that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// writePair writes one version into both pages of a pair while both are pinned.
func writePair(ctx context.Context, s stack, pair, version uint64, tier int) error {
	var pins [2]pager.Pin
	for i := range pins {
		page := pair*2 + uint64(i)
		h, err := s.Pin(ctx, page, tier, pager.ForWriting)
		if err != nil {
			if i == 1 {
				pins[0].Unpin()
			}
			return err
		}
		pins[i] = h
	}
	defer pins[0].Unpin()
	defer pins[1].Unpin()
	for i := range pins {
		page := pair*2 + uint64(i)
		if err := s.Write(ctx, page, 0, stamp(page, version)); err != nil {
			return err
		}
	}
	return nil
}

// checkPairs opens what a power loss left and compares the pages of every pair.
func checkPairs(t *testing.T, fs vfs.FS, least []uint64, note string) {
	t.Helper()
	s := open(t, fs, frames(4))
	defer s.close(t)
	if string(s.Note()) != note {
		t.Errorf("note %q, want %q", s.Note(), note)
	}
	b := make([]byte, pageSize)
	for pair := range uint64(len(least)) {
		var versions [2]uint64
		for i := range versions {
			page := pair*2 + uint64(i)
			if err := s.Read(context.Background(), page, 0, b); err != nil {
				t.Fatal(err)
			}
			var err error
			if versions[i], err = versionOf(page, b); err != nil {
				t.Error(err)
			}
		}
		if versions[0] != versions[1] || versions[0] < least[pair] {
			t.Errorf("pair %d has versions %v, want one from %d on", pair, versions, least[pair])
		}
	}
}

func TestPins(t *testing.T) { synctest.Test(t, testPins) }

func testPins(t *testing.T) {
	ctx := t.Context()
	s := open(t, tierstest.NewMem(0), frames(2), frames(2))
	for page := range uint64(4) {
		if err := s.Create(ctx, page, 1); err != nil {
			t.Fatal(err)
		}
	}
	a, err := s.Pin(ctx, 0, 0, pager.ForReading)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pin(ctx, 0, 1, pager.ForReading); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("pin in another tier: %v, want ErrUnavailable", err)
	}
	if err := s.DoneWith(ctx, 0, 0); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Pin(ctx, 0, 0, pager.ForReading); err != nil || again.Frame() != a.Frame() {
		t.Errorf("a pinned page was moved: %v", err)
	} else {
		again.Unpin()
	}
	if n := s.Stats().Memory[0].Out; n != 0 {
		t.Errorf("%d pages left the tier, and the only one there is pinned", n)
	}
	if err := s.Delete(ctx, 0); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("delete a pinned page: %v, want ErrUnavailable", err)
	}
	b, err := s.Pin(ctx, 1, 0, pager.ForWriting)
	if err != nil {
		t.Fatal(err)
	}
	if a.Frame() == b.Frame() {
		t.Error("two pages are pinned in one frame")
	}
	if _, err := s.Checkpoint(ctx, nil); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("checkpoint with a pin for writing: %v, want ErrUnavailable", err)
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if _, err := s.Pin(short, 2, 0, pager.ForReading); !errors.Is(err, context.DeadlineExceeded) ||
		!errors.Is(err, tiers.ErrFull) {
		t.Errorf("pin where all frames are pinned: %v, want ErrFull at the deadline", err)
	}
	go func() {
		synctest.Wait() // The pin below waits for a frame.
		b.Unpin()
	}()
	c, err := s.Pin(ctx, 2, 0, pager.ForReading)
	if err != nil {
		t.Fatalf("a frame came free: %v", err)
	}
	c.Unpin()
	if err := s.Close(); !errors.Is(err, tiers.ErrLeak) {
		t.Errorf("close with a pin: %v, want ErrLeak", err)
	}
	if _, err := s.Pin(ctx, 2, 0, pager.ForReading); !errors.Is(err, tiers.ErrClosed) {
		t.Errorf("pin after close: %v, want ErrClosed", err)
	}
	if err := s.store.Close(); err != nil {
		t.Error(err)
	}
}

// TestBreaker breaks the first tier of the store: evictions go to the second one, the first is left
// alone, and it is taken back when it works again.
func TestBreaker(t *testing.T) { synctest.Test(t, testBreaker) }

func testBreaker(t *testing.T) {
	ctx := t.Context()
	var mu sync.Mutex
	broken, calls := false, 0
	fs := &tierstest.Inject{FS: tierstest.NewMem(0), Before: func(op tierstest.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if broken && op.Kind == tierstest.OpWrite && filepath.Dir(op.Name) == "/nvme" {
			calls++
			return syscall.EIO
		}
		return nil
	}}
	s := open(t, fs, frames(4))
	defer s.close(t)
	set := func(b bool) {
		mu.Lock()
		broken = b
		mu.Unlock()
	}
	write := func(from, to uint64) {
		t.Helper()
		for page := from; page < to; page++ {
			if err := s.Create(ctx, page, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.Write(ctx, page, 0, stamp(page, 7)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 8)
	set(true)
	write(8, 60)
	mu.Lock()
	if calls < 3 || calls > 20 {
		t.Errorf("the broken tier was tried %d times for about 50 pages, want a few", calls)
	}
	mu.Unlock()
	set(false)
	pass(50 * time.Millisecond)
	write(60, 80)
	if _, err := s.Checkpoint(ctx, nil); err != nil {
		t.Fatal(err)
	}
	st := s.store.Stats()
	if st.Tiers[0].Pages < 10 || st.Tiers[1].Pages < 30 {
		t.Errorf("%d and %d pages, want some in both tiers", st.Tiers[0].Pages, st.Tiers[1].Pages)
	}
	s.holds(t, 80, 7)
}

func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		top := frames(32)
		top.Low, top.High, top.MaxIdle = 4, 8, 150*time.Millisecond
		s := open(t, tierstest.NewMem(0), top, frames(64))
		defer s.close(t)
		for page := range uint64(31) {
			if err := s.Create(ctx, page, 0); err != nil {
				t.Fatal(err)
			}
		}
		pass(20 * time.Millisecond)
		// Room is made up to the high watermark once, at the latest when all pages are there; later
		// pages take some of it.
		if m := s.Stats().Memory[0]; m.Free < top.Low || m.Free > top.High {
			t.Errorf("%d frames free, want between the watermarks %d and %d", m.Free, top.Low, top.High)
		}
		pass(300 * time.Millisecond)
		if m := s.Stats().Memory[0]; m.Free != 32 || m.Idle == 0 {
			t.Errorf("%d frames free and %d pages gone for their age, want all", m.Free, m.Idle)
		}
		if err := s.WillNeed(0, 3, 5, 7); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Millisecond)
		if n := s.Stats().Memory[0].Prefetched; n != 3 {
			t.Errorf("%d pages prefetched, want 3", n)
		}
	})
}

// TestPinDoesNotAllocate holds pins of resident pages and steady migration to no allocation.
func TestPinDoesNotAllocate(t *testing.T) {
	ctx := context.Background()
	s := open(t, tierstest.NewMem(0), frames(1), frames(4))
	defer s.close(t)
	for page := range uint64(2) {
		if err := s.Create(ctx, page, 1); err != nil {
			t.Fatal(err)
		}
	}
	pin := func(page uint64, tier int) {
		h, err := s.Pin(ctx, page, tier, pager.ForReading)
		if err != nil {
			t.Fatal(err)
		}
		h.Unpin()
	}
	pin(0, 0)
	if n := testing.AllocsPerRun(1000, func() { pin(0, 0) }); n != 0 {
		t.Errorf("a pin of a resident page makes %v allocations", n)
	}
	page := uint64(0)
	if n := testing.AllocsPerRun(1000, func() { page ^= 1; pin(page, 0) }); n > 0.1 && !raceEnabled {
		t.Errorf("a pin that moves two pages makes %v allocations", n)
	}
}

func BenchmarkPin(b *testing.B) {
	ctx := context.Background()
	const pages = 4096
	s := open(b, tierstest.NewMem(0), frames(pages+512))
	defer s.close(b)
	for page := range uint64(pages) {
		if err := s.Create(ctx, page, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		page := rand.Uint64()
		for pb.Next() {
			h, err := s.Pin(ctx, page%pages, 0, pager.ForReading)
			if err != nil {
				b.Error(err)
				return
			}
			h.Unpin()
			page += 17
		}
	})
}

func BenchmarkMigrate(b *testing.B) {
	ctx := context.Background()
	s := open(b, tierstest.NewMem(0), frames(64), frames(1024))
	defer s.close(b)
	for page := range uint64(512) {
		if err := s.Create(ctx, page, 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	page := uint64(0)
	for b.Loop() {
		h, err := s.Pin(ctx, page%512, 0, pager.ForReading)
		if err != nil {
			b.Fatal(err)
		}
		h.Unpin()
		page++
	}
}

// TestWriteDuringCheckpoint writes a page after a checkpoint has marked it and before it is put,
// and tries to push it out to the store then: the epoch has the page as it was when Checkpoint was
// called.
func TestWriteDuringCheckpoint(t *testing.T) {
	ctx := context.Background()
	mem := tierstest.NewMem(0)
	entered, leave := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool // The first page write after it is set waits, and no other.
	fs := &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		if op.Kind == tierstest.OpWrite && filepath.Ext(op.Name) == ".seg" && armed.CompareAndSwap(true, false) {
			close(entered)
			<-leave
		}
		return nil
	}}
	s := open(t, fs, frames(6))
	s.create(t, 4, 0, 1)
	if _, err := s.Checkpoint(ctx, nil); err != nil { // Makes the segment, so that the next write is a page's.
		t.Fatal(err)
	}
	for page := range uint64(4) {
		if err := s.Write(ctx, page, 0, stamp(page, 2)); err != nil {
			t.Fatal(err)
		}
	}
	armed.Store(true)
	done := make(chan error)
	go func() {
		_, err := s.Checkpoint(ctx, []byte("two"))
		done <- err
	}()
	<-entered // Page 0 is being put.
	if err := s.Write(ctx, 3, 0, stamp(3, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.DoneWith(ctx, 0, 3); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expect := func(s stack, want uint64) {
		t.Helper()
		b := make([]byte, pageSize)
		if err := s.Read(ctx, 3, 0, b); err != nil {
			t.Fatal(err)
		}
		if got, err := versionOf(3, b); err != nil || got != want {
			t.Errorf("page 3 has version %d, want %d: %v", got, want, err)
		}
	}
	expect(s, 3)
	left := mem.Crash(0, rand.New(rand.NewPCG(1, 1)))
	s.close(t)
	after := open(t, left, frames(6))
	defer after.close(t)
	if string(after.Note()) != "two" {
		t.Errorf("note %q, want %q", after.Note(), "two")
	}
	expect(after, 2)
}

// TestPinInPlace pins pages of two tiers and of the store together: those in memory stay where they
// are and are not moved while they are held, the others come into the last tier.
func TestPinInPlace(t *testing.T) {
	ctx := t.Context()
	s := open(t, tierstest.NewMem(0), frames(2), frames(3))
	defer s.close(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for page, tier := range []int{0, 1, 1} {
		ok(s.Create(ctx, uint64(page), tier))
	}
	ok(s.DoneWith(ctx, 1, 2)) // into the store
	before := s.Stats()
	pins, err := s.PinInPlace(ctx, []uint64{2, 1, 0}, pager.ForWriting, nil)
	ok(err)
	for i, want := range []int{1, 1, 0} {
		if pins[i].Tier() != want {
			t.Errorf("page %d is pinned in tier %d, want %d", 2-i, pins[i].Tier(), want)
		}
	}
	after := s.Stats()
	if in := after.Memory[0].In - before.Memory[0].In; in != 0 {
		t.Errorf("%d pages came into the first tier", in)
	}
	if in := after.Memory[1].In - before.Memory[1].In; in != 1 {
		t.Errorf("%d pages came into the last tier, want the page of the store", in)
	}
	ok(errors.Join(s.DoneWith(ctx, 0, 0, 1, 2), s.DoneWith(ctx, 1, 0, 1, 2)))
	if _, err := s.Pin(ctx, 1, 0, pager.ForReading); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("a page that is held in place is brought elsewhere: %v", err)
	}
	for i, want := range []int{1, 1, 0} {
		ok(s.Write(ctx, uint64(2-i), 0, stamp(uint64(2-i), 1)))
		if pins[i].Tier() != want {
			t.Errorf("page %d has moved to tier %d", 2-i, pins[i].Tier())
		}
	}
	pager.UnpinAll(pins)
	if pins, err := s.PinInPlace(ctx, []uint64{0, 1, 2, 3}, pager.ForReading, nil); !errors.Is(err, tiers.ErrInvalid) ||
		len(pins) > 0 {
		t.Errorf("more pages than frames in the last tier: %v, %d pins", err, len(pins))
	}
	if pins, err := s.PinInPlace(ctx, []uint64{0, 7}, pager.ForReading, nil); !errors.Is(err, tiers.ErrNotFound) ||
		len(pins) > 0 {
		t.Errorf("a page that there is not: %v, %d pins", err, len(pins))
	}
}
