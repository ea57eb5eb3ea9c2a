package pagestore

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestDefaults: an unset field gets its documented default, one that is set stays as it is, and the
// caller's options stay as they are.
func TestDefaults(t *testing.T) {
	unset := Options{Tiers: []Tier{{Dir: "/a/../b/", Capacity: 1 << 30}}}
	want := Options{FS: vfs.OS{}, Tables: index.Badger{}, PageSize: 2 << 20, Tiers: []Tier{{
		Name: "/b", Dir: "/b", Capacity: 1 << 30, SegmentBytes: 17 << 20, DiskReserve: 64 << 20,
	}}}
	if got := unset.withDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults are\n%+v, want\n%+v", got, want)
	}
	if unset.Tiers[0].Dir != "/a/../b/" {
		t.Error("the caller's tiers were changed")
	}
	mem := tierstest.NewMem(0)
	set := Options{
		FS: mem, Tables: tierstest.Backend{FS: mem}, PageSize: vfs.BlockSize, Key: make([]byte, 16),
		New: true, Tiers: []Tier{
			{
				Name: "fast", Dir: "/a", Capacity: 1 << 30, SegmentBytes: 1, DiskReserve: 1,
				Codec: Codec{ID: LZ4},
			},
			{Name: "slow", Dir: "/b", Capacity: 1 << 30, SegmentBytes: -1, DiskReserve: 2, Quota: NewQuota(5)},
		},
	}
	if got := set.withDefaults(); !reflect.DeepEqual(got, set) {
		t.Errorf("options are changed to\n%+v, from\n%+v", got, set)
	}
	for size, want := range map[int]int{-1: -1, 0: 2 << 20, 1: 1} {
		if got := (Options{PageSize: size}).withDefaults().PageSize; got != want {
			t.Errorf("a page size of %d becomes %d, want %d", size, got, want)
		}
	}
	for reserve, want := range map[int64]int64{-2: 0, -1: 0, 0: 64 << 20, 1: 1, 2: 2} {
		if got := (Options{Tiers: []Tier{{DiskReserve: reserve}}}).withDefaults().Tiers[0].DiskReserve; got != want {
			t.Errorf("a reserve of %d becomes %d, want %d", reserve, got, want)
		}
	}
	if got := (Options{Tiers: make([]Tier, 1)}).withDefaults().Tiers[0]; got.Dir != "" || got.Name != "" {
		t.Errorf("a tier without a directory is called %q in %q", got.Name, got.Dir)
	}
}

// TestSegmentBytes: a segment is a 64th of the capacity within its bounds, and holds 8 pages where
// the capacity has room for them.
func TestSegmentBytes(t *testing.T) {
	const block = vfs.BlockSize
	for _, c := range []struct {
		pageSize             int
		capacity, set, bytes int64
	}{
		{block, 1 << 30, 0, 16 << 20},
		{block, 2 << 30, 0, 32 << 20},
		{block, 64<<30 - 64, 0, 1<<30 - 1},
		{block, 65 << 30, 0, 1 << 30},
		{block, 1 << 40, 0, 1 << 30},
		{2 << 20, 1 << 30, 0, 17 << 20},
		{2 << 20, 10 << 20, 0, 16 << 20}, // no room for 8 pages
		{4 << 20, 20 << 20, 0, 20 << 20},
		{4 << 20, 1 << 30, 0, 33 << 20},
		{MaxPageSize, 1 << 40, 0, 1025 << 20},
		{block, 1 << 30, 1, 1},
		{block, 1 << 30, -1, -1},
		{block, 1 << 30, 12345, 12345},
	} {
		o := Options{PageSize: c.pageSize, Tiers: []Tier{{Dir: "/a", Capacity: c.capacity, SegmentBytes: c.set}}}
		if got := o.withDefaults().Tiers[0].SegmentBytes; got != c.bytes {
			t.Errorf("pages of %d, capacity %d, segments of %d: %d bytes, want %d", c.pageSize, c.capacity, c.set, got,
				c.bytes)
		}
	}
}

// TestMinCapacity: the least capacity is a segment of two records, which are its header, the
// records and its end, and the index of one page and one mark. For pages of 2 MiB that is less than
// 8 MiB.
func TestMinCapacity(t *testing.T) {
	tables := tierstest.Backend{FS: tierstest.NewMem(0)}
	for size, blocks := range map[int]int64{vfs.BlockSize: 6, 4 * vfs.BlockSize: 12, 0: 1028} {
		if got, want := (Options{PageSize: size, Tables: tables}).MinCapacity(),
			blocks*vfs.BlockSize+index.Reserve(tables, 1, 1); got != want {
			t.Errorf("pages of %d: %d bytes, want %d", size, got, want)
		}
	}
	if got := (Options{}).MinCapacity(); got > 8<<20 {
		t.Errorf("%d bytes, want at most 8 MiB", got)
	}
	if one, none, two := index.Reserve(tables, 1, 1), index.Reserve(tables, 0, 1), index.Reserve(tables, 2,
		1); one <= none || two <= one {
		t.Errorf("the index of 0, 1 and 2 pages takes %d, %d and %d bytes: the comparison proves nothing", none, one,
			two)
	}
}

