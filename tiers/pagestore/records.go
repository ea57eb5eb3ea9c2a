package pagestore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// records writes and reads the records of pages in the directories of the tiers: a slot, a header
// that says which page and epoch it holds, and the encoded and perhaps encrypted content. It counts
// the failures of the tiers. It does not know which record of a page is current; the pageTable
// does. Its fields are constant once the store is open, so all methods may be called from several
// goroutines at once.
type records struct {
	pageSize int
	id       [16]byte    // of the store, in every header
	aead     cipher.AEAD // nil without encryption
	dirs     []*tierDir  // by tier
	failures []atomic.Uint64
	bufs     sync.Pool // *buffer
}

// takeBuffer returns a buffer, which is the caller's until freeBuffer.
func (r *records) takeBuffer() *buffer { return r.bufs.Get().(*buffer) }

// freeBuffer gives a buffer back, and keeps nothing of the caller's memory.
func (r *records) freeBuffer(b *buffer) {
	clear(b.rec[:])
	r.bufs.Put(b)
}

// syncDirs syncs every tier that has something to sync, and counts failures against it.
func (r *records) syncDirs() error {
	var errs []error
	for i, d := range r.dirs {
		if err := d.Sync(); err != nil {
			r.fail(i, err)
			errs = append(errs, fmt.Errorf("tier %s: %w", d.name, err))
		}
	}
	return errors.Join(errs...)
}

// write encodes a page into a fresh slot of a tier. tried reports whether the medium may hold a
// part of the record, after an error, too.
func (r *records) write(tier int, page uint64, w writing, content []byte, kind Kind) (_ change, tried bool, err error) {
	d := r.dirs[tier]
	buf := r.takeBuffer()
	defer r.freeBuffer(buf)
	h, body, err := r.encode(d, buf, content, kind)
	if err != nil {
		return change{}, false, err
	}
	h.Life, h.Seq = w.Life, w.Seq
	return r.place(d, tier, page, w.epoch, h, buf, body)
}

// place writes a body as the record of a page and an epoch into a fresh slot. The slot is the
// caller's, who puts the change into the table or frees the slot.
func (r *records) place(d *tierDir, tier int, page, epoch uint64, h recordHeader, buf *buffer, body []byte) (_ change,
	tried bool, err error,
) {
	l, err := d.Alloc(h.Blocks())
	if err != nil {
		r.fail(tier, err)
		return change{}, false, fmt.Errorf("tier %s: %w", d.name, err)
	}
	body, err = sealRecord(buf.head, body, h, r.identity(l, page, epoch), r.aead)
	if err == nil {
		var n uint64
		if n, err = d.Write(l, buf.record(body)); err == nil {
			return change{entry: pack(tier, l, epoch, index.Stamp{Life: h.Life, Seq: h.Seq}.Check()), write: n}, true,
				nil
		}
	}
	d.Free(l)
	r.fail(tier, err)
	return change{}, true, fmt.Errorf("tier %s: %w", d.name, err)
}

// copyRecord copies the record of a page at a place into a fresh slot of the same tier, in the same
// encoding.
func (r *records) copyRecord(page uint64, e entry) (change, error) {
	d := r.dirs[e.tier()]
	buf := r.takeBuffer()
	defer r.freeBuffer(buf)
	h, _, err := r.fetch(d, page, e, buf, buf.room(r.pageSize))
	if err != nil {
		return change{}, err
	}
	c, _, err := r.place(d, e.tier(), page, e.epoch(), h, buf, buf.body)
	return c, err
}

