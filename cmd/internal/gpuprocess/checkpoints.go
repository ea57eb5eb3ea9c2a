package gpuprocess

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// checkpoints keeps one page store for each shard, over all tiers: the folder KEY.SHARD in each
// tier, where KEY is swarms.Swarm.Key. It implements gpuagents.Checkpoints, and its methods may be
// called from several goroutines.
type checkpoints struct {
	fs    vfs.FS        // nil: the file system of the operating system
	keys  *keyring.Ring // nil: stores are not encrypted
	tiers []*storeTier
	rests time.Duration // idle time after which the index of a store is closed; 0: the default of index.Badger

	mu   sync.Mutex         // guards idle
	idle map[string][]int64 // bytes of the folders of shards that are not open, by shard and tier
}

// newCheckpoints returns the checkpoints in the folders of tiers, the fastest tier first. Shards
// that are there already count against the capacities of their tiers. The tiers stay with the
// caller, who removes no folder while the checkpoints are in use.
func newCheckpoints(tiers ...*storeTier) *checkpoints {
	c := &checkpoints{tiers: tiers, idle: map[string][]int64{}}
	ids, _ := c.Shards() // a folder that cannot be read counts as empty
	for _, id := range ids {
		if name, err := folder(id.Swarm, id.Shard); err == nil {
			c.rest(name)
		}
	}
	return c
}

// Sizes of a shard's store.
const (
	// maxSegment bounds a segment file in bytes, unless a tier is so large that it would have too
	// many open files.
	maxSegment = 64 << 20
	// mostSegments is the approximate number of files of a full tier. All are open.
	mostSegments = 4096
	// spareBytes is room for what the index remembers of former records, where no capacity is set.
	spareBytes = 64 << 20
)

// Open implements gpuagents.Checkpoints. The store has up to pages pages of pageSize bytes. It
// makes a store when it finds no index of one. The caller closes the store before it opens the
// shard again. An error leaves no store open. A store that another process has open is such an
// error.
func (c *checkpoints) Open(swarm string, shard, pageSize, pages int) (pages.Store, error) {
	name, err := folder(swarm, shard)
	if err != nil {
		return nil, err
	}
	// A record is a page with its header, as segments store it.
	record := int64(pageSize + vfs.BlockSize)
	all := record * int64(pages)
	// New: a checkpoint only saves the replay of the log, so a store that a failed disk may hide
	// does not keep the shard from the other disks.
	o := pagestore.Options{FS: c.fs, Tables: index.Badger{Rest: c.rests}, PageSize: pageSize, New: true}
	indexBytes := o.IndexBytes(pages)
	for _, t := range c.tiers {
		p := pagestore.Tier{Name: t.name, Dir: filepath.Join(t.dir, name), Codec: t.codec, Quota: t.quota}
		p.SegmentBytes = max(min(2*all, max(maxSegment, t.capacity/mostSegments)), record)
		p.Capacity, p.DiskReserve = t.capacity, c.reserve(t.dir)
		if t.quota == nil {
			// A commit may write every page before the old copies are free. A third copy is room
			// for segments that are not full.
			p.Capacity = spareBytes + indexBytes + 3*all + 2*p.SegmentBytes
		}
		o.Tiers = append(o.Tiers, p)
	}
	if o.Key, err = c.storeKey(name); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", name, err)
	}
	// The open store counts its own bytes against the quotas.
	c.wake(name)
	s, err := pagestore.Open(o)
	if err != nil {
		c.rest(name)
		return nil, fmt.Errorf("checkpoint %s: %w", name, err)
	}
	c.tiers[0].quota.Hold(indexBytes)
	return &store{Store: s, of: c, name: name, index: indexBytes}, nil
}

// reserve returns how many bytes of the disk of a folder stay free for others: a twentieth of a
// small one.
func (c *checkpoints) reserve(dir string) int64 {
	const least, most = 1 << 20, 64 << 20
	if c.fs != nil {
		return most
	}
	s, err := fileSystem(dir)
	if err != nil {
		return most // the tier fails, which its first write tells
	}
	size := int64(s.Blocks) * int64(s.Bsize) //nolint:unconvert // of another type on other systems
	return min(max(size/diskShare, least), most)
}

// store is the open store of a shard. It implements pages.Layered: pages may be read from the tiers
// in which they are. Its bytes count against the quotas of the tiers, and the bytes of its index
// against the first quota.
type store struct {
	*pagestore.Store
	of    *checkpoints
	name  string
	index int64 // bytes that its index may take
	once  sync.Once
	err   error
}

