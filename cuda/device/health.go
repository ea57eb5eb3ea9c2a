package device

import (
	"context"
	"errors"
	"fmt"
)

// State is the sum of a Health.
type State int

// The states of a device.
const (
	OK       State = iota // it does its work
	Degraded              // it does its work, slower than it should or with a warning that someone should look at
	// it does not do its work: it must be opened again, or its process started again, or be
	// replaced
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

// Claim says that a range of a buffer has a checksum that its owner knows. Off is a multiple of
// RangeAlign.
type Claim struct {
	// Name is what a failed claim is reported as: "page 4711".
	Name       string
	Buffer     Buffer
	Off, Bytes int64
	Sum        uint64
}

// Health is what a device says of itself at one moment.
type Health struct {
	State State
	// Reasons say why the state is not OK, one sentence each.
	Reasons []string
	// InUse is the memory of open buffers with what rounding adds, Cached what is kept for the next
	// Alloc, in bytes.
	InUse, Cached int64
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
	// Throttle names what holds the clocks down, but for idleness and settings.
	Throttle []string
	// Xids are the driver's codes of critical errors since the Health before.
	Xids []int
}

// Note lowers the state and adds the reason.
func (h *Health) Note(s State, format string, args ...any) {
	h.State = max(h.State, s)
	h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
}

// CheckClaims compares the claims and notes those that are false. A claim that cannot be checked is
// false too, unless ctx ended.
func (h *Health) CheckClaims(ctx context.Context, d Device, claims []Claim) {
	for _, c := range claims {
		sum, err := Checksum(ctx, d, c.Buffer, c.Off, c.Bytes)
		switch {
		case ctx.Err() != nil:
			h.Note(Degraded, "%d of %d claims are not checked: %v", len(claims)-h.Claims, len(claims), ctx.Err())
			return
		case err != nil:
			h.Note(Failed, "%s is not on the device: %v", c.Name, err)
		case sum != c.Sum:
			h.Note(Failed, "%s has other bytes on the device: checksum %016x, not %016x", c.Name, sum, c.Sum)
		}
		h.Claims++
	}
}

// Checksum sums n bytes of a buffer from off on, a multiple of RangeAlign, on the device, by the
// kernel of that name. It is not ordered with the work of any stream.
func Checksum(ctx context.Context, d Device, b Buffer, off, n int64) (sum uint64, err error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("checksum of %d bytes at %d: %w", n, off, err)
	}
	k, err := d.Kernel("checksum")
	if err != nil {
		return fail(err)
	}
	out, err := Make[uint64](d, 1, "checksum")
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	s, err := d.NewStream()
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	got := make([]uint64, 1)
	g := Geometry{Grid: 8 * d.Properties().Multiprocessors, Block: 256}
	if err := out.Fill(0, 8, 0); err != nil {
		return fail(err)
	}
	if err := s.Launch(k, g, Range(b, off, n), Uint64(uint64(max(n, 0))), Ptr(out.Buffer)); err != nil {
		return fail(err)
	}
	if err := s.Sync(ctx); err != nil {
		return fail(err)
	}
	if err := out.Get(0, got); err != nil {
		return fail(err)
	}
	return got[0], nil
}
