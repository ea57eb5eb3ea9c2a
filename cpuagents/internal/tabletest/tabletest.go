// Package tabletest writes the tables of tests as Arrow and Parquet files, with the Arrow library.
package tabletest

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

// Record makes a record batch of a table: a column more than wanted, and the wanted ones in another
// order.
func Record(rows []fixture.Row) arrow.RecordBatch {
	s := arrow.NewSchema([]arrow.Field{
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "b", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "at", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "a", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	number := func(i int, c fixture.Cell) {
		if v, ok := c.(float64); ok {
			b.Field(i).(*array.Float64Builder).Append(v)
		} else {
			b.Field(i).AppendNull()
		}
	}
	for _, r := range rows {
		b.Field(0).AppendNull()
		number(1, r.Values[1])
		if s, ok := r.Time.(string); ok {
			b.Field(2).(*array.StringBuilder).Append(s)
		} else {
			b.Field(2).AppendNull()
		}
		number(3, r.Values[0])
	}
	return b.NewRecordBatch()
}

// pieces cuts a record batch, so that a file has several.
func pieces(rec arrow.RecordBatch) (cut []arrow.RecordBatch) {
	const n = 5
	for i := int64(0); i < rec.NumRows(); i += n {
		cut = append(cut, rec.NewSlice(i, min(i+n, rec.NumRows())))
	}
	return cut
}

// Arrow writes a record batch in several messages as an Arrow IPC stream, or as a file.
func Arrow(t testing.TB, rec arrow.RecordBatch, file bool, opts ...ipc.Option) []byte {
	t.Helper()
	opts = append(opts, ipc.WithSchema(rec.Schema()))
	var out bytes.Buffer
	var w interface {
		Write(arrow.RecordBatch) error
		Close() error
	} = ipc.NewWriter(&out, opts...)
	if file {
		f, err := ipc.NewFileWriter(&out, opts...)
		if err != nil {
			t.Fatalf("make a writer of an Arrow file: %v", err)
		}
		w = f
	}
	for _, p := range pieces(rec) {
		if err := w.Write(p); err != nil {
			t.Fatalf("write a record batch: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("end the Arrow file or stream: %v", err)
	}
	return out.Bytes()
}

// Parquet writes a record batch as a Parquet file of several row groups and small pages.
func Parquet(t testing.TB, rec arrow.RecordBatch, opts ...parquet.WriterProperty) []byte {
	t.Helper()
	var out bytes.Buffer
	opts = append(opts, parquet.WithDataPageSize(64), parquet.WithBatchSize(3))
	w, err := pqarrow.NewFileWriter(
		rec.Schema(), &out, parquet.NewWriterProperties(opts...), pqarrow.DefaultWriterProps(),
	)
	if err != nil {
		t.Fatalf("make a writer of a Parquet file: %v", err)
	}
	for i, p := range pieces(rec) {
		if i%2 == 0 {
			w.NewBufferedRowGroup()
		}
		if err := w.WriteBuffered(p); err != nil {
			t.Fatalf("write a row group: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("end the Parquet file: %v", err)
	}
	return out.Bytes()
}

// Files writes a table in every format, container and packing that can be read.
func Files(t testing.TB, rows []fixture.Row) (all []fixture.File) {
	t.Helper()
	add := func(name, format string, data []byte) {
		all = append(all, fixture.File{Name: name, Format: format, Data: data})
	}
	rec := Record(rows)
	add("csv", "csv", fixture.CSV(rows))
	add("ndjson", "ndjson", fixture.NDJSON(rows))
	add("stream", "arrow", Arrow(t, rec, false))
	for _, plain := range all {
		add(plain.Name+" gz", plain.Format+".gz", fixture.Gzip(t, plain.Data))
		add(plain.Name+" zst", plain.Format+".zst", fixture.Zstd(t, plain.Data))
	}
	add("stream lz4", "arrow", Arrow(t, rec, false, ipc.WithLZ4()))
	add("file", "arrow", Arrow(t, rec, true))
	add("file zstd", "arrow", Arrow(t, rec, true, ipc.WithZstd()))
	add("parquet", "parquet", Parquet(t, rec))
	add("parquet plain", "parquet", Parquet(t, rec, parquet.WithDictionaryDefault(false)))
	add("parquet v2", "parquet", Parquet(t, rec, parquet.WithDataPageVersion(parquet.DataPageV2),
		parquet.WithCompression(compress.Codecs.Zstd)))
	add("parquet gzip", "parquet", Parquet(t, rec, parquet.WithCompression(compress.Codecs.Gzip)))
	add("parquet snappy", "parquet", Parquet(t, rec, parquet.WithCompression(compress.Codecs.Snappy)))
	return all
}
