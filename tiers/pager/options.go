package pager

import (
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// Options describe a Pager. Open works on a copy.
type Options struct {
	// Memory are the tiers of frames, the fastest first; at least one.
	Memory []Memory
	// Store keeps pages below them and makes checkpoints. Without a store, pages are in memory
	// only, and a full memory refuses new ones. The caller closes the store, after the Pager.
	Store tiers.Store
	// PageSize is the length of every page in bytes; 0 means the Store's.
	PageSize int
	// Kind is how pages are encoded on disk; nil means no shuffle and class 0.
	Kind func(page uint64) tiers.Kind
	// Disks say how pages move between the tiers of the Store, in its order; missing ones are zero
	// Disks.
	Disks []Disk
	// Aging sets what the design calls LRU with aging: every MaxIdle that is 0 becomes the
	// threshold of its place, and every Policy that is nil policy.NewLRU alone.
	Aging bool
	// Breaker says when and for how long the circuit of a failing tier opens.
	Breaker BreakerOptions
	// Batch is the number of pages that move together in the background; 0 means 16, which take a
	// bus of 55 GB/s 0.6 ms with pages of 2 MiB.
	Batch int
	// Staging is the number of staging buffers of one page. It bounds how many pages the processor
	// copies between media at once; 0 means 16.
	Staging int
	// Prefetch bounds the guesses of each tier. With NoPrefetch there are none: pages move up by
	// pins and hints only.
	Prefetch   policy.PredictorOptions
	NoPrefetch bool
}

// AgingThresholds are the ages at which pages move down, from the top tier on: gpu, cpu, nvme and
// ssd of the five tiers of the design.
var AgingThresholds = [...]time.Duration{time.Second, 10 * time.Second, 60 * time.Second, 300 * time.Second}

// Disk says how pages move out of one tier of the Store.
type Disk struct {
	// Name is what errors and statistics call it; empty means "store" and its number.
	Name string
	// MaxIdle is the time after which a page that was not in memory moves to the next tier of the
	// Store, in the background; 0 means never. A page in the tier below that is read again within
	// this time after it left memory moves up.
	MaxIdle time.Duration
}

// Memory is one tier of frames.
type Memory struct {
	// Name is what errors and statistics call it ("gpu").
	Name string
	// Frames is where its pages lie. The Pager is its only user. A tier below the first may have no
	// frames while there is a store, until Resize gives it some.
	Frames tiers.Frames
	// Low and High are watermarks: with fewer than Low frames free, pages are evicted in the
	// background until High are free. 0 means a 32nd and a 16th of the frames, at least 1 and 2
	// where there are 8 or more, and none below.
	Low, High int
	// MaxIdle is the time without a pin after which a page moves down, in the background; 0 means
	// never.
	MaxIdle time.Duration
	// Promote moves pages of the tier below that are in use again and again up into this one, as
	// long as more frames than High are free.
	Promote bool
	// Policy are the experts that choose the page to evict; nil means policy.Experts, the adaptive
	// default. With a single expert the tier follows it alone.
	Policy []policy.New
}

// withDefaults returns a copy with every unset field filled in.
func (o Options) withDefaults() Options {
	o.Memory = append([]Memory(nil), o.Memory...)
	for i := range o.Memory {
		m := &o.Memory[i]
		if m.Name == "" {
			m.Name = fmt.Sprintf("memory%d", i)
		}
		if m.Frames == nil {
			continue
		}
		n := m.Frames.Count()
		if m.Low == 0 && m.High == 0 && n >= 8 {
			m.Low, m.High = max(n/32, 1), max(n/16, 2)
		}
	}
	o.Disks = append([]Disk(nil), o.Disks...)
	if o.Store != nil {
		for i := len(o.Disks); i < o.Store.Tiers(); i++ {
			o.Disks = append(o.Disks, Disk{})
		}
	}
	for i := range o.Disks {
		if o.Disks[i].Name == "" {
			o.Disks[i].Name = fmt.Sprintf("store%d", i)
		}
	}
	if o.Aging {
		o.age()
	}
	if o.Batch == 0 {
		o.Batch = 16
	}
	if o.Staging == 0 {
		o.Staging = 16
	}
	if o.PageSize == 0 && o.Store != nil {
		o.PageSize = o.Store.PageSize()
	}
	if o.Kind == nil {
		o.Kind = func(uint64) tiers.Kind { return tiers.Kind{} }
	}
	o.Breaker = o.Breaker.WithDefaults()
	return o
}

// age sets the design's thresholds, by place from the top down, where none are set.
func (o *Options) age() {
	set := func(place int, d *time.Duration) {
		if *d == 0 && place < len(AgingThresholds) {
			*d = AgingThresholds[place]
		}
	}
	for i := range o.Memory {
		m := &o.Memory[i]
		set(i, &m.MaxIdle)
		if m.Policy == nil {
			m.Policy = []policy.New{func(n int, f func(uint64)) policy.Expert { return policy.NewLRU(n, f) }}
		}
	}
	for i := range o.Disks {
		set(len(o.Memory)+i, &o.Disks[i].MaxIdle)
	}
}

// validate returns every complaint at once, each wrapping tiers.ErrInvalid.
func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format+": %w", append(args, tiers.ErrInvalid)...))
	}
	if len(o.Memory) == 0 || len(o.Memory) > MaxMemory {
		bad("%d memory tiers: want 1 to %d", len(o.Memory), MaxMemory)
	}
	for i, m := range o.Memory {
		switch {
		case m.Frames == nil || m.Frames.Count() < 1 && (i == 0 || o.Store == nil):
			bad("memory tier %s has no frames", m.Name)
		case m.Low < 0 || m.High < m.Low || m.High > 0 && m.High >= m.Frames.Count():
			bad("memory tier %s: watermarks %d and %d of %d frames", m.Name, m.Low, m.High, m.Frames.Count())
		}
		if m.MaxIdle < 0 {
			bad("memory tier %s: idle time %v", m.Name, m.MaxIdle)
		}
	}
	if o.Store != nil && len(o.Disks) > o.Store.Tiers() {
		bad("%d disks for the %d tiers of the store", len(o.Disks), o.Store.Tiers())
	}
	for _, d := range o.Disks {
		if d.MaxIdle < 0 {
			bad("tier %s: idle time %v", d.Name, d.MaxIdle)
		}
	}
	if o.Batch < 1 || o.Staging < putsAtOnce+1 {
		bad("batches of %d pages and %d staging buffers: want at least 1 and %d", o.Batch, o.Staging, putsAtOnce+1)
	}
	if !o.Breaker.Valid() {
		bad("breaker %+v", o.Breaker)
	}
	if o.PageSize <= 0 {
		bad("page size %d", o.PageSize)
	}
	if o.Store != nil && o.PageSize != o.Store.PageSize() {
		bad("page size %d, the store's is %d", o.PageSize, o.Store.PageSize())
	}
	return errors.Join(errs...)
}

// MaxMemory is the greatest number of memory tiers.
const MaxMemory = 8

// putsAtOnce is the number of puts of one group under way together: each holds a staging buffer.
const putsAtOnce = 4
