package index

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// growBytes is the step in which files are allocated ahead, so that an append can run out of disk
// only here, and fdatasync rarely has a new length to write.
const growBytes = 32 << 10

// superblock is two identical files of one block a commit; one of them is enough. The last commit
// says which state of the table counts and what its sums are. With the marks it says which records
// of the segments count if the table is lost.
//
// A commit is atomic: it counts once its last batch is on either copy, and it is acknowledged once
// it is on both. Every batch carries its generation, its number and a CRC32C, so a torn tail ends
// the superblock, damage in one copy is made good from the other, and damage that neither can make
// good is ErrCorrupt.
type superblock struct {
	fs   vfs.FS
	dirs []string
	meta Meta

	gen      uint64
	seq      uint64
	copies   [2]*file
	end      int64 // where the next batch goes
	snapshot int64 // end of the snapshot
	broken   bool
	buf      []byte
}

type file struct {
	vfs.File
	path      string
	allocated int64
}

// names of the two copies of a generation. The parameter which is 0 or 1. Names sort by generation.
func copyName(gen uint64, which int) string { return fmt.Sprintf("%016x.super%c", gen, 'a'+which) }

// parseName reads what copyName made.
func parseName(name string) (gen uint64, which int, ok bool) {
	var c rune
	if _, err := fmt.Sscanf(name, "%016x.super%c", &gen, &c); err != nil {
		return 0, 0, false
	}
	which = int(c - 'a')
	return gen, which, (which == 0 || which == 1) && copyName(gen, which) == name
}

