package rows

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/exoswarm/exoswarm/cpuagents/parquet"
)

// parquetWriter writes record batches of required flat columns, a row group each.
type parquetWriter struct{ w *parquet.Writer }

// newParquetWriter returns a writer of the columns of s, which are strings, unsigned integers and
// floats.
func newParquetWriter(w io.Writer, s *arrow.Schema) (*parquetWriter, error) {
	var columns []parquet.Column
	for _, f := range s.Fields() {
		c := parquet.Column{Path: f.Name}
		switch f.Type.ID() {
		case arrow.STRING:
			c.Type, c.Logical = parquet.ByteArray, parquet.Text
		case arrow.UINT64:
			c.Type, c.Logical = parquet.Int64, parquet.Unsigned
		case arrow.UINT32:
			c.Type, c.Logical = parquet.Int32, parquet.Unsigned
		case arrow.FLOAT64:
			c.Type = parquet.Double
		case arrow.FLOAT32:
			c.Type = parquet.Float
		default:
			return nil, fmt.Errorf("write Parquet: column %q is %s", f.Name, f.Type)
		}
		columns = append(columns, c)
	}
	p, err := parquet.NewWriter(w, "exoswarm", columns)
	if err != nil {
		return nil, fmt.Errorf("write Parquet: %w", err)
	}
	return &parquetWriter{p}, nil
}

// Write writes a row group. rec has the columns of the schema, without nulls. rec remains with the
// caller.
func (p *parquetWriter) Write(rec arrow.RecordBatch) error {
	values := make([]any, rec.NumCols())
	for i := range values {
		switch a := rec.Column(i).(type) {
		case *array.String:
			texts := make([]string, a.Len())
			for j := range texts {
				texts[j] = a.Value(j)
			}
			values[i] = texts
		case *array.Uint64:
			values[i] = a.Values()
		case *array.Uint32:
			values[i] = a.Values()
		case *array.Float64:
			values[i] = a.Values()
		case *array.Float32:
			values[i] = a.Values()
		}
	}
	if err := p.w.WriteGroup(values...); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

// Close writes the footer.
func (p *parquetWriter) Close() error {
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}
