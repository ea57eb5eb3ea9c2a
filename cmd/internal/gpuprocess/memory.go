package gpuprocess

import (
	"errors"
	"path/filepath"
	"syscall"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
)

// budget divides the memory of the process, in bytes. Pages on the host device, pages in host
// memory and the rest are together at most the heap.
type budget struct {
	total int64
	// heap is the limit of the garbage collector: the total without the program text and the bytes
	// by which the collector exceeds its limit.
	heap int64
	// rest is the part of the heap for batches, messages, checkpoints and everything else but
	// pages.
	rest int64
}

// leastRest is the least rest in bytes: two batches of the largest message in a shard, and the
// runtime.
const leastRest = 192 << 20

// divide divides total bytes. Too few bytes are an error of usage. total is the value of --memory,
// or what the container allows. The result does not change afterwards.
func divide(total int64) (budget, error) {
	b := budget{total: total, heap: total - total/8}
	if b.rest = max(b.heap/4, leastRest); b.rest >= b.heap-leastRest/3 {
		return b, command.Usage("%s of memory are too few: use --memory 300MiB or more, or raise the container's "+
			"limit", memory.Text(total))
	}
	return b, nil
}

// forPages returns the bytes for all pages in the memory of the machine.
func (b budget) forPages() int64 { return b.heap - b.rest }

// device returns the bytes that the host device may allocate: pages, and half of the rest for
// batches.
func (b budget) device() int64 { return b.heap - b.rest/2 }

// isHost reports whether a device's memory is the machine's.
func isHost(d device.Device) bool { return d.Properties().Name == "host" }

// hostPages returns the bytes of host memory for pages that are on no device: asked or, for -1, the
// default, which is half of forPages, and 0 with a host device. onDevice is --page-memory. The
// result is divided among the devices in equal parts by the device pool.
func (b budget) hostPages(all []device.Device, onDevice, asked int64) (int64, error) {
	// Pages on a host device and pages in host memory share the same bytes.
	most := b.forPages()
	for _, d := range all {
		if isHost(d) {
			most -= onDevice
			if asked < 0 {
				asked = 0
			}
		}
	}
	if asked < 0 {
		asked = most / 2
	}
	if most < 0 || asked > most {
		return 0, command.Usage("--page-memory %s and --host-page-memory %s: of the %s that this process may use, "+
			"pages may take %s: lower them, or raise --memory",
			memory.Text(onDevice), memory.Text(asked), memory.Text(b.total), memory.Text(b.forPages()))
	}
	return asked, nil
}

// batchShare is the divisor for the part of device memory that is left to batches, weights and
// kernels by default: a 16th is 8.8 GB of an H200, and a batch of the largest message takes less
// than 100 MB of each shard.
const batchShare = 16

// pages returns the bytes for pages on a device, 1 or more: asked or, for 0, the free memory
// without the share of batches. On the host device that is at most the part of the budget for
// pages, without inHost. limit bounds the memory of a device; 0: no bound. A value that does not
// fit is an error of usage that names the flag.
func (b budget) pages(d device.Device, asked, inHost, limit int64) (int64, error) {
	if asked > 0 {
		return asked, nil
	}
	free, _, err := d.Memory()
	if err != nil {
		return 0, err
	}
	if limit > 0 {
		free = min(free, limit)
	}
	free -= free / batchShare
	if isHost(d) {
		free = min(free, b.forPages()-inHost)
	}
	return max(1, free), nil
}

// roomOf returns the room that the agent announces: memory for pages, and the free space of its
// disks. nil means that the agent does not know it yet. The admission of a new swarm adds up the
// rooms of all agents.
func roomOf(a *gpuagents.Agent, disks []*storeTier) *jobs.Room {
	room := a.Room()
	if room == nil {
		return nil
	}
	room.Disk = diskRoom(disks)
	return room
}

// diskRoom returns the bytes that the tiers can take: 1 when they are full, and 0 without tiers.
// Tiers that cannot be read are left out.
func diskRoom(disks []*storeTier) (room int64) {
	seen := map[syscall.Fsid]bool{} // tiers of one file system share its free space
	for _, t := range disks {
		s, err := fileSystem(t.dir)
		if err != nil {
			continue
		}
		free := int64(s.Bavail) * int64(s.Bsize) //nolint:unconvert // of another type on other systems
		switch {
		// A capacity is not shared: each tier may use its own.
		case t.capacity > 0:
			room += min(t.capacity, free)
		case !seen[s.Fsid]:
			seen[s.Fsid] = true
			room += free
		}
	}
	if len(disks) > 0 {
		room = max(room, 1)
	}
	return room
}

// fileSystem returns the file system of a folder or, if it does not exist, of its nearest parent:
// the folder of checkpoints is made with the first shard. It makes nothing, so a check of free
// space leaves no folder behind.
func fileSystem(dir string) (s syscall.Statfs_t, err error) {
	for {
		err = syscall.Statfs(dir, &s)
		above := filepath.Dir(dir)
		if !errors.Is(err, syscall.ENOENT) || above == dir {
			return s, err
		}
		dir = above
	}
}
