package device

import (
	"context"
	"errors"
	"fmt"
)

// State summarises a Health.
type State int

// The states of a device.
const (
	OK       State = iota // the device works
	Degraded              // the device works, but slower than it should, or with a warning
	// the device does not work: open it again, restart its process, or replace it
	Failed
)

// String is what status pages show.
func (s State) String() string {
	switch s {
	case OK:
		return "ok"
	case Degraded:
		return "degraded"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// Claim is the checksum that the owner of a range of a buffer expects. Off is a multiple of
// RangeAlign.
type Claim struct {
	// Name is what a failed claim is reported as: "page 4711".
	Name       string
	Buffer     Buffer
	Off, Bytes int64
	Sum        uint64
}

// Health is the state of a device at one moment.
type Health struct {
	State State
	// Reasons say why the state is not OK, one sentence each.
	Reasons []string
	// InUse is the memory of open buffers with what rounding adds, Cached what is kept for the next
	// Alloc, in bytes.
	InUse, Cached int64
	// Launches is the number of kernels that were launched on streams of this device since it was
	// opened. Launches of a graph count when it is recorded.
	Launches int64
	// ToDevice and FromDevice are the bytes copied between host memory and the device since it was
	// opened. Copies of a graph count when it is recorded.
	ToDevice, FromDevice int64
	// Claims is the number of claims that were compared.
	Claims int
	// Sensors are the chip's; nil where there are none to ask, as on the host.
	Sensors *Sensors
}

// Sensors are what the management library of a GPU measures. A value that the chip does not have is
// -1.
type Sensors struct {
	Temperature       int   // degrees Celsius
	PowerMilliwatts   int   // of the board
	Utilisation       int   // percent of the last sample period in which a kernel ran
	MemoryUtilisation int   // percent in which memory was read or written
	ProcessBytes      int64 // device memory of this process, its contexts included
	// ECCCorrected and ECCUncorrected are memory errors since the driver was loaded.
	ECCCorrected, ECCUncorrected int64
	// Throttle names what lowers the clocks, except for idleness and settings.
	Throttle []string
	// Xids are the driver's codes of critical errors of the last minutes, each once, in ascending
	// order. XidCounts has the number of each since the device was opened.
	Xids      []int
	XidCounts map[int]int64
	// EnergyMillijoules is what the board has used since the driver was loaded.
	EnergyMillijoules int64
	// ClockMHz and MemoryClockMHz are the clocks of the multiprocessors and of the memory now.
	ClockMHz, MemoryClockMHz int
}

// Note lowers the state and adds the reason.
func (h *Health) Note(s State, format string, args ...any) {
	h.State = max(h.State, s)
	h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
}

// CheckClaims compares the claims and notes the false ones. A claim that cannot be checked is false
// too, unless ctx ended.
func (h *Health) CheckClaims(ctx context.Context, d Device, claims []Claim) {
	regions := make([]Region, len(claims))
	for i, c := range claims {
		regions[i] = Region{c.Buffer, c.Off, c.Bytes}
	}
	sums, err := Checksums(ctx, d, regions)
	for i, c := range claims {
		var sum uint64
		if err == nil {
			sum = sums[i]
		} else { // one region fails all: checking each region shows which claim is false
			var one []uint64
			var cerr error
			if one, cerr = Checksums(ctx, d, regions[i:i+1]); cerr == nil {
				sum = one[0]
			} else if ctx.Err() == nil {
				h.Note(Failed, "%s is not on the device: %v", c.Name, cerr)
				h.Claims++
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			h.Note(Degraded, "%d of %d claims are not checked: %v", len(claims)-h.Claims, len(claims), ctx.Err())
			return
		case sum != c.Sum:
			h.Note(Failed, "%s has other bytes on the device: checksum %016x, not %016x", c.Name, sum, c.Sum)
		}
		h.Claims++
	}
}

// Region is a range of a buffer: Bytes bytes from Off on, a multiple of RangeAlign.
type Region struct {
	Buffer     Buffer
	Off, Bytes int64
}

// Checksum returns the checksum of n bytes of a buffer from off on, as Checksums does.
func Checksum(ctx context.Context, d Device, b Buffer, off, n int64) (uint64, error) {
	sums, err := Checksums(ctx, d, []Region{{b, off, n}})
	if err != nil {
		return 0, err
	}
	return sums[0], nil
}

// Checksums returns the sum of each region. The kernel "checksum" computes them on the device: one
// launch a region, one copy and one wait for all of them. It is not ordered with the work of any
// stream. If it fails for one region, it returns that error and no sums.
func Checksums(ctx context.Context, d Device, regions []Region) (sums []uint64, err error) {
	fail := func(err error) ([]uint64, error) {
		return nil, fmt.Errorf("checksums of %d regions: %w", len(regions), err)
	}
	if len(regions) == 0 {
		return nil, nil
	}
	k, err := d.Kernel("checksum")
	if err != nil {
		return fail(err)
	}
	const each = RangeAlign / 8 // a sum begins at a multiple of RangeAlign
	out, err := Make[uint64](d, int64(each*len(regions)), "checksums")
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	s, err := d.NewStream()
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := out.Fill(0, RangeAlign*int64(len(regions)), 0); err != nil {
		return fail(err)
	}
	g := Geometry{Grid: 8 * d.Properties().Multiprocessors, Block: 256}
	for i, r := range regions {
		to := Range(out.Buffer, RangeAlign*int64(i), 8)
		if err := s.Launch(k, g, Range(r.Buffer, r.Off, r.Bytes), Uint64(uint64(max(r.Bytes, 0))), to); err != nil {
			return nil, fmt.Errorf("checksum of %d bytes at %d: %w", r.Bytes, r.Off, err)
		}
	}
	if err := s.Sync(ctx); err != nil {
		return fail(err)
	}
	got := make([]uint64, each*len(regions))
	if err := out.Get(0, got); err != nil {
		return fail(err)
	}
	for i := range regions {
		sums = append(sums, got[each*i])
	}
	return sums, nil
}
