package index

import (
	"bytes"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

type reader struct {
	x     *superblock
	sizes [2]int64
	// damaged: a batch had to be taken from the second copy, or the copies end at different places.
	damaged bool
	// zeroTail: nothing but zeros follows the last commit on either copy.
	zeroTail bool
}

// run applies every complete commit. Entries of the snapshot are applied as they come, since an
// incomplete snapshot discards all of them; entries of later commits once their commit is read.
func (r *reader) run(apply func(mark)) (st seal, err error) {
	x := r.x
	var pending []mark
	start, end, seq := x.end, x.end, x.seq
	for {
		b, err := r.next()
		if err != nil {
			return st, err
		}
		if b == nil {
			break
		}
		for at := 0; at < len(b.entries); at += entryBytes {
			e := decodeMark(b.entries[at:])
			if x.snapshot == 0 {
				apply(e)
			} else {
				pending = append(pending, e)
			}
		}
		if b.kind == kindCommit {
			for _, e := range pending {
				apply(e)
			}
			pending = pending[:0]
			st = b.seal
			st.Note = append([]byte(nil), b.Note...)
			start, end, seq = end, x.end, x.seq
			if x.snapshot == 0 {
				x.snapshot = end
			}
		}
	}
	if x.snapshot == 0 {
		return st, ErrNone
	}
	x.end, x.seq = end, seq
	// A crash may have left the last commit on one copy only; the one before is on both.
	same, err := r.compare(start, end)
	if err != nil {
		return st, err
	}
	r.damaged = r.damaged || !same
	r.zeroTail, err = r.scanTail()
	return st, err
}

// next reads the batch at x.end from the first copy that has it whole, or nil at the end of the
// log.
func (r *reader) next() (*batch, error) {
	x := r.x
	var got *batch
	for i, c := range x.copies {
		if c == nil {
			r.damaged = true
			continue
		}
		b, err := r.readBatch(c, r.sizes[i], x.end)
		if err != nil {
			return nil, err
		}
		if b != nil && b.gen == x.gen && b.seq == x.seq {
			got = b
			r.damaged = r.damaged || i > 0
			break
		}
		// Either the end of the log or damage to this copy: the other one knows.
	}
	if got == nil {
		return nil, nil //nolint:nilnil // The end of the log is no error and no batch.
	}
	x.end += got.length
	x.seq++
	return got, nil
}

// readBatch reads the batch at an offset of one copy, or nil when there is none that is whole.
func (r *reader) readBatch(c *file, size, off int64) (*batch, error) {
	x := r.x
	if off+vfs.BlockSize > size {
		return nil, nil //nolint:nilnil // As above.
	}
	x.buf = grow(x.buf, vfs.BlockSize)
	if _, err := c.ReadAt(x.buf, off); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.path, err)
	}
	n := batchLen(x.buf)
	if n == 0 || off+int64(n) > size {
		return nil, nil //nolint:nilnil // As above.
	}
	x.buf = grow(x.buf, n)
	if _, err := c.ReadAt(x.buf, off); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.path, err)
	}
	b, ok := decodeBatch(x.buf)
	if !ok {
		return nil, nil //nolint:nilnil // As above.
	}
	return b, nil
}

func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

var zeros [vfs.BlockSize]byte

// scanTail reads what follows the last commit. A batch of a later number there means that the log
// was longer: an append starts only after the one before was durable, so this is damage to both
// copies and not a torn write.
func (r *reader) scanTail() (zero bool, err error) {
	x := r.x
	zero = true
	block := make([]byte, vfs.BlockSize)
	for i, c := range x.copies {
		if c == nil {
			continue
		}
		for off := x.end; off+vfs.BlockSize <= r.sizes[i]; off += vfs.BlockSize {
			if _, err := c.ReadAt(block, off); err != nil {
				return false, fmt.Errorf("read %s: %w", c.path, err)
			}
			if bytes.Equal(block, zeros[:]) {
				continue
			}
			zero = false
			if batchLen(block) == 0 {
				continue
			}
			b, err := r.readBatch(c, r.sizes[i], off)
			if err != nil {
				return false, err
			}
			// Parts of the commit that was being appended may stand here, whole and in any order,
			// but no second commit.
			if b != nil && b.gen == x.gen && b.seq > x.seq && r.afterCommit(off, b.seq) {
				return false, fmt.Errorf("batch %d follows damage at batch %d: %w", b.seq, x.seq, tiers.ErrCorrupt)
			}
		}
	}
	return zero, nil
}

// afterCommit reports whether a batch at off was written after a commit at the end of the log was
// acknowledged. All batches of a commit but the last hold partEntries, so the batches of a commit
// that was cut short start at multiples of a full part from the end of the log.
func (r *reader) afterCommit(off int64, seq uint64) bool {
	part := int64(roundUp(batchHeader + partEntries*entryBytes))
	return off-r.x.end != int64(seq-r.x.seq)*part
}

// compare reports whether both copies hold the same bytes in a range that one of them holds
// rightly. It returns false if a copy is missing or too short.
func (r *reader) compare(from, to int64) (bool, error) {
	a, b := r.x.copies[0], r.x.copies[1]
	if a == nil || b == nil || to > r.sizes[0] || to > r.sizes[1] {
		return false, nil
	}
	p, q := make([]byte, 1<<16), make([]byte, 1<<16)
	for ; from < to; from += int64(len(p)) {
		n := min(int64(len(p)), to-from)
		if _, err := a.ReadAt(p[:n], from); err != nil {
			return false, fmt.Errorf("read %s: %w", a.path, err)
		}
		if _, err := b.ReadAt(q[:n], from); err != nil {
			return false, fmt.Errorf("read %s: %w", b.path, err)
		}
		if !bytes.Equal(p[:n], q[:n]) {
			return false, nil
		}
	}
	return true, nil
}
