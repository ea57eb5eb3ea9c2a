package rows

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	pqfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
)

// Limits of a Parquet source, in bytes. Writers make pages of 1 MiB by default.
const (
	// maxParquetFooter bounds the description of the file, maxParquetPage one page, packed and
	// unpacked, and maxParquetHeader the header of a page.
	maxParquetFooter = 16 << 20
	maxParquetPage   = 32 << 20
	maxParquetHeader = 256 << 10
)

// Memory of a Parquet source, in bytes: the read-ahead of a column, and the memory that the library
// uses for a structure of the footer. For the smallest structure, of one byte, it uses 400.
const (
	parquetBuffer = 64 << 10
	parquetStruct = 512
)

// parquetReader reads the wanted columns of a Parquet file, row group by row group and page by
// page.
type parquetReader struct {
	name   string
	src    *os.File
	spec   ColumnSpec
	file   *pqfile.Reader
	mem    memory.Allocator
	hold   *inputmem.Hold
	at     []int // columns of the timestamp, then of the features, then of the key
	group  int   // the next row group
	left   int64 // rows of the row group that is open
	chunks []*chunk
}

// newParquetReader reads the footer. The reader owns src from here on, also when an error is
// returned.
func newParquetReader(name string, src *os.File, spec ColumnSpec, h *inputmem.Hold) (_ Reader, err error) {
	r := &parquetReader{name: name, src: src, spec: spec, mem: newMetered(h), hold: h}
	defer func() {
		if err != nil {
			_ = r.close()
		}
	}()
	if err := r.open(); err != nil {
		return nil, err
	}
	return newColumnarReader(name, spec, r), nil
}

// open verifies the footer, and finds the wanted columns. It takes the memory of the read-ahead of
// all of them at once.
func (r *parquetReader) open() (err error) {
	defer damaged(r.name, &err)
	need := blockBytes(len(r.spec.Features), len(r.spec.Key)) + parquetBuffer*int64(len(r.spec.columns()))
	if err := r.hold.Grow(need); err != nil {
		return err
	}
	if err := r.checkFooter(); err != nil {
		return err
	}
	props := parquet.NewReaderProperties(r.mem)
	props.BufferedStreamEnabled = true // a column at a time by pieces, not a whole chunk of it
	props.BufferSize = parquetBuffer
	props.MaxCompressedPageSize, props.MaxUncompressedPageSize = maxParquetPage, maxParquetPage
	if r.file, err = pqfile.NewParquetReader(source{r.src}, pqfile.WithReadProps(props)); err != nil {
		return err
	}
	s := r.file.MetaData().Schema
	names := make([]string, s.NumColumns())
	for i := range names {
		names[i] = s.Column(i).Path()
	}
	if r.at, err = r.spec.Find(r.name, names); err != nil {
		return err
	}
	for i, at := range r.at {
		c := s.Column(at)
		want, column := wantNumber, r.spec.columns()[i]
		switch r.role(i) {
		case roleTime:
			want = wantTime
		case roleKey:
			want = wantKey
		}
		// One definition level is a column that may be null; more are a structure around it.
		if c.MaxRepetitionLevel() != 0 || c.MaxDefinitionLevel() > 1 {
			return wrongType(r.name, column, "nested", want)
		}
		if kind(c, r.role(i)) == kindNone {
			return wrongType(r.name, column, typeName(c), want)
		}
	}
	return nil
}

// role is the use of a column.
type role int

const (
	roleTime role = iota
	roleFeature
	roleKey
)

// role returns the use of the wanted column i.
func (r *parquetReader) role(i int) role {
	switch {
	case i == 0:
		return roleTime
	case i > len(r.spec.Features):
		return roleKey
	}
	return roleFeature
}

// source hides Close from the library, so that the file is closed once.
type source struct{ parquet.ReaderAtSeeker }