// createSuperblock makes the superblock of a new store, without marks. dirs are the directories
// that copies may lie in, the preferred ones first; the two copies lie apart where there are two.
func createSuperblock(fsys vfs.FS, dirs []string, meta Meta, st seal) (*superblock, error) {
	x := &superblock{fs: fsys, dirs: slices.Clone(dirs), meta: meta}
	old, err := x.list()
	if err != nil {
		return nil, err
	}
	for _, o := range old {
		x.gen = max(x.gen, o.gen)
	}
	if err := x.renew(st, func(func(mark) bool) {}); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

type found struct {
	gen   uint64
	which int
	path  string
}

// list finds all index files, the newest generation first.
func (x *superblock) list() ([]found, error) {
	var all []found
	for _, dir := range x.dirs {
		names, err := x.fs.List(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if gen, which, ok := parseName(name); ok {
				all = append(all, found{gen, which, filepath.Join(dir, name)})
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(b.gen, a.gen), cmp.Compare(a.which, b.which))
	})
	return all, nil
}

// openSuperblock reads the newest complete generation. reset is called before its marks, and again
// when a generation turns out incomplete and an older one is read instead; apply is called for
// every mark of every commit, in order. It fails with ErrNone when there is no index, or only the
// beginning of a first one.
func openSuperblock(fsys vfs.FS, dirs []string, reset func(Meta), apply func(mark)) (*superblock, seal, error) {
	x := &superblock{fs: fsys, dirs: slices.Clone(dirs)}
	all, err := x.list()
	if err != nil {
		return nil, seal{}, err
	}
	for len(all) > 0 {
		gen := all[0].gen
		n := slices.IndexFunc(all, func(f found) bool { return f.gen != gen })
		if n < 0 {
			n = len(all)
		}
		st, clean, err := x.load(all[:n], reset, apply)
		if err == nil {
			// A torn tail, a lost copy, or an older generation that a crash left behind: the caller
			// writes a new generation, which removes them.
			x.broken = !clean || len(all) > n
			return x, st, nil
		}
		if !errors.Is(err, ErrNone) {
			return nil, seal{}, errors.Join(fmt.Errorf("index generation %d: %w", gen, err), x.close())
		}
		if err := x.close(); err != nil {
			return nil, seal{}, err
		}
		all = all[n:]
	}
	return nil, seal{}, ErrNone
}

// load reads one generation from its copies. It fails with ErrNone when its snapshot is incomplete,
// as after a crash while it was made. clean means that both copies are there, agree where they were
// compared, and end in zeros.
func (x *superblock) load(copies []found, reset func(Meta), apply func(mark)) (st seal, clean bool, err error) {
	x.gen, x.seq, x.end, x.snapshot = copies[0].gen, 0, vfs.BlockSize, 0
	x.copies = [2]*file{}
	sizes := [2]int64{}
	valid := 0
	block := vfs.Buffer(vfs.BlockSize)
	for _, c := range copies {
		f, err := x.fs.Open(c.path, 0)
		if err != nil {
			return st, false, err
		}
		if x.copies[c.which] != nil {
			return st, false, errors.Join(fmt.Errorf("two files %s: %w", c.path, tiers.ErrCorrupt), f.Close())
		}
		x.copies[c.which] = &file{File: f, path: c.path}
		size, err := f.Size()
		if err != nil {
			return st, false, err
		}
		x.copies[c.which].allocated = size
		if size < vfs.BlockSize {
			continue
		}
		if _, err := f.ReadAt(block, 0); err != nil {
			return st, false, err
		}
		meta, gen, err := decodeFileHeader(block)
		if errors.Is(err, tiers.ErrVersion) {
			return st, false, err
		}
		sizes[c.which] = size
		if err == nil && gen == x.gen {
			valid++
			x.meta = meta
		}
	}
	if valid == 0 {
		return st, false, ErrNone
	}
	reset(x.meta)
	r := reader{x: x, sizes: sizes}
	st, err = r.run(apply)
	clean = valid == 2 && !r.damaged && r.zeroTail
	st.healed = !clean
	return st, err == nil && clean, err
}

// wantsRenewal reports whether the commits since the snapshot are so long that a new generation
// pays off.
func (x *superblock) wantsRenewal() bool { return x.end > max(2*x.snapshot, 2*growBytes) }

// superblockReserve returns the most bytes that a superblock with a number of marks takes at any
// moment, in one directory: two generations of two copies, the old one up to twice a snapshot and a
// commit of every mark longer, the new one a snapshot. Each snapshot and commit has a note.
func superblockReserve(marks int64) int64 {
	return 2*(2+1+1)*(MaxNote+vfs.BlockSize) + 3*growBytes + marks*2*(2+1+1)*entryBytes
}

// commit makes a seal and marks durable together. After an error it is unknown whether a crash
// would bring back the state before or after; the index is then broken until renew.
func (x *superblock) commit(st seal, marks iter.Seq[mark]) error {
	if x.broken {
		return ErrBroken
	}
	if err := x.append(x.copies[:], st, marks); err != nil {
		x.broken = true
		return fmt.Errorf("commit epoch %d: %w", st.Epoch, err)
	}
	return nil
}

// append writes the batches of one commit to the given copies and syncs them. It moves x.end and
// x.seq also for batches whose commit fails, so the superblock is broken after an error.
func (x *superblock) append(copies []*file, st seal, marks iter.Seq[mark]) error {
	var part []byte
	flush := func(kind uint8) error {
		b := batch{kind: kind, seq: x.seq, gen: x.gen, entries: part}
		if kind == kindCommit {
			b.seal = st
		}
		x.buf = b.encode(x.buf[:0])
		for _, c := range copies {
			if err := c.write(x.buf, x.end); err != nil {
				return err
			}
		}
		x.end += int64(len(x.buf))
		x.seq++
		part = part[:0]
		return nil
	}
	for e := range marks {
		if len(part) == partEntries*entryBytes {
			if err := flush(kindPart); err != nil {
				return err
			}
		}
		part = append(part, make([]byte, entryBytes)...)
		e.encode(part[len(part)-entryBytes:])
	}
	if err := flush(kindCommit); err != nil {
		return err
	}
	for _, c := range copies {
		if err := c.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", c.path, err)
		}
	}
	return nil
}