// fetch reads the record of a page at a place and checks it. body is aligned and at least as long
// as the body of the record; the stored bytes that fetch returns are a part of it.
func (r *records) fetch(d *tierDir, page uint64, e entry, buf *buffer, body []byte) (recordHeader, []byte, error) {
	whole := (int(e.loc().Blocks) - 1) * vfs.BlockSize
	err := d.Read(e.loc(), buf.record(body[:whole]))
	if err != nil {
		err = fmt.Errorf("%w: %w", tiers.ErrMedium, err)
	}
	var h recordHeader
	var stored []byte
	if err == nil {
		h, stored, err = unsealRecord(buf.head, body[:whole], r.identity(e.loc(), page, e.epoch()), r.aead)
	}
	if err != nil {
		return h, nil, fmt.Errorf("tier %s: %w", d.name, err)
	}
	return h, stored, nil
}

// encode returns the stored form of a page, raw if no codec saves enough, as the body of a record.
// The body is content itself if it is raw, aligned and not to be encrypted, so that nothing is
// copied; else it is in buf.
func (r *records) encode(d *tierDir, buf *buffer, content []byte, kind Kind) (recordHeader, []byte, error) {
	h := recordHeader{Elem: kind.Elem, Class: kind.Class}
	if d.spec.ID != Raw && d.chooser.Try(kind.Class) {
		// The room is what pays: a sixteenth of the page less, and at least a block.
		room := (len(content) - max(len(content)/minSaving, vfs.BlockSize)) / vfs.BlockSize * vfs.BlockSize
		body := buf.room(r.pageSize)
		c := d.coders.Get()
		n, id, shuffle, err := c.Encode(body[:room], content, int(kind.Elem))
		d.coders.Put(c)
		if err != nil {
			return h, nil, err
		}
		d.chooser.Learn(kind.Class, n > 0)
		if n > 0 {
			h.Stored, h.Codec, h.Shuffled = n, id, shuffle > 1
			return h, body, nil
		}
	}
	h.Stored = len(content)
	if r.aead == nil && vfs.Aligned(content) {
		return h, content, nil
	}
	body := buf.room(r.pageSize)
	copy(body, content)
	return h, body, nil
}

func (r *records) identity(l loc, page, epoch uint64) recordIdentity {
	return recordIdentity{
		Store: r.id, PageSize: r.pageSize, Segment: l.Segment, Slot: l.Slot, Page: page, Epoch: epoch,
	}
}

// fail counts an error of a tier. A full tier does not count as a failure.
func (r *records) fail(tier int, err error) {
	if !errors.Is(err, tiers.ErrFull) {
		r.failures[tier].Add(1)
	}
}

// readAt reads the record of a page at a place and decodes it into dst; a nil dst only checks it.
func (r *records) readAt(page uint64, e entry, dst []byte) (recordHeader, error) {
	d := r.dirs[e.tier()]
	buf := r.takeBuffer()
	defer r.freeBuffer(buf)
	if r.aead == nil && dst != nil && int(e.loc().Blocks) == blocksFor(len(dst)) && vfs.Aligned(dst) {
		// As long as a raw page, so most likely one, which is read into dst.
		h, stored, err := r.fetch(d, page, e, buf, dst)
		if err != nil || h.Codec == Raw && h.Shuffle() == 1 && len(stored) == len(dst) {
			return h, err
		}
	}
	h, stored, err := r.fetch(d, page, e, buf, buf.room(r.pageSize))
	if err != nil || dst == nil {
		return h, err
	}
	c := d.coders.Get()
	defer d.coders.Put(c)
	if err := c.Decode(dst, stored, h.Codec, h.Shuffle()); err != nil {
		return h, fmt.Errorf("tier %s: %w: %w", d.name, tiers.ErrCorrupt, err)
	}
	return h, nil
}

// openKey sets up encryption and returns the check value that the index keeps to tell keys apart.
// An empty key means no encryption and a check of zeros.
func (r *records) openKey(key []byte) (check [32]byte, err error) {
	if len(key) == 0 {
		return check, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return check, fmt.Errorf("key: %w", err)
	}
	if r.aead, err = cipher.NewGCM(block); err != nil {
		return check, fmt.Errorf("key: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("exoswarm tiers key check"))
	mac.Write(r.id[:])
	return [32]byte(mac.Sum(nil)), nil
}