// checkFooter verifies the footer before the library sees it, since the library allocates the
// number of elements that a list states. It also takes the memory of the structures that the
// library makes of the footer.
func (r *parquetReader) checkFooter() error {
	info, err := r.src.Stat()
	if err != nil {
		return fault.IO("read", r.name, err)
	}
	var tail [8]byte
	size := info.Size()
	if size < 12 {
		return fault.Input("%s: %d bytes are no Parquet file", r.name, size)
	}
	if _, err := r.src.ReadAt(tail[:], size-8); err != nil {
		return fault.IO("read", r.name, err)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case string(tail[4:]) == "PARE":
		return fault.Input("%s: the Parquet file is encrypted: decrypt it first", r.name)
	case string(tail[4:]) != "PAR1":
		return fault.Input("%s: it does not end as a Parquet file does: it is none, or cut off", r.name)
	case n > size-12 || n > maxParquetFooter:
		return fault.Input(
			"%s: its footer says that it has %d bytes, of a file of %d; %d are allowed", r.name, n, size,
			maxParquetFooter,
		)
	}
	if err := r.hold.Grow(2 * n); err != nil { // here and in the library
		return err
	}
	footer := make([]byte, n)
	if _, err := r.src.ReadAt(footer, size-8-n); err != nil {
		return fault.IO("read", r.name, err)
	}
	structs, err := checkCompact(footer)
	if err != nil {
		return fault.Input("%s: its footer is damaged: %v", r.name, err)
	}
	return r.hold.Grow(structs * parquetStruct)
}

// close implements blockReader. It closes the columns before the file that they read.
func (r *parquetReader) close() error {
	for _, c := range r.chunks {
		_ = c.col.Close()
	}
	r.chunks = nil
	return r.src.Close()
}

// next implements blockReader. All columns advance by the same number of rows, and a block never
// spans two row groups.
func (r *parquetReader) next(b *block) (more bool, err error) {
	for r.left == 0 {
		if r.group == r.file.NumRowGroups() {
			return false, nil
		}
		if err := r.openGroup(); err != nil {
			return false, err
		}
	}
	n := int(min(r.left, blockRows))
	r.left -= int64(n)
	b.reset(len(r.spec.Features), len(r.spec.Key), n)
	for i, c := range r.chunks {
		if err := c.read(b, i-1, n); err != nil {
			return false, fmt.Errorf("column %q: %w", c.descr.Path(), err)
		}
	}
	return true, nil
}

// openGroup opens the wanted columns of the next row group. A packing other than none, snappy, gzip
// and zstd is refused. The library allocates the buffers of a column here, through the metered
// allocator.
func (r *parquetReader) openGroup() error {
	for _, c := range r.chunks {
		_ = c.col.Close()
	}
	r.chunks = nil
	g := r.file.RowGroup(r.group)
	r.group++
	if r.left = g.NumRows(); r.left < 0 {
		return fmt.Errorf("row group %d has %d rows", r.group, r.left)
	}
	if r.left == 0 {
		return nil
	}
	for i, at := range r.at {
		meta, err := g.MetaData().ColumnChunk(at)
		if err != nil {
			return err
		}
		switch meta.Compression() {
		case compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd:
		default:
			return fault.Input(
				"%s: column %q is packed with %s: write the file with snappy, gzip, zstd or none", r.name,
				r.file.MetaData().Schema.Column(at).Path(), meta.Compression(),
			)
		}
		pages, err := g.GetColumnPageReader(at)
		if err != nil {
			return err
		}
		pages.SetMaxPageHeaderSize(maxParquetHeader)
		descr := r.file.MetaData().Schema.Column(at)
		guard := &pageGuard{PageReader: pages, name: r.name, hold: r.hold}
		// The guard is between pages and decoders: every page passes it before the library decodes
		// the page.
		c := &chunk{descr: descr, guard: guard, kind: kind(descr, r.role(i)), features: len(r.spec.Features)}
		//nolint:staticcheck // no other function puts the guard between pages and decoders
		c.col = pqfile.NewColumnReader(descr, guard, r.mem, r.file.BufferPool())
		r.chunks = append(r.chunks, c)
	}
	return nil
}

