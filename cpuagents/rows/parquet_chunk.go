package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/parquet"
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
	kindDecimal
	kindUUID
)

// kind returns the way to read a column in its role. It is kindNone if the column cannot be read.
func kind(c parquet.Column, of role) valueKind {
	timestamp, text := of == roleTime, of != roleFeature
	switch {
	case c.Logical == parquet.Signed && c.Type == parquet.Int32:
		return kindInt32
	case c.Logical == parquet.Unsigned && c.Type == parquet.Int32:
		return kindUint32
	case c.Logical == parquet.Signed && c.Type == parquet.Int64:
		return kindInt64
	case c.Logical == parquet.Unsigned && c.Type == parquet.Int64:
		return kindUint64
	case c.Logical == parquet.Millis && timestamp && c.Type == parquet.Int64:
		return kindMillis
	case c.Logical == parquet.Micros && timestamp && c.Type == parquet.Int64:
		return kindMicros
	case c.Logical == parquet.Nanos && timestamp && c.Type == parquet.Int64:
		return kindNanos
	case c.Logical == parquet.Date && text && c.Type == parquet.Int32:
		return kindDate
	case c.Logical == parquet.Decimal && of == roleFeature && (c.Type == parquet.Int32 || c.Type == parquet.Int64 ||
		c.Type == parquet.ByteArray || c.Type == parquet.FixedLenByteArray):
		return kindDecimal
	case c.Logical == parquet.UUID && of == roleKey && c.Type == parquet.FixedLenByteArray && c.Size == 16:
		return kindUUID
	case c.Logical == parquet.Text && text && c.Type == parquet.ByteArray:
		return kindText
	case c.Logical != parquet.None:
		return kindNone
	}
	switch c.Type {
	case parquet.Int32:
		return kindInt32
	case parquet.Int64:
		return kindInt64
	case parquet.Boolean:
		if of == roleKey {
			return kindBool
		}
	case parquet.Float:
		if of != roleKey {
			return kindFloat
		}
	case parquet.Double:
		if of != roleKey {
			return kindDouble
		}
	case parquet.ByteArray:
		if text {
			return kindText
		}
	case parquet.Int96:
		if timestamp {
			return kindInt96
		}
	}
	return kindNone
}

func typeName(c parquet.Column) string {
	if c.Meaning != "" {
		return fmt.Sprintf("%s (%s)", c.Type, c.Meaning)
	}
	return c.Type.String()
}

// chunk is one column of the open row group.
type chunk struct {
	name string // of the file, for messages
	col  *parquet.Chunk
	kind valueKind

	features int // of a row
	column   parquet.Column

	// The buffers are reused by every batch.
	present []bool
	values  parquet.Values
}

// read stores the next n rows in feature f of a block, in its times if f is -1, or in a column of
// the key if f is behind the features. The header of a page is not trusted: fewer or more rows or
// values than it states are damage.
func (c *chunk) read(b *block, f, n int) error {
	c.present = resize(c.present, n)
	for at := 0; at < n; {
		// One page at a time, since its texts are invalid after the next page is read.
		got, _, err := c.col.Read(c.present[:n-at], &c.values)
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("it has %d rows fewer than its row group", n-at)
		case errors.Is(err, parquet.ErrEncoding):
			return access.InputError("%s: %v", c.name, err)
		case err != nil:
			return err
		}
		// v is the next value: nulls take a row and no value.
		v := 0
		for _, present := range c.present[:got] {
			switch {
			case f < 0 && present:
				b.times[at] = c.time(v)
			case f >= c.features && present:
				b.keys[f-c.features][at], b.sizes[f-c.features][at] = c.key(v)
			case f >= 0 && present:
				b.values[f][at] = c.number(v)
			case f >= 0:
				b.nulls[f][at] = true
			}
			if present {
				v++
			}
			at++
		}
	}
	return nil
}

// number returns value i of the last batch as a feature. Integers of more than 53 bits are rounded.
func (c *chunk) number(i int) float64 {
	switch c.kind {
	case kindInt32:
		return float64(c.values.Int32s[i])
	case kindUint32:
		return float64(uint32(c.values.Int32s[i]))
	case kindInt64:
		return float64(c.values.Int64s[i])
	case kindUint64:
		return float64(uint64(c.values.Int64s[i]))
	case kindFloat:
		return float64(c.values.Floats[i])
	case kindDecimal:
		return c.decimal(i)
	}
	return c.values.Doubles[i]
}

// decimal returns value i of the last batch, which is an integer and the place of its point, as the
// nearest float. A value without bytes is 0.
func (c *chunk) decimal(i int) float64 {
	var v big.Int
	switch c.column.Type {
	case parquet.Int32:
		v.SetInt64(int64(c.values.Int32s[i]))
	case parquet.Int64:
		v.SetInt64(c.values.Int64s[i])
	default:
		text := c.values.Texts[i]
		if len(text) > parquet.MaxFixed {
			return math.Inf(1)
		}
		if v.SetBytes(text); len(text) > 0 && text[0] >= 0x80 { // of two's complement
			v.Sub(&v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(text))))
		}
	}
	f, _ := strconv.ParseFloat(v.String()+"e-"+strconv.Itoa(c.column.Scale), 64)
	return f
}

// key returns value i of the last batch as a value of a key, as copyKey does.
func (c *chunk) key(i int) (key string, size int) {
	switch c.kind {
	case kindText:
		text := c.values.Texts[i]
		return string(text[:min(len(text), MaxKey)]), len(text)
	case kindUUID:
		t := c.values.Texts[i]
		key = fmt.Sprintf("%x-%x-%x-%x-%x", t[:4], t[4:6], t[6:8], t[8:10], t[10:])
	case kindDate:
		key = time.Unix(int64(c.values.Int32s[i])*86400, 0).UTC().Format(time.DateOnly)
	case kindBool:
		key = strconv.FormatBool(c.values.Bools[i])
	case kindInt32:
		key = strconv.FormatInt(int64(c.values.Int32s[i]), 10)
	case kindUint32:
		key = strconv.FormatUint(uint64(uint32(c.values.Int32s[i])), 10)
	case kindInt64:
		key = strconv.FormatInt(c.values.Int64s[i], 10)
	default:
		key = strconv.FormatUint(uint64(c.values.Int64s[i]), 10)
	}
	return key, len(key)
}

// time returns value i of the last batch as the text of a timestamp, see ArrowTime.
func (c *chunk) time(i int) string {
	switch c.kind {
	case kindText:
		return copyTime(string(c.values.Texts[i]))
	case kindDate:
		return timeText(int64(c.values.Int32s[i])*86400, 1)
	case kindMillis:
		return timeText(c.values.Int64s[i], 1e3)
	case kindMicros:
		return timeText(c.values.Int64s[i], 1e6)
	case kindNanos:
		return timeText(c.values.Int64s[i], 1e9)
	case kindInt96:
		return int96Time(c.values.Int96s[i]).Format(time.RFC3339Nano)
	case kindInt64:
		return strconv.FormatInt(c.values.Int64s[i], 10)
	case kindUint64:
		return strconv.FormatUint(uint64(c.values.Int64s[i]), 10)
	}
	return strconv.FormatFloat(c.number(i), 'f', -1, 64)
}

// int96Time returns a time of older writers: the nanoseconds of a day, and the number of the day in
// the Julian calendar.
func int96Time(v [12]byte) time.Time {
	const epoch = 2440588 // 1970-01-01
	day := int64(binary.LittleEndian.Uint32(v[8:])) - epoch
	return time.Unix(day*86400, int64(binary.LittleEndian.Uint64(v[:8]))).UTC()
}
