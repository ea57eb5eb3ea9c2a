package pages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// packedPage is a page without its zeros: for each part the offset and the length in bytes, both as
// varints, and the bytes.
type packedPage struct {
	page uint64
	data []byte
}

// packBlock is the unit, in bytes, in which zeros are left out. A page of 2 MiB with the 8 kB of
// state of 1,000 agents takes some 9 kB.
const packBlock = 128

func packPage(to, page []byte) []byte {
	for at := 0; at < len(page); {
		end := min(at+packBlock, len(page))
		if zeros(page[at:end]) {
			at = end
			continue
		}
		first := at
		for at < len(page) && !zeros(page[at:min(at+packBlock, len(page))]) {
			at = min(at+packBlock, len(page))
		}
		to = binary.AppendUvarint(to, uint64(first))
		to = binary.AppendUvarint(to, uint64(at-first))
		to = append(to, page[first:at]...)
	}
	return to
}

// unpackPage writes a packed page over a page of zeros.
func unpackPage(page, packed []byte) error {
	for len(packed) > 0 {
		first, n := binary.Uvarint(packed)
		if n <= 0 {
			return errors.New("a parked page is damaged")
		}
		packed = packed[n:]
		size, n := binary.Uvarint(packed)
		if n <= 0 || size > uint64(len(packed)-n) || first > uint64(len(page)) || size > uint64(len(page))-first {
			return errors.New("a parked page is damaged")
		}
		copy(page[first:], packed[n:n+int(size)])
		packed = packed[n+int(size):]
	}
	return nil
}

// zeros reports whether a block has only zeros.
func zeros(block []byte) bool { return bytes.Equal(block, zeroBlock[:len(block)]) }

var zeroBlock [packBlock]byte

// pagePool reuses page buffers: parking and waking thousands of shards would fill the heap with
// them.
var pagePool sync.Pool

// takePage returns a buffer with undefined content. The caller returns it with givePage.
func takePage(size int) []byte {
	if buf, is := pagePool.Get().(*[]byte); is && cap(*buf) >= size {
		return (*buf)[:size]
	}
	return make([]byte, size)
}

func givePage(buf []byte) { pagePool.Put(&buf) }

// Pack returns copies of the pages that exist.
func (m *Memory) Pack(ctx context.Context) (Packed, error) {
	var all Packed
	buf := takePage(m.pageBytes)
	defer givePage(buf)
	for page, made := range m.made {
		if !made {
			continue
		}
		if err := m.Read(ctx, uint64(page), buf); err != nil {
			return nil, err
		}
		data := packPage(nil, buf)
		all = append(all, packedPage{uint64(page), append(make([]byte, 0, len(data)), data...)})
	}
	return all, nil
}

// Unpack writes packed pages. The memory is open, and has no other pages.
func (m *Memory) Unpack(ctx context.Context, all Packed) error {
	buf := takePage(m.pageBytes)
	defer givePage(buf)
	for _, p := range all {
		clear(buf)
		if err := unpackPage(buf, p.data); err != nil {
			return fmt.Errorf("page %d: %w", p.page, err)
		}
		if err := m.Write(ctx, p.page, buf); err != nil {
			return err
		}
	}
	return nil
}

// Packed are pages without their zeros, in the order of their numbers.
type Packed []packedPage

// Bytes returns how many bytes the packed pages take in memory, approximately.
func (p Packed) Bytes() (n int64) {
	for _, page := range p {
		n += int64(len(page.data)) + 64
	}
	return n
}

// Read copies a page into buf, which has the length of a page. A page that is not among the packed
// ones is zeros. Several goroutines may read at the same time.
func (p Packed) Read(page uint64, buf []byte) error {
	clear(buf)
	i, found := slices.BinarySearchFunc(p, page, func(one packedPage, page uint64) int {
		return cmp.Compare(one.page, page)
	})
	if !found {
		return nil
	}
	if err := unpackPage(buf, p[i].data); err != nil {
		return fmt.Errorf("page %d: %w", page, err)
	}
	return nil
}
