package pagestore_test

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// scale returns the size of a campaign: the number in an environment variable, or ci. make crash
// sets the full sizes.
func scale(t testing.TB, name string, ci int) int {
	s := os.Getenv(name)
	if s == "" {
		return ci
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a count", name, s)
	}
	return n
}

// script is a random workload on a store, with what a crash may leave at every moment of it.
type script struct {
	s   *pagestore.Store
	rng *rand.Rand
	now world
	// last is the world of the last commit.
	last world
	// may are the worlds that a crash may bring back: the last one that was acknowledged, and the
	// one that a running commit is making.
	may     []world
	version uint64
}

func (sc *script) step() error {
	ctx := context.Background()
	page := sc.rng.Uint64N(10)
	switch sc.rng.IntN(11) {
	case 10:
		if sc.rng.IntN(3) == 0 {
			if err := sc.s.Rollback(ctx); err != nil {
				return err
			}
			sc.now = sc.last.clone()
		}
	case 0, 1, 2, 3:
		sc.version++
		if err := put(sc.s, sc.rng.IntN(3), page, sc.version); err != nil {
			return err
		}
		sc.now.pages[page] = sc.version
	case 4:
		if _, ok := sc.now.pages[page]; !ok {
			return nil
		}
		if err := sc.s.Delete(ctx, page); err != nil {
			return err
		}
		delete(sc.now.pages, page)
	case 5:
		if _, ok := sc.now.pages[page]; ok {
			return sc.s.Move(ctx, page, sc.rng.IntN(3))
		}
	case 6:
		return sc.s.Settle(ctx)
	case 7:
		return sc.s.Sync(ctx)
	default:
		return sc.commit()
	}
	return nil
}

// commit makes the present world the one that survives.
func (sc *script) commit() error {
	sc.version++
	next := sc.now.clone()
	next.note = fmt.Sprint("note ", sc.version)
	sc.may = append(sc.may, next)
	if _, err := sc.s.Commit(context.Background(), []byte(next.note)); err != nil {
		return err
	}
	sc.now.note, sc.last = next.note, next
	sc.may = []world{next}
	return nil
}

