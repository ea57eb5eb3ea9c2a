package device

import (
	"fmt"
	"slices"
	"strings"
)

// UsageBy sums memory by purpose, for implementations of Device.
type UsageBy map[string]*Usage

func (u UsageBy) of(purpose string) *Usage {
	if u[purpose] == nil {
		u[purpose] = &Usage{Purpose: purpose}
	}
	return u[purpose]
}

// Add counts one buffer of n bytes.
func (u UsageBy) Add(purpose string, n int64) {
	e := u.of(purpose)
	e.Buffers++
	e.Bytes += n
}

// AddHost counts one host buffer of n bytes.
func (u UsageBy) AddHost(purpose string, n int64) {
	e := u.of(purpose)
	e.HostBuffers++
	e.HostBytes += n
}

// List is what Device.Usage returns.
func (u UsageBy) List() []Usage {
	list := make([]Usage, 0, len(u))
	for _, e := range u {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Usage) int { return strings.Compare(a.Purpose, b.Purpose) })
	return list
}

// Leaks are the errors that the Close of a device returns for what is still open: memory by
// purpose, and the kinds of the other handles.
func Leaks(name string, usage []Usage, kinds []string) []error {
	var errs []error
	slices.Sort(kinds)
	for i := 0; i < len(kinds); {
		n := 1
		for i+n < len(kinds) && kinds[i+n] == kinds[i] {
			n++
		}
		errs = append(errs, fmt.Errorf("close %s: %d %ss: %w", name, n, kinds[i], ErrLeak))
		i += n
	}
	for _, u := range usage {
		if u.Buffers > 0 {
			errs = append(errs, fmt.Errorf("close %s: %d buffers of %d bytes for %s: %w", name, u.Buffers, u.Bytes,
				u.Purpose, ErrLeak))
		}
		if u.HostBuffers > 0 {
			errs = append(errs, fmt.Errorf("close %s: %d host buffers of %d bytes for %s: %w", name, u.HostBuffers,
				u.HostBytes, u.Purpose, ErrLeak))
		}
	}
	return errs
}

// CheckWord returns ErrInvalidArgument unless a 32-bit word stands at off of host memory.
func CheckWord(what string, h HostBuffer, off int64) error {
	if h == nil {
		return fmt.Errorf("%s: no memory: %w", what, ErrInvalidArgument)
	}
	if off%4 != 0 {
		return fmt.Errorf("%s: a word at %d, not a multiple of 4: %w", what, off, ErrInvalidArgument)
	}
	return CheckRange(what, off, 4, h.Size())
}
