package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of pages.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// header is the header of a page. Sizes are in bytes.
type header struct {
	kind             int
	unpacked, packed int
	values           int // nulls included
	encoding         int
	levels           int // the encoding of definition levels, of version 1

	// Of version 2: the bytes of the levels, which are never packed, and whether the values are.
	definitions, repetitions int
	plain                    bool
}

// readHeader reads the header of a page at the start of b, and returns its length.
func readHeader(b []byte) (h header, size int, err error) {
	c := &thrift{b: b}
	levels := encRLE
	err = c.fields(func(id int, kind byte) error {
		switch id {
		case 1:
			return c.int32(kind, &h.kind)
		case 2:
			return c.int32(kind, &h.unpacked)
		case 3:
			return c.int32(kind, &h.packed)
		case 5, 7:
			return c.structure(kind, func(id int, kind byte) error {
				switch id {
				case 1:
					return c.int32(kind, &h.values)
				case 2:
					return c.int32(kind, &h.encoding)
				case 3:
					if kind == compactI32 { // of a dictionary it is another field
						return c.int32(kind, &levels)
					}
				}
				return c.skip(kind)
			})
		case 8:
			return c.structure(kind, func(id int, kind byte) error {
				switch id {
				case 1:
					return c.int32(kind, &h.values)
				case 4:
					return c.int32(kind, &h.encoding)
				case 5:
					return c.int32(kind, &h.definitions)
				case 6:
					return c.int32(kind, &h.repetitions)
				case 7:
					packed := false
					err := c.bool(kind, &packed)
					h.plain = !packed
					return err
				}
				return c.skip(kind)
			})
		}
		return c.skip(kind)
	})
	h.levels = levels
	return h, len(b) - len(c.b), err
}

// check verifies the sizes of a header against each other and against the limits.
func (h header) check(left int64) error {
	switch {
	case h.unpacked < 0 || h.packed < 0 || h.unpacked > MaxPage || h.packed > MaxPage:
		return fmt.Errorf("a page has %d bytes, unpacked %d; %d are allowed", h.packed, h.unpacked, MaxPage)
	case int64(h.packed) > left:
		return fmt.Errorf("a page of %d bytes is longer than its column", h.packed)
	case h.values < 0:
		return fmt.Errorf("a page of %d rows", h.values)
	case h.kind == pageDataV2 && (h.definitions < 0 || h.repetitions != 0 ||
		h.definitions > min(h.packed, h.unpacked)):
		return fmt.Errorf("a page of %d bytes has %d of levels", h.packed, h.definitions)
	}
	return nil
}

// pages reads the pages of a column of a row group one after another. Its methods are called by one
// goroutine.
type pages struct {
	src   io.ReaderAt
	at    int64 // of the next header, in the file
	end   int64 // behind the last page
	codec Codec
	mem   Memory

	window   []byte // what is read ahead, from
	from     int64
	packed   []byte // reused by every page that is larger than the window
	unpacked []byte // reused by every page that is packed
}

// bytes returns n bytes at a position of the file. They are valid until the next call. larger is
// used for more than the window.
func (p *pages) bytes(at int64, n int, larger *[]byte) ([]byte, error) {
	if at >= p.from && at+int64(n) <= p.from+int64(len(p.window)) {
		return p.window[at-p.from:][:n], nil
	}
	if n <= Window {
		if p.window == nil {
			p.window = make([]byte, 0, Window)
		}
		ahead := int(min(Window, p.end-at))
		p.window, p.from = p.window[:ahead], at
		if _, err := p.src.ReadAt(p.window, at); err != nil {
			p.window = p.window[:0]
			return nil, readError(err)
		}
		return p.window[:n], nil
	}
	if err := p.resize(larger, n); err != nil {
		return nil, err
	}
	if _, err := p.src.ReadAt(*larger, at); err != nil {
		return nil, readError(err)
	}
	return *larger, nil
}