// pageGuard stands between the pages of a column and their decoder. It refuses pages for whose
// headers the library would allocate too much, and encodings that the library decodes without a
// bound. It counts the rows of the page, so that a batch ends with its page.
type pageGuard struct {
	pqfile.PageReader
	name string
	hold *inputmem.Hold
	dict int64 // bytes of the dictionary, in hold
	left int64 // rows of the page that have not been read
	err  error
}

// Close implements file.PageReader.
func (g *pageGuard) Close() error {
	g.hold.Shrink(g.dict)
	g.dict = 0
	return g.PageReader.Close()
}

// dictionaryValue is the most bytes of a decoded value, which is a slice.
const dictionaryValue = 24

// Next implements file.PageReader. A page that it refuses ends the column with Err.
func (g *pageGuard) Next() bool {
	if g.err != nil || !g.PageReader.Next() {
		return false
	}
	p := g.Page()
	if p == nil {
		return true
	}
	if d, ok := p.(*pqfile.DictionaryPage); ok {
		g.err = g.dictionary(d)
		return g.err == nil
	}
	d, ok := p.(pqfile.DataPage)
	if !ok {
		return true
	}
	g.left = int64(p.NumValues())
	switch enc := parquet.Encoding(d.Encoding()); enc {
	case parquet.Encodings.Plain,
		parquet.Encodings.PlainDict,
		parquet.Encodings.RLEDict,
		parquet.Encodings.ByteStreamSplit:
	default:
		g.err = fault.Input(
			"%s: its pages are written with %s: write the file with plain or dictionary encoding (data page version 1)",
			g.name, enc,
		)
		return false
	}
	if g.left < 0 {
		g.err = fmt.Errorf("a page of %d rows", g.left)
		return false
	}
	return true
}

// dictionary takes the memory of a decoded dictionary. A value takes at least one byte of the page,
// so a larger number of values is damage.
func (g *pageGuard) dictionary(d *pqfile.DictionaryPage) error {
	// The number is that of the page's header, and the library allocates by it.
	if n := d.NumValues(); n < 0 || int64(n) > int64(len(d.Data())) {
		return fmt.Errorf("a dictionary of %d values in %d bytes", n, len(d.Data()))
	}
	// The library decodes it: a text becomes a slice of the page, and a number a number.
	n := int64(d.NumValues()) * dictionaryValue
	if err := g.hold.Grow(n); err != nil {
		return err
	}
	g.dict += n
	return nil
}

// GetDictionaryPage implements file.PageReader.
func (g *pageGuard) GetDictionaryPage() (*pqfile.DictionaryPage, error) {
	d, err := g.PageReader.GetDictionaryPage()
	if err == nil && d != nil {
		err = g.dictionary(d)
	}
	return d, err
}

// Err implements file.PageReader.
func (g *pageGuard) Err() error {
	if g.err != nil {
		return g.err
	}
	return g.PageReader.Err()
}

// valueKind is the way in which the values of a column are read.
type valueKind int

const (
	kindNone valueKind = iota
	kindInt32
	kindUint32
	kindInt64
	kindUint64
	kindFloat
	kindDouble
	kindText
	kindDate
	kindMillis
	kindMicros
	kindNanos
	kindInt96
	kindBool
)