// TestComplaints: validate names every fault of the options with its place and its bound, all of
// them at once.
func TestComplaints(t *testing.T) {
	mem := tierstest.NewMem(0)
	good := func() Options {
		return Options{FS: mem, Tables: tierstest.Backend{FS: mem}, PageSize: vfs.BlockSize, Tiers: []Tier{
			{Name: "a", Dir: "/a", Capacity: 8 << 20}, {Name: "b", Dir: "/b", Capacity: 8 << 20},
		}}.withDefaults()
	}
	least := good().MinCapacity()
	sized := func(n int) func(*Options) { return func(o *Options) { o.PageSize = n } }
	for want, change := range map[string]func(*Options){
		"": func(*Options) {},
		"page size 4095: want a multiple of 4096 up to 134217728":  sized(vfs.BlockSize - 1),
		"page size 4097: want a multiple of 4096 up to 134217728":  sized(vfs.BlockSize + 1),
		"page size -4096: want a multiple of 4096 up to 134217728": sized(-vfs.BlockSize),
		"0 tiers: want 1 to 16":                                    func(o *Options) { o.Tiers = nil },
		"key of 1 bytes: want 16, 24 or 32":                        func(o *Options) { o.Key = make([]byte, 1) },
		"key of 15 bytes: want 16, 24 or 32":                       func(o *Options) { o.Key = make([]byte, 15) },
		"key of 25 bytes: want 16, 24 or 32":                       func(o *Options) { o.Key = make([]byte, 25) },
		"key of 33 bytes: want 16, 24 or 32":                       func(o *Options) { o.Key = make([]byte, 33) },
		"tier 1 has no directory":                                  func(o *Options) { o.Tiers[1].Dir = "" },
		"tier b: segments of -1 bytes":                             func(o *Options) { o.Tiers[1].SegmentBytes = -1 },
		"tiers a and b overlap in /a and /a/c":                     func(o *Options) { o.Tiers[1].Dir = "/a/c" },
		"tiers a and b overlap in /a and /":                        func(o *Options) { o.Tiers[1].Dir = "/" },
		"tiers a and b overlap in /a and /a":                       func(o *Options) { o.Tiers[1].Dir = "/a" },

		"tier b: " + (Codec{ID: 99}).Validate().Error(): func(o *Options) { o.Tiers[1].Codec.ID = 99 },
		"tier a: capacity 1, want at least " + fmt.Sprint(least) + " for pages of 4096": func(o *Options) {
			o.Tiers[0].Capacity = 1
		},
	} {
		o := good()
		change(&o)
		err := o.validate()
		if want == "" {
			if err != nil {
				t.Errorf("good options: %v", err)
			}
			continue
		}
		if !errors.Is(err, tiers.ErrInvalid) || first(err) != want+": "+tiers.ErrInvalid.Error() {
			t.Errorf("%v, want %q", err, want)
		}
	}
	many := good()
	many.PageSize, many.Key, many.Tiers[0].Dir, many.Tiers[1].SegmentBytes = 1, []byte("k"), "", -1
	many.Tiers[1].Capacity = 1
	err := many.validate()
	for _, want := range []string{
		"page size 1:", "key of 1 bytes", "tier 0 has no directory", "segments of -1 bytes",
		"capacity 1,",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 5 {
		t.Errorf("%d complaints of 5 faults:\n%v", n, err)
	}
	sixteen := good()
	sixteen.Tiers = nil
	for i := range MaxTiers {
		sixteen.Tiers = append(sixteen.Tiers, Tier{Name: "t", Dir: "/t" + fmt.Sprint(i), Capacity: least})
	}
	if err := sixteen.validate(); err != nil {
		t.Errorf("%d tiers of the least capacity: %v", MaxTiers, err)
	}
	sixteen.Tiers = append(sixteen.Tiers, Tier{Name: "t", Dir: "/more", Capacity: least})
	if err := sixteen.validate(); err == nil || first(err) != "17 tiers: want 1 to 16: "+tiers.ErrInvalid.Error() {
		t.Errorf("17 tiers: %v", err)
	}
}

func first(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