var _ pages.Layered = (*store)(nil)

// Disks implements pages.Layered. They are in the order of the tiers, the fastest first.
func (s *store) Disks() []pager.Disk {
	var disks []pager.Disk
	for _, t := range s.of.tiers {
		disks = append(disks, pager.Disk{Name: t.name, MaxIdle: t.age})
	}
	return disks
}

// Holds implements pages.Layered. tier is an index of Disks. Another goroutine may change the
// numbers meanwhile.
func (s *store) Holds(tier int) pages.TierUsage {
	u, t := s.Usage(tier), s.of.tiers[tier]
	fill := s.Fill(tier)
	if t.quota != nil {
		if free, err := s.of.free(t.dir); err == nil { // otherwise the tier fails, which other metrics tell
			fill = max(fill, diskFill(t.quota.Used(), free, t.capacity))
		}
	}
	return pages.TierUsage{Pages: u.Used, Bytes: u.LiveBytes, Fill: fill, Unavailable: s.Unavailable(tier)}
}

// diskFill returns the used part of what a tier may have: its capacity, or its own bytes and the
// free ones of the disk if those are less, because other programs use the rest of the disk.
func diskFill(used, free, capacity int64) float64 {
	room := min(capacity, used+free)
	if room <= 0 {
		return 1
	}
	return max(0, min(float64(used)/float64(room), 1))
}

// free returns the free bytes of the disk of a folder.
func (c *checkpoints) free(dir string) (int64, error) {
	if c.fs == nil {
		return vfs.OS{}.Free(dir)
	}
	return c.fs.Free(dir)
}

// Close implements pages.Store. A second call returns the error of the first.
func (s *store) Close() error {
	s.once.Do(func() {
		s.err = s.Store.Close()
		s.of.tiers[0].quota.Give(s.index)
		s.of.rest(s.name)
	})
	return s.err
}

// rest counts the folders of a shard that is not open against the capacities of the tiers. It is
// called when the store of the shard is closed, and for all shards that are there at the start.
func (c *checkpoints) rest(name string) {
	c.wake(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	var taken []int64
	for _, t := range c.tiers {
		n := int64(0)
		if t.quota != nil {
			n = length(filepath.Join(t.dir, name))
			t.quota.Hold(n)
		}
		taken = append(taken, n)
	}
	c.idle[name] = taken
}

// wake ends the count of rest, before the store of the shard is opened: an open store counts
// itself. A shard that is not counted stays uncounted.
func (c *checkpoints) wake(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range c.idle[name] {
		c.tiers[i].quota.Give(n)
	}
	delete(c.idle, name)
}

// length returns the sum of the sizes of the files below a folder in bytes, without unreadable
// files.
func length(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is left out
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// Remove implements gpuagents.Checkpoints. The store must be closed. It removes the other tiers
// when one fails.
func (c *checkpoints) Remove(swarm string, shard int) error {
	name, err := folder(swarm, shard)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range c.tiers {
		if err := os.RemoveAll(filepath.Join(t.dir, name)); err != nil {
			errs = append(errs, fmt.Errorf("tier %s: %w", t.name, err))
		}
	}
	c.wake(name)
	if len(errs) > 0 {
		c.rest(name)
	}
	return errors.Join(errs...)
}

// Shards implements gpuagents.Checkpoints: the shards with a folder in any tier, in the order of
// their names. The error names the tiers that could not be listed. Folders whose names are no names
// of shards are left out.
func (c *checkpoints) Shards() ([]shard.ID, error) {
	found := map[string]shard.ID{}
	var errs []error
	for _, t := range c.tiers {
		entries, err := os.ReadDir(t.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("tier %s: %w", t.name, err))
		}
		// Other files in the folder of a tier are not shards, and stay.
		for _, e := range entries {
			swarm, number, _ := strings.Cut(e.Name(), ".")
			n, err := strconv.Atoi(number)
			if name, ferr := folder(swarm, n); err == nil && ferr == nil && e.Name() == name {
				found[name] = shard.ID{Swarm: swarm, Shard: n}
			}
		}
	}
	var ids []shard.ID
	for _, name := range slices.Sorted(maps.Keys(found)) {
		ids = append(ids, found[name])
	}
	return ids, errors.Join(errs...)
}

// folder returns the name of the folders of a shard: the key of its swarm and its number. It
// refuses a key that would be the path of another folder, because keys come from the queue. A
// result never has a path separator.
func folder(swarm string, shard int) (string, error) {
	if err := swarms.CheckKey(swarm); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s.%d", swarm, shard), nil
}