// kind returns the way to read a column in its role. It is kindNone if the column cannot be read.
func kind(c *schema.Column, of role) valueKind {
	timestamp, text := of == roleTime, of != roleFeature
	logical := c.LogicalType()
	plain := logical == nil || logical.IsNone() || logical.Equals(schema.NoLogicalType{}) ||
		logical.Equals(schema.UnknownLogicalType{})
	switch t := logical.(type) {
	case schema.IntLogicalType:
		switch signed := t.IsSigned(); {
		case c.PhysicalType() == parquet.Types.Int32 && signed:
			return kindInt32
		case c.PhysicalType() == parquet.Types.Int32:
			return kindUint32
		case c.PhysicalType() == parquet.Types.Int64 && signed:
			return kindInt64
		case c.PhysicalType() == parquet.Types.Int64:
			return kindUint64
		}
	case schema.TimestampLogicalType:
		if timestamp && c.PhysicalType() == parquet.Types.Int64 {
			switch t.TimeUnit() {
			case schema.TimeUnitMillis:
				return kindMillis
			case schema.TimeUnitMicros:
				return kindMicros
			case schema.TimeUnitNanos:
				return kindNanos
			}
		}
	case schema.DateLogicalType:
		if timestamp && c.PhysicalType() == parquet.Types.Int32 {
			return kindDate
		}
	case schema.StringLogicalType:
		if text && c.PhysicalType() == parquet.Types.ByteArray {
			return kindText
		}
	}
	if !plain {
		return kindNone
	}
	switch c.PhysicalType() {
	case parquet.Types.Int32:
		return kindInt32
	case parquet.Types.Int64:
		return kindInt64
	case parquet.Types.Boolean:
		if of == roleKey {
			return kindBool
		}
	case parquet.Types.Float:
		if of != roleKey {
			return kindFloat
		}
	case parquet.Types.Double:
		if of != roleKey {
			return kindDouble
		}
	case parquet.Types.ByteArray:
		if text {
			return kindText
		}
	case parquet.Types.Int96:
		if timestamp {
			return kindInt96
		}
	}
	return kindNone
}

// typeName returns the type of a column for a message.
func typeName(c *schema.Column) string {
	if l := c.LogicalType(); l != nil && !l.IsNone() {
		return fmt.Sprintf("%s (%s)", c.PhysicalType(), l)
	}
	return c.PhysicalType().String()
}

// chunk is one column of the open row group, with the page that is being read.
type chunk struct {
	descr *schema.Column
	guard *pageGuard
	col   pqfile.ColumnChunkReader
	kind  valueKind

	features int // of a row

	// The buffers are reused by every batch. defs has a 0 for each null of a column that may be
	// null; of the others, only the one for the type of the column is used.
	defs   []int16
	ints   []int32
	longs  []int64
	float  []float32
	double []float64
	texts  []parquet.ByteArray
	int96  []parquet.Int96
	bools  []bool
}

// read stores the next n rows in feature f of a block, in its times if f is -1, or in a column of the
// key if f is behind the features. The header of a
// page is not trusted: fewer or more rows or values than it states are damage.
func (c *chunk) read(b *block, f, n int) error {
	c.defs = resize(c.defs, n)
	for at := 0; at < n; {
		if !c.col.HasNext() {
			if err := c.col.Err(); err != nil {
				return err
			}
			return fmt.Errorf("it has %d rows fewer than its row group", n-at)
		}
		// One page at a time, since its texts are invalid after the next page is read.
		want := int(min(int64(n-at), c.guard.left))
		if want < 1 {
			return fmt.Errorf("a page has more rows than its header says")
		}
		got, values, err := c.batch(want)
		if err != nil {
			return err
		}
		if got < 1 || got > int64(want) || int64(values) > got ||
			c.descr.MaxDefinitionLevel() == 0 && int64(values) != got {
			return fmt.Errorf("a page has fewer rows than its header says")
		}
		c.guard.left -= got
		// v is the next value: nulls take a row and no value.
		v := 0
		for i := range int(got) {
			null := c.descr.MaxDefinitionLevel() > 0 && c.defs[i] == 0
			if !null && v == values {
				return fmt.Errorf("a page has fewer values than rows")
			}
			switch {
			case f < 0 && !null:
				b.times[at] = c.time(v)
			case f >= c.features && !null:
				b.keys[f-c.features][at], b.sizes[f-c.features][at] = c.key(v)
			case f >= 0 && !null:
				b.values[f][at] = c.number(v)
			case f >= 0:
				b.nulls[f][at] = true
			}
			if !null {
				v++
			}
			at++
		}
	}
	return nil
}

