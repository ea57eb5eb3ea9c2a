package gpuagents

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Count returns the number of pages, whether they exist or not.
func (m *memory) Count() int { return len(m.made) }

// PageBytes returns the size of a page in bytes.
func (m *memory) PageBytes() int { return m.pageBytes }

// Bytes returns how many bytes of frames the memory has on the device and in host memory.
func (m *memory) Bytes() int64 { return m.share.deviceBytes + m.share.hostBytes }

// Resident reports whether there is a frame on the device for each page.
func (m *memory) Resident() bool { return m.resident }

// Made tells by page whether the page exists. Callers only read the slice, and only until the next call.
func (m *memory) Made() []bool { return m.made }

// Dirty tells by page whether the page has changed since the last checkpoint. Callers only read the
// slice, and only until the next call.
func (m *memory) Dirty() []bool { return m.dirty }

// OnDevice tells by page whether the page was on the device when it was last pinned and was not sent
// down since. Resident pages are not counted. Callers only read the slice.
func (m *memory) OnDevice() []bool { return m.heat.up }

// Frame returns the entry of a pinned page in the table of frames; see kernels.AgentHostBit.
func (m *memory) Frame(page int) uint32 { return m.table[page] }

// SetAbsent tells kernels that a page does not exist, so that they read zeros.
func (m *memory) SetAbsent(page uint64) { m.set(page, 1<<kernels.AgentHostBit) }

// Arena returns the frames on the device, one behind the other.
func (m *memory) Arena() device.Buffer { return m.arena }

// Forward has the next sweep begin with the first page.
func (m *memory) Forward() { m.back = false }

// Backward reports whether the next sweep begins with the last page.
func (m *memory) Backward() bool { return m.back }

// Pager returns the open pager, for its statistics; nil before open.
func (m *memory) Pager() *pager.Pager { return m.pager }

// SetMetrics counts the pagers that are opened from now on; nil: none is counted.
func (m *memory) SetMetrics(counts *pageMetrics) { m.counts = counts }

// SetObservationBytes sets how many bytes of a page take the bus as long as an observation that is
// stepped over it.
func (m *memory) SetObservationBytes(n int) { m.heat.bytes = n }

// ObservationBytes returns what SetObservationBytes has set, or the default.
func (m *memory) ObservationBytes() int { return m.heat.perObservation() }

// Claim has all pages claim their frames on the device from now on; see Audit.
func (m *memory) Claim() { m.claims = &claims{sums: map[int]claim{}} }

// Claimed reports whether pages claim their frames.
func (m *memory) Claimed() bool { return m.claims != nil }
