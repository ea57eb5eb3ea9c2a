package rows

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	pqfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

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