func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// resize makes a buffer n bytes long. Its memory is in the budget before it is allocated.
func (p *pages) resize(buffer *[]byte, n int) error {
	if cap(*buffer) >= n {
		*buffer = (*buffer)[:n]
		return nil
	}
	p.free(buffer)
	if err := p.mem.Grow(int64(n)); err != nil {
		return err
	}
	*buffer = make([]byte, n)
	return nil
}

func (p *pages) free(buffer *[]byte) {
	p.mem.Shrink(int64(cap(*buffer)))
	*buffer = nil
}

func (p *pages) close() {
	p.free(&p.packed)
	p.free(&p.unpacked)
}

// next returns the header of the next page, and its levels and values unpacked. They are valid
// until the next call. It returns io.EOF behind the last page.
func (p *pages) next() (h header, levels, values []byte, err error) {
	for {
		if p.at >= p.end {
			return header{}, nil, nil, io.EOF
		}
		if h, err = p.header(); err != nil {
			return header{}, nil, nil, err
		}
		if h.kind == pageData || h.kind == pageDictionary || h.kind == pageDataV2 {
			break
		}
		p.at += int64(h.packed)
	}
	body, err := p.bytes(p.at, h.packed, &p.packed)
	if err != nil {
		return header{}, nil, nil, err
	}
	p.at += int64(h.packed)
	size := h.unpacked
	if h.kind == pageDataV2 {
		levels, body = body[:h.definitions], body[h.definitions:]
		size -= h.definitions
	}
	codec := p.codec
	if h.plain {
		codec = Plain
	}
	switch {
	case codec == Plain && size != len(body):
		return header{}, nil, nil, fmt.Errorf("a page has %d bytes, and its header says %d", len(body), size)
	case codec == Plain, size == 0: // packed or not, there are no values
		return h, levels, body[:size], nil
	}
	if err := p.resize(&p.unpacked, size); err != nil {
		return header{}, nil, nil, err
	}
	if err := p.mem.Grow(codec.working()); err != nil {
		return header{}, nil, nil, err
	}
	err = codec.unpack(p.unpacked, body)
	p.mem.Shrink(codec.working())
	if err != nil {
		return header{}, nil, nil, err
	}
	return h, levels, p.unpacked, nil
}

// firstHeader is the bytes that a header has at most as a rule. Eight times as many are tried until
// it is maxHeader.
const firstHeader = maxHeader / 8 / 8 / 8

// header reads the header of the next page and checks it. The page follows it.
func (p *pages) header() (header, error) {
	left := p.end - p.at
	for n := int64(firstHeader); ; n *= 8 {
		var large []byte
		b, err := p.bytes(p.at, int(min(n, left)), &large)
		if err != nil {
			p.free(&large)
			return header{}, err
		}
		h, size, err := readHeader(b)
		p.free(&large)
		if errors.Is(err, errCompactShort) && n < min(left, maxHeader) {
			continue // only the statistics of texts are that long
		}
		if err != nil {
			return header{}, fmt.Errorf("the header of a page: %w", err)
		}
		p.at += int64(size)
		return h, h.check(left - int64(size))
	}
}

// splitLevels returns the definition levels of a page of version 1, which are at its start, and the
// values behind them.
func splitLevels(h header, body []byte) (levels, values []byte, err error) {
	n := (h.values + 7) / 8
	if h.levels == encRLE {
		if len(body) < 4 {
			return nil, nil, errors.New("a page has no levels")
		}
		size := binary.LittleEndian.Uint32(body)
		body = body[4:]
		if size > uint32(len(body)) {
			return nil, nil, fmt.Errorf("a page has %d bytes of levels, and its header says %d", len(body), size)
		}
		n = int(size)
	}
	if n > len(body) {
		return nil, nil, errors.New("a page has fewer rows than its header says")
	}
	return body[:n], body[n:], nil
}