// write writes whole blocks at an offset, and allocates the file ahead in steps of growBytes. It
// does not sync.
func (f *file) write(p []byte, off int64) error {
	if need := off + int64(len(p)); need > f.allocated {
		size := (need + growBytes - 1) / growBytes * growBytes
		if err := f.Allocate(size); err != nil {
			return fmt.Errorf("allocate %s: %w", f.path, err)
		}
		f.allocated = size
	}
	if _, err := f.WriteAt(p, off); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// renew starts a new generation with a snapshot: the seal and all marks. The old generation counts
// until the new one is complete on both copies, and is removed then. When a directory fails, both
// copies go to the others.
func (x *superblock) renew(st seal, marks iter.Seq[mark]) error {
	old := *x
	var errs []error
	for _, pair := range placements(x.dirs) {
		x.gen++
		copies, err := x.rotate(pair, st, marks)
		if err == nil {
			x.copies, x.broken = copies, false
			for _, c := range old.copies {
				if c != nil {
					_ = c.Close() // Superseded: nothing in it is needed.
				}
			}
			x.removeOld()
			return nil
		}
		errs = append(errs, err)
	}
	// The failed generations' numbers are not used again.
	old.gen, old.broken = x.gen, true
	*x = old
	return errors.Join(errs...)
}

// placements are the pairs of directories to try for the two copies: the first two, then each
// alone.
func placements(dirs []string) [][2]string {
	var p [][2]string
	if len(dirs) > 1 {
		p = append(p, [2]string{dirs[0], dirs[1]})
	}
	for _, d := range dirs {
		p = append(p, [2]string{d, d})
	}
	return p
}

// rotate makes one attempt in one pair of directories.
func (x *superblock) rotate(dirs [2]string, st seal, marks iter.Seq[mark]) (copies [2]*file, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, c := range copies {
			if c != nil {
				// An incomplete generation is ignored by Open, so a file that cannot be removed
				// does no harm.
				_, _ = c.Close(), x.fs.Remove(c.path)
			}
		}
	}()
	head := vfs.Buffer(vfs.BlockSize)
	encodeFileHeader(head, x.meta, x.gen)
	for i, dir := range dirs {
		path := filepath.Join(dir, copyName(x.gen, i))
		f, err := x.fs.Open(path, vfs.Create)
		if err != nil {
			return copies, err
		}
		copies[i] = &file{File: f, path: path}
		if err := copies[i].write(head, 0); err != nil {
			return copies, err
		}
	}
	x.seq, x.end = 0, vfs.BlockSize
	if err := x.append(copies[:], st, marks); err != nil {
		return copies, fmt.Errorf("snapshot of epoch %d: %w", st.Epoch, err)
	}
	x.snapshot = x.end
	for i, dir := range dirs {
		if i == 1 && dir == dirs[0] {
			continue
		}
		if err := x.fs.SyncDir(dir); err != nil {
			return copies, err
		}
	}
	return copies, nil
}

// removeOld deletes the files of all generations but the current one. What cannot be deleted is
// left: Open prefers the newest complete generation, and the next rotation tries again. No open
// copy is among them.
func (x *superblock) removeOld() {
	all, err := x.list()
	if err != nil {
		return
	}
	dirs := map[string]bool{}
	for _, f := range all {
		if f.gen != x.gen && x.fs.Remove(f.path) == nil {
			dirs[filepath.Dir(f.path)] = true
		}
	}
	for dir := range dirs {
		_ = x.fs.SyncDir(dir)
	}
}

func (x *superblock) bytes() int64 {
	var n int64
	for _, c := range x.copies {
		if c != nil {
			n += c.allocated
		}
	}
	return n
}

// close closes the files. Every commit was synced before. It syncs nothing and may be called again.
func (x *superblock) close() error {
	var errs []error
	for i, c := range x.copies {
		if c != nil {
			if err := c.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
				errs = append(errs, err)
			}
			x.copies[i] = nil
		}
	}
	x.broken = true
	return errors.Join(errs...)
}
