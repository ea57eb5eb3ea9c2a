package pages

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Count returns the number of pages, whether they exist or not.
func (m *Memory) Count() int { return len(m.made) }

// PageBytes returns the size of a page in bytes.
func (m *Memory) PageBytes() int { return m.pageBytes }

// Bytes returns how many bytes of frames the memory has on the device and in host memory.
func (m *Memory) Bytes() int64 { return m.allocation.DeviceBytes + m.allocation.HostBytes }

// Resident reports whether there is a frame on the device for each page.
func (m *Memory) Resident() bool { return m.resident }

// Made reports by page whether the page exists. Callers only read the slice, until the next call
// that changes pages.
func (m *Memory) Made() []bool { return m.made }

// Dirty reports by page whether the page has changed since the last checkpoint. Callers only read
// the slice, until the next call that changes pages.
func (m *Memory) Dirty() []bool { return m.dirty }

// OnDevice reports by page whether the page was on the device when it was last pinned and was not
// moved down since. It does not count resident pages. Callers only read the slice.
func (m *Memory) OnDevice() []bool { return m.heat.up }

// Frame returns the entry of a pinned page in the table of frames; see kernels.AgentHostBit.
func (m *Memory) Frame(page int) uint32 { return m.table.frames[page] }

// SetAbsent tells kernels which of the pages do not exist, so that they read zeros.
func (m *Memory) SetAbsent(pages []uint64) {
	for _, page := range pages {
		if !m.made[page] {
			m.table.set(page, 1<<kernels.AgentHostBit)
		}
	}
}

// Contents returns a number that changes when the content of pages is replaced other than by
// kernels: by Open, Reset, Write and WriteAll. What a state derives from the pages is valid while
// it is the same.
func (m *Memory) Contents() uint64 { return m.contents }

// Arena returns the frames on the device, which follow one another.
func (m *Memory) Arena() device.Buffer { return m.arena }

// Forward has the next sweep begin with the first page.
func (m *Memory) Forward() { m.back = false }

// Pager returns the open pager, for its statistics; nil before Open.
func (m *Memory) Pager() *pager.Pager { return m.pager }

// SetMetrics has the pagers that are opened from now on counted; nil: none is.
func (m *Memory) SetMetrics(counts *Metrics) { m.counts = counts }

// SetObservationBytes sets how many bytes of a page take the bus as long as an observation that is
// stepped over it.
func (m *Memory) SetObservationBytes(n int) { m.heat.bytes = n }

// ObservationBytes returns what SetObservationBytes has set, or the default.
func (m *Memory) ObservationBytes() int { return m.heat.perObservation() }

// Claim has all pages claim their frames on the device from now on; see Audit.
func (m *Memory) Claim() { m.claims = &claims{sums: map[int]claim{}} }

// Claimed reports whether pages claim their frames.
func (m *Memory) Claimed() bool { return m.claims != nil }

// Frames returns the number of frames on the device.
func (m *Memory) Frames() int { return m.frames.Count() }