// anyOf opens a file system and says which of some worlds is in it.
func anyOf(fs vfs.FS, may []world) (_ world, err error) {
	s, err := pagestore.Open(memOptions(fs))
	if err != nil {
		return world{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var errs []error
	for _, w := range may {
		err := w.compare(s)
		if err == nil {
			r, err := s.Verify(context.Background(), 0)
			if err == nil && len(r.Problems) > 0 {
				err = fmt.Errorf("verify after recovery: %w", errors.Join(r.Problems...))
			}
			return w, err
		}
		errs = append(errs, err)
	}
	return world{}, fmt.Errorf("the store holds none of %d worlds: %w", len(may), errors.Join(errs...))
}

// TestCrashAfterEveryCall cuts the power after every mutating call of random workloads, keeping
// none, half and all of the unsynced blocks, cuts the recovery of each once more, and checks what
// is left. See scale for the full campaign.
func TestCrashAfterEveryCall(t *testing.T) {
	runs := scale(t, "EXOSWARM_CRASHES", 1)
	crashes, rebuilt := 0, 0
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := tierstest.NewMem(0)
		sc := &script{rng: rng, now: newWorld(), last: newWorld()}
		sc.may = []world{sc.now.clone()}
		inject := &tierstest.Inject{FS: mem}
		var mu sync.Mutex // Batches call from several goroutines.
		inject.After = func(op tierstest.Op) {
			mu.Lock()
			defer mu.Unlock()
			if !op.Kind.Mutates() || t.Failed() {
				return
			}
			for _, keep := range []float64{0, 0.5, 1} {
				crashes++
				left := mem.Crash(keep, rng)
				again := left
				// Recovery is cut at a random call of its own.
				if n := rng.IntN(40); n < 20 {
					again = crashRecovery(left, n, keep, rng)
				}
				// Every third time the index is lost as well, and comes back from the records.
				if crashes%3 == 0 {
					rebuilt++
					if err := dropTables(again); err != nil {
						t.Error(err)
					}
				}
				w, err := anyOf(again, sc.may)
				if err != nil {
					t.Errorf("seed %d, crash %d after %v %s at %d, keeping %v: %v", seed, crashes, op.Kind, op.Name,
						op.Off, keep, err)
					return
				}
				if crashes%16 == 0 {
					if err := goesOn(again, w, rng); err != nil {
						t.Errorf("seed %d, crash %d after %v %s: a recovered store: %v", seed, crashes, op.Kind,
							op.Name, err)
					}
				}
			}
		}
		s, err := pagestore.Open(memOptions(inject))
		if err != nil {
			t.Fatal(err)
		}
		sc.s = s
		for range testkit.Of(400, 120) {
			if err := sc.step(); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				break
			}
		}
		inject.After = nil
		if err := sc.now.compare(s); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d crashes, %d with the index rebuilt, 0 acknowledged bytes lost", crashes, rebuilt)
}

func dropTables(fs vfs.FS) error {
	b := tierstest.Backend{FS: fs}
	for _, dir := range []string{"/nvme", "/ssd", "/hdd"} {
		names, err := b.List(dir)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		for _, name := range names {
			err = errors.Join(err, b.Remove(dir+"/"+name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// crashRecovery opens a store and cuts the power after the nth mutating call of that.
func crashRecovery(fs *tierstest.Mem, n int, keep float64, rng *rand.Rand) *tierstest.Mem {
	left := fs
	calls := 0
	inject := &tierstest.Inject{FS: fs, After: func(op tierstest.Op) {
		if op.Kind.Mutates() {
			if calls == n {
				left = fs.Crash(keep, rng)
			}
			calls++
		}
	}}
	s, err := pagestore.Open(memOptions(inject))
	if err == nil {
		_ = s.Close()
	}
	return left
}

// goesOn works with a recovered store and opens it once more.
func goesOn(fs *tierstest.Mem, w world, rng *rand.Rand) error {
	s, err := pagestore.Open(memOptions(fs))
	if err != nil {
		return err
	}
	sc := &script{s: s, rng: rng, now: w.clone(), last: w, may: []world{w}, version: 1 << 40}
	for range 20 {
		if err := sc.step(); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	err = errors.Join(sc.now.compare(s), checkAccounting(s, fs), s.Close())
	if err != nil {
		return err
	}
	_, err = anyOf(fs, sc.may)
	return err
}

// TestFlip flips single bits of segments, headers and index: no read ever returns other bytes,
// every flip in bytes that mean something is noticed, the index loses nothing, and at most one page
// is lost. See scale for the full campaign.
func TestFlip(t *testing.T) {
	flips := scale(t, "EXOSWARM_FLIPS", testkit.Of(2000, 500))
	rng := rand.New(rand.NewPCG(9, 9))
	mem := tierstest.NewMem(0)
	s, err := pagestore.Open(memOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	sc := &script{s: s, rng: rng, now: newWorld(), last: newWorld()}
	for range 100 {
		if err := sc.step(); err != nil {
			t.Fatal(err)
		}
	}
	// The last transaction of the table must be one that counts. A commit also removes from the
	// table what the commit before deleted, which nobody misses: flips in such a transaction, were
	// it the last, would rightly go unnoticed.
	for range 2 {
		if err := sc.commit(); err != nil {
			t.Fatal(err)
		}
	}
	sc.version++
	if err := put(s, 0, 0, sc.version); err != nil {
		t.Fatal(err)
	}
	sc.now.pages[0] = sc.version
	if err := sc.commit(); err != nil {
		t.Fatal(err)
	}
	w := sc.now
	live := map[string][][2]int64{} // the ranges of bytes of each segment that hold a page
	for page := range w.pages {
		in, err := s.Stat(page)
		if err != nil {
			t.Fatal(err)
		}
		live[in.File] = append(live[in.File], [2]int64{in.Offset, in.Offset + in.Bytes})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	type target struct {
		name string
		bits int64
	}
	var targets []target
	for _, dir := range []string{"/nvme", "/ssd", "/hdd"} {
		names, err := mem.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if b := slurp(t, mem, dir+"/"+name); len(b) > 0 {
				targets = append(targets, target{dir + "/" + name, int64(len(b)) * 8})
			}
		}
	}
	noticed, harmless := 0, 0
	for i := range flips {
		to := targets[rng.IntN(len(targets))]
		bit := rng.Int64N(to.bits)
		if rng.IntN(4) == 0 {
			bit = rng.Int64N(min(to.bits, 4*vfs.BlockSize*8)) // Headers and the superblock are small.
		}
		left := mem.Crash(1, rng)
		if err := left.FlipBit(to.name, bit); err != nil {
			t.Fatal(err)
		}
		saw, err := checkFlipped(left, w)
		if err != nil {
			t.Fatalf("flip %d: bit %d of %s: %v", i, bit, to.name, err)
		}
		if saw {
			noticed++
			continue
		}
		harmless++
		at := bit / 8
		for _, r := range live[to.name] {
			if at >= r[0] && at < r[1] {
				t.Fatalf("flip %d: nobody noticed bit %d of %s, which belongs to a page", i, bit, to.name)
			}
		}
		if strings.Contains(to.name, ".super") || strings.HasSuffix(to.name, ".table") ||
			(strings.HasSuffix(to.name, ".seg") && at < vfs.BlockSize) {
			t.Fatalf("flip %d: nobody noticed bit %d of %s", i, bit, to.name)
		}
	}
	t.Logf("%d flips: %d noticed, %d in unused bytes, 0 served", flips, noticed, harmless)
	if noticed == 0 || harmless == flips {
		t.Error("no flip was noticed")
	}
}

// checkFlipped opens a damaged store, reads everything and reports whether the damage was noticed.
func checkFlipped(fs vfs.FS, w world) (noticed bool, err error) {
	ctx := context.Background()
	s, err := pagestore.Open(memOptions(fs))
	if err != nil {
		return false, fmt.Errorf("one flip closes the store: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	noticed = s.Stats().Healed
	bad := 0
	got := make([]byte, pageSize)
	for page, version := range w.pages {
		err := s.Get(ctx, page, got)
		switch {
		case err == nil && string(got) != string(content(page, version)):
			return false, fmt.Errorf("page %d was served with other bytes", page)
		case err != nil && !acceptable(err):
			return false, err
		case err != nil:
			bad++
		}
	}
	if string(s.Note()) != w.note || len(s.Pages()) != len(w.pages) {
		return false, fmt.Errorf("note %q and %d pages, want %q and %d", s.Note(), len(s.Pages()), w.note, len(w.pages))
	}
	if bad > 1 {
		return true, fmt.Errorf("one flip lost %d pages", bad)
	}
	r, err := s.Verify(ctx, 0)
	if err != nil {
		return false, err
	}
	if len(r.Bad) != bad {
		return false, fmt.Errorf("verify found %d bad pages, reading found %d", len(r.Bad), bad)
	}
	return noticed || len(r.Problems) > 0, nil
}

// TestFault fails every call of a workload in turn: each Nth call once, or for good on one tier,
// with EIO or ENOSPC. A failed sync loses what it was to make durable, as in Linux. No call returns
// other bytes, what a commit acknowledged is there after a power loss, and once the medium works
// again so does the store.
func TestFault(t *testing.T) {
	testkit.OnlyLong(t)
	seeds := scale(t, "EXOSWARM_FAULTS", 1)
	start := time.Now()
	cases := 0
	for seed := range uint64(seeds) {
		for _, f := range faults {
			for n := 0; ; n++ {
				cases++
				hit, err := runFault(seed, f, n)
				if err != nil {
					t.Fatalf("seed %d, %s at call %d: %v", seed, f.name, n, err)
				}
				if !hit {
					break
				}
			}
		}
	}
	t.Logf("%d faults in %v, 0 acknowledged bytes lost, 0 wrong bytes served", cases,
		time.Since(start).Round(time.Millisecond))
}

// runFault runs one workload with one fault from its nth call on, and reports whether there was
// such a call.
func runFault(seed uint64, f fault, n int) (hit bool, err error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	mem := tierstest.NewMem(0)
	calls, armed := 0, true
	var failedTier string
	var mu sync.Mutex // Batches call from several goroutines.
	inject := &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !armed || !f.applies(op) {
			return nil
		}
		calls++
		switch {
		case calls-1 < n, calls-1 > n && !f.forever:
			return nil
		case calls-1 == n:
			hit = true
			failedTier = tierOf(op.Name)
		case tierOf(op.Name) != failedTier:
			return nil
		}
		if op.Kind == tierstest.OpSync {
			mem.DropUnsynced(op.Name)
		}
		return f.err
	}}
	sc := &script{rng: rng, now: newWorld(), last: newWorld()}
	sc.may = []world{sc.now.clone()}
	s, err := pagestore.Open(memOptions(inject))
	if err != nil {
		if !errors.Is(err, f.err) {
			return hit, fmt.Errorf("open: %w", err)
		}
		_, err := anyOf(mem.Crash(0.5, rng), sc.may)
		return hit, err
	}
	sc.s = s
	defer func() { err = errors.Join(err, s.Close()) }()
	for range 60 {
		if err := sc.step(); err != nil {
			if !errors.Is(err, f.err) && !errors.Is(err, tiers.ErrLost) {
				return hit, fmt.Errorf("step: %w", err)
			}
			if err := sc.repair(); err != nil {
				return hit, fmt.Errorf("after %w: %w", f.err, err)
			}
		}
		if err := sc.now.compare(s); err != nil && !errors.Is(err, f.err) {
			return hit, err
		}
	}
	for _, lose := range []bool{false, true} { // The index is lost as well.
		left := mem.Crash(0, rng)
		if lose {
			if err := dropTables(left); err != nil {
				return hit, err
			}
		}
		if _, err := anyOf(left, sc.may); err != nil {
			return hit, fmt.Errorf("power loss, index lost %v: %w", lose, err)
		}
	}
	armed = false // The medium works again.
	if err := sc.repair(); err != nil {
		return hit, err
	}
	if err := sc.commit(); err != nil {
		return hit, fmt.Errorf("the medium is well again: %w", err)
	}
	if err := sc.now.compare(s); err != nil {
		return hit, err
	}
	_, err = anyOf(mem.Crash(0, rng), sc.may)
	return hit, err
}

// repair does what a caller does about lost pages: it writes them again.
func (sc *script) repair() error {
	for _, page := range sc.s.Lost() {
		version, ok := sc.now.pages[page]
		if !ok {
			return fmt.Errorf("page %d is lost and was deleted", page)
		}
		tried := 0
		for tier := range 3 {
			if err := put(sc.s, tier, page, version); err != nil {
				tried++
			} else {
				break
			}
		}
		if tried == 3 {
			return errors.New("no tier takes a page")
		}
	}
	return nil
}
