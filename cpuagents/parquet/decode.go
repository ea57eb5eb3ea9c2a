package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Values are values of one type. Only the slice of the type of the column has any.
type Values struct {
	Bools   []bool
	Int32s  []int32
	Int64s  []int64
	Int96s  [][12]byte
	Floats  []float32
	Doubles []float64
	Texts   [][]byte
}

var errFewValues = errors.New("a page has fewer values than rows")

// hybrid reads numbers of up to 32 bits, which are written as runs of one number and as packed
// numbers. A damaged run is an error, and no number is read twice.
type hybrid struct {
	b     []byte
	width int // bits of a number

	repeat int    // numbers left of a run of one number
	value  uint32 // that number
	packed []byte // the bytes of packed numbers
	bit    int    // where the next one begins
	left   int    // packed numbers that are left
}

func (r *hybrid) read(to []uint32) error {
	for len(to) > 0 {
		switch {
		case r.repeat > 0:
			n := min(r.repeat, len(to))
			for i := range to[:n] {
				to[i] = r.value
			}
			r.repeat -= n
			to = to[n:]
		case r.left > 0:
			n := min(r.left, len(to))
			for i := range to[:n] {
				to[i] = r.unpack()
			}
			r.left -= n
			to = to[n:]
		default:
			if err := r.run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// unpack returns the next packed number. The bits of a number are from the lowest one up.
func (r *hybrid) unpack() uint32 {
	at, shift := r.bit>>3, r.bit&7
	r.bit += r.width
	var word uint64
	if at+8 <= len(r.packed) {
		word = binary.LittleEndian.Uint64(r.packed[at:])
	} else {
		for i, b := range r.packed[at:] {
			word |= uint64(b) << (8 * i)
		}
	}
	return uint32(word >> shift & (1<<r.width - 1))
}

func (r *hybrid) run() error {
	head, n := binary.Uvarint(r.b)
	if n <= 0 {
		return errFewValues
	}
	r.b = r.b[n:]
	count := head >> 1
	if head&1 == 0 {
		size := (r.width + 7) / 8
		if count == 0 || count > math.MaxInt32 || size > len(r.b) {
			return errFewValues
		}
		r.repeat, r.value = int(count), 0
		for i, b := range r.b[:size] {
			r.value |= uint32(b) << (8 * i)
		}
		r.b = r.b[size:]
		return nil
	}
	// Packed numbers come in groups of eight. The last group may be cut.
	size := uint64(len(r.b))
	if count == 0 || count > math.MaxInt32/8 {
		return errFewValues
	}
	if need := count * uint64(r.width); need <= size {
		size = need
		r.left = int(count) * 8
	} else {
		r.left = int(size) * 8 / r.width
	}
	if r.left == 0 {
		return errFewValues
	}
	r.packed, r.b, r.bit = r.b[:size], r.b[size:], 0
	return nil
}

type decoder struct {
	of    Type
	b     []byte // plain values that are left
	bit   int    // of plain booleans
	split int    // values of a page whose bytes are split, 0 for another page
	at    int    // the next one of them

	width    int    // bytes of a value of FixedLenByteArray
	integers deltas // of a page of differences
	texts    *texts // of a page of texts with differences
	encoding int
	differs  bool    // the page has differences
	runs     hybrid  // of a page of booleans
	wide     []int64 // reused
	mem      Memory

	indexed bool // the values are indexes into the dictionary
	indexes hybrid
	scratch []uint32
}

// start begins a page with values in an encoding.
// values is the most values that the page has.
func (d *decoder) start(encoding, values int, b []byte) (err error) {
	*d = decoder{
		of: d.of, b: b, scratch: d.scratch, width: d.width, mem: d.mem, texts: d.texts, encoding: encoding,
		wide: d.wide,
	}
	switch encoding {
	case encDelta, encDeltaLength, encDeltaTexts:
		if d.differs = true; len(b) == 0 { // a page of nulls
			return nil
		}
		switch integer := d.of == Int32 || d.of == Int64; {
		case encoding == encDelta && integer:
			d.integers, err = newDeltas(b, values)
			return err
		case encoding == encDeltaLength && d.of == ByteArray,
			encoding == encDeltaTexts && (d.of == ByteArray || d.of == FixedLenByteArray):
			if d.texts == nil {
				d.texts = &texts{}
			}
			d.texts, err = newTexts(b, values, encoding == encDeltaTexts, d.texts)
			return err
		}
		return unreadable(encoding)
	case encRLE:
		if d.of != Boolean {
			return unreadable(encoding)
		}
		if len(b) < 4 { // a page of nulls
			return nil
		}
		// The length before the runs is the length of the rest of the page.
		d.runs = hybrid{b: b[4:], width: 1}
	case encPlain:
	case encPlainDictionary, encRLEDictionary:
		d.indexed = true
		if len(b) == 0 { // a page of nulls
			return nil
		}
		if b[0] > 32 {
			return fmt.Errorf("a page has indexes of %d bits", b[0])
		}
		d.indexes = hybrid{b: b[1:], width: int(b[0])}
	case encSplit:
		size := d.size()
		if size == 0 || d.of == Int96 || len(b)%size != 0 {
			return fmt.Errorf("a page of %d bytes splits the bytes of %s", len(b), d.of)
		}
		d.split = len(b) / size
	default:
		return unreadable(encoding)
	}
	return nil
}

func unreadable(encoding int) error {
	name := fmt.Sprintf("encoding %d", encoding)
	if encoding >= 0 && encoding < len(encodingNames) {
		name = encodingNames[encoding]
	}
	return fmt.Errorf("its pages are written with %s: %w", name, ErrEncoding)
}

// size returns the bytes of a plain value; 0 for a type whose values differ, or are bits.
func (t Type) size() int {
	switch t {
	case Int32, Float:
		return 4
	case Int64, Double:
		return 8
	case Int96:
		return 12
	}
	return 0
}

func (d *decoder) read(n int, v, dictionary *Values) error {
	switch {
	case d.indexed:
		return d.readIndexed(n, v, dictionary)
	case d.split > 0:
		return d.readSplit(n, v)
	case d.differs:
		return d.readDifferences(n, v)
	case d.encoding == encRLE:
		d.scratch = resize(d.scratch, n)
		if err := d.runs.read(d.scratch); err != nil {
			return err
		}
		return pick(&v.Bools, d.scratch, []bool{false, true})
	}
	return d.readPlain(n, v)
}

// size returns the bytes of a plain value of the column; 0 where values differ, or are bits.
func (d *decoder) size() int {
	if d.of == FixedLenByteArray {
		return d.width
	}
	return d.of.size()
}

func (d *decoder) readDifferences(n int, v *Values) error {
	if d.encoding != encDelta {
		if d.texts == nil {
			return errFewValues
		}
		v.Texts = resize(v.Texts, n)
		if err := d.texts.read(v.Texts, d.encoding == encDeltaTexts, d.mem); err != nil {
			return err
		}
		for _, t := range v.Texts {
			if d.of == FixedLenByteArray && len(t) != d.width {
				return fmt.Errorf("a value has %d bytes of %d", len(t), d.width)
			}
		}
		return nil
	}
	if d.of == Int64 {
		v.Int64s = resize(v.Int64s, n)
		return d.integers.read(v.Int64s)
	}
	d.wide = resize(d.wide, n)
	if err := d.integers.read(d.wide); err != nil {
		return err
	}
	v.Int32s = resize(v.Int32s, n)
	for i, value := range d.wide {
		v.Int32s[i] = int32(value)
	}
	return nil
}

func (d *decoder) readPlain(n int, v *Values) error {
	if size := d.size(); size > 0 && n > len(d.b)/size {
		return errFewValues
	}
	le := binary.LittleEndian
	switch d.of {
	case Boolean:
		v.Bools = resize(v.Bools, n)
		if d.bit+n > 8*len(d.b) {
			return errFewValues
		}
		for i := range v.Bools {
			v.Bools[i] = d.b[d.bit>>3]>>(d.bit&7)&1 == 1
			d.bit++
		}
	case Int32:
		v.Int32s = resize(v.Int32s, n)
		for i := range v.Int32s {
			v.Int32s[i] = int32(le.Uint32(d.b[4*i:]))
		}
	case Int64:
		v.Int64s = resize(v.Int64s, n)
		for i := range v.Int64s {
			v.Int64s[i] = int64(le.Uint64(d.b[8*i:]))
		}
	case Int96:
		v.Int96s = resize(v.Int96s, n)
		for i := range v.Int96s {
			v.Int96s[i] = [12]byte(d.b[12*i:])
		}
	case Float:
		v.Floats = resize(v.Floats, n)
		for i := range v.Floats {
			v.Floats[i] = math.Float32frombits(le.Uint32(d.b[4*i:]))
		}
	case Double:
		v.Doubles = resize(v.Doubles, n)
		for i := range v.Doubles {
			v.Doubles[i] = math.Float64frombits(le.Uint64(d.b[8*i:]))
		}
	case ByteArray:
		return d.readTexts(n, v)
	case FixedLenByteArray:
		v.Texts = resize(v.Texts, n)
		for i := range v.Texts {
			v.Texts[i] = d.b[d.width*i:][:d.width:d.width]
		}
	default:
		return fmt.Errorf("it is %s", d.of)
	}
	d.b = d.b[d.size()*n:]
	return nil
}

func (d *decoder) readTexts(n int, v *Values) error {
	if n > len(d.b)/4 {
		return errFewValues
	}
	v.Texts = resize(v.Texts, n)
	for i := range v.Texts {
		if len(d.b) < 4 {
			return errFewValues
		}
		size := binary.LittleEndian.Uint32(d.b)
		d.b = d.b[4:]
		if size > uint32(len(d.b)) {
			return errFewValues
		}
		v.Texts[i], d.b = d.b[:size:size], d.b[size:]
	}
	return nil
}

// readSplit reads values whose first bytes come before their second ones, and so on.
func (d *decoder) readSplit(n int, v *Values) error {
	if d.at+n > d.split {
		return errFewValues
	}
	size := d.size()
	whole := decoder{of: d.of, width: d.width, b: make([]byte, 0, n*size)}
	for i := d.at; i < d.at+n; i++ {
		for j := range size {
			whole.b = append(whole.b, d.b[j*d.split+i])
		}
	}
	d.at += n
	return whole.readPlain(n, v)
}

func (d *decoder) readIndexed(n int, v, from *Values) error {
	d.scratch = resize(d.scratch, n)
	if err := d.indexes.read(d.scratch); err != nil {
		return err
	}
	switch d.of {
	case Boolean:
		return pick(&v.Bools, d.scratch, from.Bools)
	case Int32:
		return pick(&v.Int32s, d.scratch, from.Int32s)
	case Int64:
		return pick(&v.Int64s, d.scratch, from.Int64s)
	case Int96:
		return pick(&v.Int96s, d.scratch, from.Int96s)
	case Float:
		return pick(&v.Floats, d.scratch, from.Floats)
	case Double:
		return pick(&v.Doubles, d.scratch, from.Doubles)
	}
	return pick(&v.Texts, d.scratch, from.Texts)
}

func pick[T any](to *[]T, indexes []uint32, dictionary []T) error {
	*to = resize(*to, len(indexes))
	for i, at := range indexes {
		if at >= uint32(len(dictionary)) {
			return fmt.Errorf("value %d of a dictionary of %d", at, len(dictionary))
		}
		(*to)[i] = dictionary[at]
	}
	return nil
}

// resize returns a slice of n values, in the memory of s if that is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
