package encode

import (
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// BenchmarkParquet writes row groups of decisions with the columns of an output.
func BenchmarkParquet(b *testing.B) {
	text, number := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Uint64
	s := arrow.NewSchema([]arrow.Field{
		{Name: "series", Type: text},
		{Name: "row", Type: number},
		{Name: "timestamp", Type: text},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
		{Name: "score", Type: arrow.PrimitiveTypes.Float32},
		{Name: "decision", Type: text},
		{Name: "round", Type: number},
		{Name: "leader", Type: number},
		{Name: "counts.normal", Type: arrow.PrimitiveTypes.Uint32},
	}, nil)
	rows := array.NewRecordBuilder(memory.DefaultAllocator, s)
	for i := range columnRows {
		rows.Field(0).(*array.StringBuilder).Append("requests_per_s.csv")
		rows.Field(1).(*array.Uint64Builder).Append(uint64(i))
		rows.Field(2).(*array.StringBuilder).Append(fmt.Sprint(1700000000 + i))
		rows.Field(3).(*array.Float64Builder).Append(math.Sin(float64(i)) * 100)
		rows.Field(4).(*array.Float32Builder).Append(float32(math.Cos(float64(i))))
		rows.Field(5).(*array.StringBuilder).Append([]string{"normal", "anomalous"}[i/1000%2])
		rows.Field(6).(*array.Uint64Builder).Append(uint64(i))
		rows.Field(7).(*array.Uint64Builder).Append(uint64(i % 64))
		rows.Field(8).(*array.Uint32Builder).Append(uint32(i*7919) % 1_562_525)
	}
	rec := rows.NewRecordBatch()
	for b.Loop() {
		w, err := newParquetWriter(io.Discard, s)
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Write(rec); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(columnRows*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