// batch reads up to n rows of the page. rows counts nulls, and values does not. The slices of
// values are those of the chunk.
func (c *chunk) batch(n int) (rows int64, values int, err error) {
	size, defs := int64(n), c.defs[:n]
	switch col := c.col.(type) {
	case *pqfile.Int32ColumnChunkReader:
		c.ints = resize(c.ints, n)
		return col.ReadBatch(size, c.ints, defs, nil)
	case *pqfile.Int64ColumnChunkReader:
		c.longs = resize(c.longs, n)
		return col.ReadBatch(size, c.longs, defs, nil)
	case *pqfile.Float32ColumnChunkReader:
		c.float = resize(c.float, n)
		return col.ReadBatch(size, c.float, defs, nil)
	case *pqfile.Float64ColumnChunkReader:
		c.double = resize(c.double, n)
		return col.ReadBatch(size, c.double, defs, nil)
	case *pqfile.ByteArrayColumnChunkReader:
		c.texts = resize(c.texts, n)
		return col.ReadBatch(size, c.texts, defs, nil)
	case *pqfile.BooleanColumnChunkReader:
		c.bools = resize(c.bools, n)
		return col.ReadBatch(size, c.bools, defs, nil)
	case *pqfile.Int96ColumnChunkReader:
		c.int96 = resize(c.int96, n)
		return col.ReadBatch(size, c.int96, defs, nil)
	}
	return 0, 0, fmt.Errorf("it is %s", c.col.Type())
}

// number returns value i of the last batch as a feature. Integers of more than 53 bits are rounded.
func (c *chunk) number(i int) float64 {
	switch c.kind {
	case kindInt32:
		return float64(c.ints[i])
	case kindUint32:
		return float64(uint32(c.ints[i]))
	case kindInt64:
		return float64(c.longs[i])
	case kindUint64:
		return float64(uint64(c.longs[i]))
	case kindFloat:
		return float64(c.float[i])
	}
	return c.double[i]
}

// key returns value i of the last batch as a value of a key, as copyKey does.
func (c *chunk) key(i int) (key string, size int) {
	switch c.kind {
	case kindText:
		text := c.texts[i]
		return string(text[:min(len(text), MaxKey)]), len(text)
	case kindBool:
		key = strconv.FormatBool(c.bools[i])
	case kindInt32:
		key = strconv.FormatInt(int64(c.ints[i]), 10)
	case kindUint32:
		key = strconv.FormatUint(uint64(uint32(c.ints[i])), 10)
	case kindInt64:
		key = strconv.FormatInt(c.longs[i], 10)
	default:
		key = strconv.FormatUint(uint64(c.longs[i]), 10)
	}
	return key, len(key)
}

// time returns value i of the last batch as the text of a timestamp, see ArrowTime.
func (c *chunk) time(i int) string {
	switch c.kind {
	case kindText:
		return copyTime(c.texts[i].String())
	case kindDate:
		return timeText(int64(c.ints[i])*86400, 1)
	case kindMillis:
		return timeText(c.longs[i], 1e3)
	case kindMicros:
		return timeText(c.longs[i], 1e6)
	case kindNanos:
		return timeText(c.longs[i], 1e9)
	case kindInt96:
		return c.int96[i].ToTime().Format(time.RFC3339Nano)
	case kindInt64:
		return strconv.FormatInt(c.longs[i], 10)
	case kindUint64:
		return strconv.FormatUint(uint64(c.longs[i]), 10)
	}
	return strconv.FormatFloat(c.number(i), 'f', -1, 64)
}
