package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// deltas reads integers that are written as differences, in blocks of miniblocks with one width
// each (DELTA_BINARY_PACKED). It allocates nothing but the slices of the caller, whatever the
// stream says.
type deltas struct {
	b                   []byte
	minis, each         int // miniblocks of a block, and numbers of a miniblock
	left                int // numbers that were not read yet
	value               int64
	begun               bool // the first number was read
	least               int64
	widths              []byte // of the miniblocks of the block that are to come
	packed              []byte // of the present miniblock
	width, bit, inBlock int    // of a number in bits, of the next number, numbers left in the miniblock
}

// maxBlock bounds the numbers of a block. Writers use 128.
const maxBlock = 1 << 20

// newDeltas reads the start of a stream of at most a number of integers.
func newDeltas(b []byte, most int) (d deltas, err error) {
	var heads [3]uint64
	for i := range heads {
		var n int
		if heads[i], n = binary.Uvarint(b); n <= 0 {
			return d, errFewValues
		}
		b = b[n:]
	}
	first, n := binary.Varint(b)
	block, minis, count := heads[0], heads[1], heads[2]
	switch {
	case n <= 0:
		return d, errFewValues
	case count == 0: // a page of nulls: some writers leave the sizes of blocks 0 then
		return deltas{b: b[n:]}, nil
	case block == 0 || block > maxBlock || minis == 0 || minis > block || block%minis != 0 || block/minis%8 != 0:
		return d, fmt.Errorf("a page has blocks of %d differences in %d parts", block, minis)
	case count > uint64(most):
		return d, fmt.Errorf("a page has %d differences, and its header says %d values", count, most)
	}
	return deltas{
		b: b[n:], minis: int(minis), each: int(block / minis), left: int(count), value: first,
	}, nil
}

func (d *deltas) miniblock() error {
	if len(d.widths) == 0 {
		least, n := binary.Varint(d.b)
		if n <= 0 || len(d.b)-n < d.minis {
			return errFewValues
		}
		d.least, d.widths, d.b = least, d.b[n:][:d.minis], d.b[n+d.minis:]
	}
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return fmt.Errorf("a page has differences of %d bits", d.width)
	}
	// The last miniblock is padded, and some writers leave the padding out.
	d.inBlock = min(d.each, d.left)
	if (d.inBlock*d.width+7)/8 > len(d.b) {
		return errFewValues
	}
	size := min(d.each/8*d.width, len(d.b))
	d.packed, d.b, d.bit = d.b[:size], d.b[size:], 0
	return nil
}

// read fills to with the next numbers.
func (d *deltas) read(to []int64) error {
	if len(to) > d.left {
		return errFewValues
	}
	for i := range to {
		if d.begun {
			if d.inBlock == 0 {
				if err := d.miniblock(); err != nil {
					return err
				}
			}
			d.value += d.least + int64(bitsAt(d.packed, d.bit, d.width))
			d.bit += d.width
			d.inBlock--
		}
		d.begun = true
		d.left--
		to[i] = d.value
	}
	return nil
}

// rest returns what follows the numbers. It decodes no number, so its time is linear in the bytes.
func (d deltas) rest() ([]byte, error) {
	for d.left--; d.left > 0; d.left -= d.inBlock {
		if err := d.miniblock(); err != nil {
			return nil, err
		}
	}
	return d.b, nil
}

// bitsAt returns the number of up to 64 bits that begins at a bit, its lowest bit first.
func bitsAt(b []byte, bit, width int) (v uint64) {
	at, shift := bit>>3, bit&7
	for i := 0; 8*i < shift+width; i++ {
		if part := uint64(b[at+i]); i == 0 {
			v = part >> shift
		} else {
			v |= part << (8*i - shift)
		}
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

// texts reads texts whose lengths come first (DELTA_LENGTH_BYTE_ARRAY), and may leave out the bytes
// that they share with the text before (DELTA_BYTE_ARRAY).
type texts struct {
	shared  deltas // the lengths of what a text shares; unused without prefixes
	lengths deltas
	b       []byte
	last    []byte // the text before, with prefixes
	arena   []byte // of the texts of the last read, with prefixes
	scratch []int64
}

// maxArena bounds the bytes of the texts of one read that share bytes.
const maxArena = 2 * MaxPage

// newTexts begins a page of at most a number of texts.
func newTexts(b []byte, most int, prefixes bool, reuse *texts) (t *texts, err error) {
	t = &texts{arena: reuse.arena, scratch: reuse.scratch}
	if prefixes {
		if t.shared, err = newDeltas(b, most); err != nil {
			return t, err
		}
		if b, err = t.shared.rest(); err != nil {
			return t, err
		}
	}
	if t.lengths, err = newDeltas(b, most); err != nil {
		return t, err
	}
	t.b, err = t.lengths.rest()
	return t, err
}

// read fills to with the next texts, which point into the page without prefixes. The memory of
// others is taken from mem, and stays taken until the arena is freed.
func (t *texts) read(to [][]byte, prefixes bool, mem Memory) error {
	n := len(to)
	t.scratch = resize(t.scratch, 2*n)
	shared, lengths := t.scratch[:n], t.scratch[n:]
	clear(shared)
	if prefixes {
		if err := t.shared.read(shared); err != nil {
			return err
		}
	}
	if err := t.lengths.read(lengths); err != nil {
		return err
	}
	total, before, left := int64(0), int64(len(t.last)), int64(len(t.b))
	for i := range n {
		if shared[i] < 0 || shared[i] > before || lengths[i] < 0 || lengths[i] > left {
			return errors.New("a page has a text that is longer than it")
		}
		left -= lengths[i]
		before = shared[i] + lengths[i]
		if total += before; total > maxArena && prefixes {
			return fmt.Errorf("%d of its texts have more than %d bytes", n, maxArena)
		}
	}
	if !prefixes {
		for i := range to {
			to[i], t.b = t.b[:lengths[i]:lengths[i]], t.b[lengths[i]:]
		}
		return nil
	}
	// The text before this read is in the old arena, so it moves to the start of the new one.
	kept := len(t.last)
	if need := int64(kept) + total; need > int64(cap(t.arena)) {
		size := min(2*need, math.MaxInt32)
		if err := mem.Grow(size); err != nil {
			return err
		}
		arena := make([]byte, size)
		copy(arena, t.last)
		mem.Shrink(int64(cap(t.arena)))
		t.arena = arena
	} else {
		t.arena = t.arena[:cap(t.arena)]
		copy(t.arena, t.last)
	}
	last, at := t.arena[:kept], kept
	for i := range to {
		text := t.arena[at : at+int(shared[i]+lengths[i])]
		copy(text, last[:shared[i]])
		copy(text[shared[i]:], t.b[:lengths[i]])
		t.b = t.b[lengths[i]:]
		to[i], last, at = text, text, at+len(text)
	}
	t.last = last
	return nil
}
