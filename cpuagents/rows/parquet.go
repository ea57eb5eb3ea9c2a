package rows

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/parquet"
)

// parquetStruct is the memory of a structure of a footer, in bytes.
const parquetStruct = 512

// parquetReader reads the wanted columns of a Parquet file, row group by row group and page by
// page.
type parquetReader struct {
	name   string
	src    *os.File
	spec   ColumnSpec
	hold   *access.Hold
	file   *parquet.Footer
	limit  int64 // where the footer begins
	at     []int // columns of the timestamp, then of the features, then of the key
	group  int   // the next row group
	left   int64 // rows of the row group that is open
	chunks []*chunk
}

// newParquetReader reads the footer. The reader owns src from here on, also when an error is
// returned.
func newParquetReader(name string, src *os.File, spec ColumnSpec, h *access.Hold) (Reader, error) {
	r := &parquetReader{name: name, src: src, spec: spec, hold: h}
	return openColumnar(name, spec, r)
}

// open verifies the footer, and finds the wanted columns. It takes the memory of the read-ahead of
// all of them at once.
func (r *parquetReader) open() (err error) {
	defer damaged(r.name, &err)
	need := blockBytes(len(r.spec.Features), len(r.spec.Key)) + parquet.Window*int64(len(r.spec.columns()))
	if err := r.hold.Grow(need); err != nil {
		return err
	}
	if err := r.readFooter(); err != nil {
		return err
	}
	names := make([]string, len(r.file.Columns))
	for i, c := range r.file.Columns {
		names[i] = c.Path
	}
	if r.at, err = r.spec.Find(r.name, names); err != nil {
		return err
	}
	for i, at := range r.at {
		c := r.file.Columns[at]
		want, column := wantNumber, r.spec.columns()[i]
		switch r.role(i) {
		case roleTime:
			want = wantTime
		case roleKey:
			want = wantKey
		}
		if c.Nested {
			return wrongType(r.name, column, "nested", want)
		}
		if kind(c, r.role(i)) == kindNone {
			return wrongType(r.name, column, typeName(c), want)
		}
	}
	return nil
}

type role int

const (
	roleTime role = iota
	roleFeature
	roleKey
)

func (r *parquetReader) role(i int) role {
	switch {
	case i < r.spec.first():
		return roleTime
	case i >= r.spec.first()+len(r.spec.Features):
		return roleKey
	}
	return roleFeature
}

// readFooter verifies the footer and reads it. It takes the memory of its structures before it
// makes them.
func (r *parquetReader) readFooter() error {
	info, err := r.src.Stat()
	if err != nil {
		return access.IOError("read", r.name, err)
	}
	var tail [8]byte
	size := info.Size()
	if size < 12 {
		return access.InputError("%s: %d bytes are no Parquet file: get the file again, or give it its own extension",
			r.name, size)
	}
	if _, err := r.src.ReadAt(tail[:], size-8); err != nil {
		return access.IOError("read", r.name, err)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case string(tail[4:]) == "PARE":
		return access.InputError("%s: the Parquet file is encrypted: decrypt it first", r.name)
	case string(tail[4:]) != "PAR1":
		return access.InputError("%s: it does not end as a Parquet file does: it is none, or cut off", r.name)
	case n > size-12 || n > parquet.MaxFooter:
		return access.InputError(
			"%s: its footer says that it has %d bytes, of a file of %d; %d are allowed", r.name, n, size,
			parquet.MaxFooter,
		)
	}
	if err := r.hold.Grow(2 * n); err != nil { // here and in what is made of it
		return err
	}
	footer := make([]byte, n)
	if _, err := r.src.ReadAt(footer, size-8-n); err != nil {
		return access.IOError("read", r.name, err)
	}
	structs, err := parquet.CountStructs(footer)
	if err != nil {
		return access.InputError("%s: its footer is damaged: %v", r.name, err)
	}
	if err := r.hold.Grow(structs * parquetStruct); err != nil {
		return err
	}
	r.limit = size - 8 - n
	if r.file, err = parquet.ReadFooter(footer); err != nil {
		return access.InputError("%s: its footer is damaged: %v", r.name, err)
	}
	return nil
}

func (r *parquetReader) close() error {
	r.closeGroup()
	return r.src.Close()
}

// closeGroup gives the memory of the columns of a row group back.
func (r *parquetReader) closeGroup() {
	for _, c := range r.chunks {
		c.col.Close()
	}
	r.chunks = nil
}

// next implements blockReader. All columns advance by the same number of rows, and a block never
// spans two row groups.
func (r *parquetReader) next(b *block) (more bool, err error) {
	for r.left == 0 {
		if r.group == len(r.file.Groups) {
			r.closeGroup()
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
		if err := c.read(b, i-r.spec.first(), n); err != nil {
			return false, fmt.Errorf("column %q: %w", c.col.Path(), err)
		}
	}
	return true, nil
}

// openGroup opens the wanted columns of the next row group. A packing that is not read is refused.
func (r *parquetReader) openGroup() error {
	r.closeGroup()
	g := r.file.Groups[r.group]
	r.group++
	if r.left = g.Rows; r.left == 0 {
		return nil
	}
	for i, at := range r.at {
		c, meta := r.file.Columns[at], g.Chunks[at]
		if !meta.Codec.Readable() {
			return access.InputError(
				"%s: column %q is packed with %s: write the file with snappy, gzip, zstd, LZ4_RAW, brotli or none",
				r.name,
				c.Path,
				meta.Codec,
			)
		}
		col, err := parquet.NewChunk(r.src, r.limit, c, meta, r.hold)
		if err != nil {
			return access.InputError("%s: column %q: %v", r.name, c.Path, err)
		}
		r.chunks = append(r.chunks, &chunk{
			name: r.name, col: col, kind: kind(c, r.role(i)), features: len(r.spec.Features),
			column: c,
		})
	}
	return nil
}
