package parquet

import (
	"errors"
	"fmt"
	"io"
)

// MaxFixed bounds the bytes of a value of FixedLenByteArray.
const MaxFixed = 64

// dictionaryValue is the most bytes of a decoded value of a dictionary, which is a slice.
const dictionaryValue = 24

// Chunk reads the values of a column of one row group, page by page. One goroutine calls its
// methods.
type Chunk struct {
	column Column
	pages  pages
	values decoder

	left   int // rows of the page that have not been read
	levels levels

	dictionary Values
	has        bool   // there is a dictionary
	held       int64  // memory of the dictionary
	page       []byte // the dictionary as it was read, into which texts point
}

type levels struct {
	runs    hybrid
	packed  []byte // of an older encoding, from the highest bit down; nil for runs
	at      int
	scratch []uint32
}

// NewChunk returns a reader of a column of a row group. limit is where the footer begins in the
// file. Nothing is read yet. A column that is nested, encrypted, in another file or packed with
// another codec is an error. The caller closes the chunk.
func NewChunk(src io.ReaderAt, limit int64, c Column, m ChunkMeta, mem Memory) (*Chunk, error) {
	if m.Values == 0 { // some writers leave out where it is
		m.start, m.size = limit, 0
	}
	switch {
	case c.Nested:
		return nil, errors.New("it is nested")
	case m.encrypted:
		return nil, ErrEncrypted
	case m.foreign:
		return nil, errors.New("it is in another file")
	case !m.Codec.Readable():
		return nil, fmt.Errorf("it is packed with %s", m.Codec)
	case c.Type == FixedLenByteArray && (c.Size < 1 || c.Size > MaxFixed):
		return nil, fmt.Errorf("it has values of %d bytes", c.Size)
	case m.start < int64(len(magic)) || m.size < 0 || m.start > limit || m.size > limit-m.start:
		return nil, fmt.Errorf("it has %d bytes at %d, and the data end at %d", m.size, m.start, limit)
	}
	return &Chunk{
		column: c, values: decoder{of: c.Type, width: c.Size, mem: mem},
		pages: pages{src: src, at: m.start, end: m.start + m.size, codec: m.Codec, mem: mem},
	}, nil
}

// Close gives the memory of the chunk back.
func (c *Chunk) Close() {
	c.pages.close()
	c.pages.free(&c.page)
	if c.values.texts != nil {
		c.pages.free(&c.values.texts.arena)
	}
	c.pages.mem.Shrink(c.held)
	c.held, c.dictionary = 0, Values{}
}

// Read reads the next rows, at most as many as present has, and all of one page. It reports in
// present which rows have a value, and reads these values into v. They are valid until the next
// call. It returns io.EOF behind the last row.
func (c *Chunk) Read(present []bool, v *Values) (rows, values int, err error) {
	for c.left == 0 {
		if err := c.next(); err != nil {
			return 0, 0, err
		}
	}
	rows = min(len(present), c.left)
	values = rows
	if c.column.Optional {
		if values, err = c.levels.read(present[:rows]); err != nil {
			return 0, 0, err
		}
	} else {
		for i := range present[:rows] {
			present[i] = true
		}
	}
	c.left -= rows
	if values > 0 {
		err = c.values.read(values, v, &c.dictionary)
	}
	return rows, values, err
}

// next begins the next page of data. It reads the dictionary before it.
func (c *Chunk) next() error {
	h, definitions, body, err := c.pages.next()
	if err != nil {
		return err
	}
	if h.kind == pageDictionary {
		if err := c.readDictionary(h, body); err != nil {
			return err
		}
		return nil
	}
	if c.column.Optional {
		if h.kind == pageData {
			if definitions, body, err = splitLevels(h, body); err != nil {
				return err
			}
		}
		c.levels = levels{runs: hybrid{b: definitions, width: 1}, scratch: c.levels.scratch}
		if h.kind == pageData && h.levels == encBitPacked {
			c.levels.packed = definitions
		} else if h.kind == pageData && h.levels != encRLE {
			return unreadable(h.levels)
		}
	}
	if err := c.values.start(h.encoding, h.values, body); err != nil {
		return err
	}
	if c.values.indexed && !c.has && len(body) > 0 {
		return errors.New("its pages refer to a dictionary that is missing")
	}
	c.left = h.values
	return nil
}

// readDictionary decodes a dictionary. The pages after it refer to its values, so its bytes are
// kept apart from theirs. A value takes at least one byte of the page, so a larger number of values
// is damage.
func (c *Chunk) readDictionary(h header, body []byte) error {
	if c.has {
		return errors.New("it has two dictionaries")
	}
	if h.encoding != encPlain && h.encoding != encPlainDictionary {
		return unreadable(h.encoding)
	}
	if h.values > 8*len(body) || c.column.Type != Boolean && h.values > len(body) {
		return fmt.Errorf("a dictionary of %d values in %d bytes", h.values, len(body))
	}
	need := dictionaryValue * int64(h.values)
	if err := c.pages.mem.Grow(need); err != nil {
		return err
	}
	c.held, c.has = need, true
	if err := c.pages.resize(&c.page, len(body)); err != nil {
		return err
	}
	copy(c.page, body)
	d := decoder{of: c.column.Type, width: c.column.Size, b: c.page}
	return d.readPlain(h.values, &c.dictionary)
}

// read reports which rows have a value, and returns their number.
func (l *levels) read(present []bool) (values int, err error) {
	if l.packed != nil {
		if l.at+len(present) > 8*len(l.packed) {
			return 0, errFewValues
		}
		for i := range present {
			if present[i] = l.packed[l.at>>3]>>(7-l.at&7)&1 == 1; present[i] {
				values++
			}
			l.at++
		}
		return values, nil
	}
	l.scratch = resize(l.scratch, len(present))
	if err := l.runs.read(l.scratch); err != nil {
		return 0, fmt.Errorf("a page has fewer rows than its header says: %w", err)
	}
	for i, level := range l.scratch {
		// A run of one number has whole bytes, so that another level is damage.
		if level > 1 {
			return 0, fmt.Errorf("a row has level %d of 1", level)
		}
		if present[i] = level == 1; present[i] {
			values++
		}
	}
	return values, nil
}

// Path returns the name of the column.
func (c *Chunk) Path() string { return c.column.Path }
