package encode

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	pqfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// parquetWriter writes record batches of required flat columns, a row group each. The library's own
// bridge from Arrow would add 15 MB to the program, for columns that no output has.
type parquetWriter struct{ w *pqfile.Writer }

// newParquetWriter returns a writer of the columns of s, which are strings, unsigned integers and
// floats. Parquet has no unsigned types: their columns are signed with a logical type.
func newParquetWriter(w io.Writer, s *arrow.Schema) (_ *parquetWriter, err error) {
	var nodes schema.FieldList
	for _, f := range s.Fields() {
		var n schema.Node
		switch f.Type.ID() {
		case arrow.STRING:
			n, err = schema.NewPrimitiveNodeLogical(
				f.Name, parquet.Repetitions.Required, schema.StringLogicalType{}, parquet.Types.ByteArray, 0, -1,
			)
		case arrow.UINT64:
			n, err = schema.NewPrimitiveNodeLogical(
				f.Name, parquet.Repetitions.Required, schema.NewIntLogicalType(64, false), parquet.Types.Int64, 0, -1,
			)
		case arrow.UINT32:
			n, err = schema.NewPrimitiveNodeLogical(
				f.Name, parquet.Repetitions.Required, schema.NewIntLogicalType(32, false), parquet.Types.Int32, 0, -1,
			)
		case arrow.FLOAT64:
			n = schema.NewFloat64Node(f.Name, parquet.Repetitions.Required, -1)
		case arrow.FLOAT32:
			n = schema.NewFloat32Node(f.Name, parquet.Repetitions.Required, -1)
		default:
			err = fmt.Errorf("write Parquet: column %q is %s", f.Name, f.Type)
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
	if err != nil {
		return nil, fmt.Errorf("write Parquet: %w", err)
	}
	props := parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCreatedBy("exoswarm"),
	)
	return &parquetWriter{pqfile.NewParquetWriter(w, root, pqfile.WithWriterProps(props))}, nil
}

// Write writes a row group. The columns of rec are those of the schema, without nulls. rec remains
// with the caller.
func (p *parquetWriter) Write(rec arrow.RecordBatch) error {
	g, err := p.w.AppendRowGroupChecked()
	if err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	for i := range int(rec.NumCols()) {
		c, err := g.NextColumn()
		if err != nil {
			return fmt.Errorf("write Parquet: %w", err)
		}
		switch a := rec.Column(i).(type) {
		case *array.String:
			texts := make([]parquet.ByteArray, a.Len())
			for j := range texts {
				texts[j] = parquet.ByteArray(a.Value(j))
			}
			_, err = c.(*pqfile.ByteArrayColumnChunkWriter).WriteBatch(texts, nil, nil)
		case *array.Uint64:
			longs := make([]int64, a.Len())
			for j, v := range a.Values() {
				longs[j] = int64(v)
			}
			_, err = c.(*pqfile.Int64ColumnChunkWriter).WriteBatch(longs, nil, nil)
		case *array.Uint32:
			ints := make([]int32, a.Len())
			for j, v := range a.Values() {
				ints[j] = int32(v)
			}
			_, err = c.(*pqfile.Int32ColumnChunkWriter).WriteBatch(ints, nil, nil)
		case *array.Float64:
			_, err = c.(*pqfile.Float64ColumnChunkWriter).WriteBatch(a.Values(), nil, nil)
		case *array.Float32:
			_, err = c.(*pqfile.Float32ColumnChunkWriter).WriteBatch(a.Values(), nil, nil)
		}
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			return fmt.Errorf("write Parquet: column %q: %w", rec.ColumnName(i), err)
		}
	}
	if err := g.Close(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

// Close writes the footer.
func (p *parquetWriter) Close() error { return p.w.Close() }
