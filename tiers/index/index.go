// Package index maps every page to the record of a segment with its current content, durably. The
// table is in BadgerDB. A superblock, two identical files of one block or more a commit, says which
// state of the table is valid.
//
// A commit writes its entries to the table in as many synced transactions as they need, each entry
// together with the entry that it replaces, and then seals them in the superblock: epoch, note,
// number of the commit, and two sums over all entries. Until the seal is durable on both copies,
// the entries that came before are the ones that count. So a commit is atomic whatever its size,
// and a table that lost, kept or changed anything does not match its seal. The index is then
// rebuilt from the records of the segments, whose stale ones the marks of the superblock exclude.
// They must have the sealed number and sum of pages: the result is the sealed state, or ErrCorrupt.
package index

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Options say where an index is. Dirs are the directories in which its files may be, in order of
// preference. The table is in the first one that takes it. The two copies of the superblock are in
// different directories if there are two.
type Options struct {
	FS     vfs.FS
	Tables Backend
	Dirs   []string
}

// State is what Open found.
type State struct {
	Epoch uint64
	Note  []byte
	// Healed says that a copy of the superblock was damaged or missing and the other one stood in,
	// or that a commit had been cut short.
	Healed bool
	// Damaged is not nil when the table is not what the superblock says: Rebuild must succeed
	// before anything else.
	Damaged error
}

// Index is an open index. One goroutine uses it at a time.
type Index struct {
	opts       Options
	meta       Meta
	superblock *superblock
	table      Table
	dir        string // of the table
	seal       seal
	broken     bool

	// life is the number of this opening, under which records are written.
	life uint64
	// number is the largest of a table that was ever made, as far as is known.
	number uint64
	// gone are pages whose keys say that they are deleted: the next commit removes them.
	gone []uint64
	// The marks of the superblock.
	tombs map[uint64]uint64
	voids map[Void]struct{}
	lives map[uint64]uint64
}

// newIndex returns an index that is not open yet, in a new life.
func newIndex(opts Options) (*Index, error) {
	x := &Index{
		opts: opts, broken: true,
		tombs: map[uint64]uint64{}, voids: map[Void]struct{}{}, lives: map[uint64]uint64{},
	}
	x.opts.Dirs = slices.Clone(opts.Dirs)
	return x, x.NewLife()
}

// NewLife ends the life: records that were written in it and not committed never count. Record
// headers carry the number that Life returns from now on.
func (x *Index) NewLife() error {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return fmt.Errorf("life: %w", err)
	}
	x.life = binary.LittleEndian.Uint64(b[:]) | 1
	return nil
}

// Life returns the number of the present life, which is never 0. The writer of a record puts it
// into the header.
func (x *Index) Life() uint64 { return x.life }

// Create makes the index of a new store: empty, at epoch 0, without a note. It is durable when
// Create returns. The caller closes it.
func Create(opts Options, meta Meta) (*Index, error) {
	x, err := newIndex(opts)
	if err != nil {
		return nil, err
	}
	x.meta = meta
	if err := x.renew(seal{checked: true}, func(func(Entry) bool) {}, nil); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Open reads the index. reset is called before the entries, and again should the table turn out to
// be damaged; apply is called for every page. It fails with ErrNone when there is no index, or only
// the beginning of a first one.
func Open(opts Options, reset func(Meta), apply func(Entry)) (*Index, State, error) {
	x, err := newIndex(opts)
	if err != nil {
		return nil, State{}, err
	}
	forget := func(Meta) {
		clear(x.tombs)
		clear(x.voids)
		clear(x.lives)
	}
	l, st, err := openSuperblock(opts.FS, x.opts.Dirs, forget, x.learn)
	if err != nil {
		return nil, State{}, err
	}
	x.superblock, x.seal, x.meta = l, st, l.meta
	if st.life != 0 {
		x.lives[st.life] = max(x.lives[st.life], st.Epoch)
	}
	state := State{Epoch: st.Epoch, Note: st.Note, Healed: st.healed}
	x.meta.Pages = int(st.count)
	reset(x.meta)
	repairs, err := x.openTable(apply)
	if err != nil {
		state.Damaged, state.Healed = err, true
		reset(x.meta)
		if x.table != nil {
			_ = x.table.Close() // It is of no use any more.
			x.table = nil
		}
		return x, state, nil
	}
	// What a commit that was not sealed left in the table goes before another one can seal it.
	if len(repairs) > 0 {
		state.Healed = true
		err := x.room(x.dir, int64(st.count))
		if err == nil {
			err = x.table.Apply(repairs, int64(st.count))
		}
		if err != nil {
			return nil, state, errors.Join(fmt.Errorf("undo a commit that was cut short: %w", err), x.Close())
		}
	}
	x.broken = false
	x.prune()
	if l.broken {
		if err := l.renew(x.seal, x.marks()); err != nil {
			return nil, state, errors.Join(fmt.Errorf("renew superblock: %w", err), x.Close())
		}
	}
	return x, state, nil
}

// learn takes in a mark of the superblock.
func (x *Index) learn(m mark) {
	switch m.kind {
	case markGone:
		x.tombs[m.id] = m.epoch
	case markVoid:
		x.voids[Void{m.id, m.epoch, m.seq}] = struct{}{}
	case markLife:
		x.lives[m.id] = max(x.lives[m.id], m.epoch)
	}
}

// marks yields all marks of the past that a rebuild needs, in any order.
func (x *Index) marks() iter.Seq[mark] {
	return func(yield func(mark) bool) {
		for page, epoch := range x.tombs {
			if !yield(mark{kind: markGone, id: page, epoch: epoch}) {
				return
			}
		}
		for v := range x.voids {
			if !yield(mark{kind: markVoid, id: v.Page, epoch: v.Epoch, seq: v.Seq}) {
				return
			}
		}
		for life, epoch := range x.lives {
			if !yield(mark{kind: markLife, id: life, epoch: epoch}) {
				return
			}
		}
	}
}

// Meta returns what the files say about the store.
func (x *Index) Meta() Meta { return x.meta }

// Broken reports whether the index takes no commit until Renew has succeeded.
func (x *Index) Broken() bool { return x.broken }

// Reserve returns the most bytes that the index of a number of pages and marks takes at any moment,
// in one directory: a table, another one at rest while it is renewed, and the superblocks.
func Reserve(t Backend, pages, marks int64) int64 {
	return t.Reserve(pages) + t.AtRest(pages) + superblockReserve(marks)
}

// Marks returns the number of records, pages and lives that the superblock tells a rebuild to leave
// out. Forget sets it to 0.
func (x *Index) Marks() int { return len(x.tombs) + len(x.voids) + len(x.lives) }

// Bytes returns the length of all files of the index together.
func (x *Index) Bytes() int64 {
	n := x.superblock.bytes()
	if x.table != nil {
		n += x.table.Bytes()
	}
	return n
}

// Verify reads the table and both copies of the superblock whole, and compares the sums. It changes
// nothing.
func (x *Index) Verify() error {
	if x.broken {
		return nil // There is nothing to check until it is renewed.
	}
	gone := x.gone
	_, err := x.load(func(Entry) {})
	x.gone = gone
	return errors.Join(err, x.superblock.verify())
}

// Close closes the files. Every commit was synced before.
func (x *Index) Close() error {
	var errs []error
	if x.table != nil {
		errs = append(errs, x.table.Close())
		x.table = nil
	}
	if x.superblock != nil {
		errs = append(errs, x.superblock.close())
	}
	x.broken = true
	return errors.Join(errs...)
}
