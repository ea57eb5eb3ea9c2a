//go:build cuda

package driver

import (
	"maps"
	"slices"
	"time"
)

// xidMemory is how long an Xid degrades the device in Health.
const xidMemory = 10 * time.Minute

// xidLog counts the Xids that the driver has reported since the device was opened. NVML hands out
// each event once, so the readers of Health, such as a probe and a scrape, would take them from
// each other: the log gives all of them to every reader. The caller holds nvmlMu.
type xidLog struct {
	counts map[int]int64
	last   map[int]time.Time // when each was reported last
}

func (x *xidLog) add(xid int, at time.Time) {
	if x.counts == nil {
		x.counts, x.last = map[int]int64{}, map[int]time.Time{}
	}
	x.counts[xid]++
	x.last[xid] = at
}

// recent returns the codes of the last xidMemory in ascending order, and the counts of all. Both
// are the caller's.
func (x *xidLog) recent(now time.Time) (codes []int, counts map[int]int64) {
	for _, xid := range slices.Sorted(maps.Keys(x.last)) {
		if now.Sub(x.last[xid]) < xidMemory {
			codes = append(codes, xid)
		}
	}
	return codes, maps.Clone(x.counts)
}
