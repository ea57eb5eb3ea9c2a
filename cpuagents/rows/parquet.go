package rows

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	pqfile "github.com/apache/arrow-go/v18/parquet/file"

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
