package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// rowDesign is a form of observations of groups that BenchmarkRows compares.
type rowDesign struct {
	name   string
	encode func(*Observations) ([]byte, error)
	decode func([]byte) error
}

// designs are the form in use and the forms that were tried. Compressed columns are decoded to
// their bytes only, so their times are lower bounds.
func designs(tb testing.TB) []rowDesign {
	fast, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	unzstd, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	arrow := func(data []byte) error {
		_, err := DecodeObservations(data)
		return err
	}
	compressed := func(name string, bytesOf func(*Observations) ([]byte, error), compress func([]byte) []byte,
		expand func([]byte) ([]byte, error), decode func([]byte) error,
	) rowDesign {
		return rowDesign{
			name, func(o *Observations) ([]byte, error) {
				data, err := bytesOf(o)
				return compress(data), err
			},
			func(data []byte) error {
				data, err := expand(data)
				if err != nil {
					return err
				}
				return decode(data)
			},
		}
	}
	lz4ed := func(src []byte) []byte {
		dst := make([]byte, 4+lz4.CompressBlockBound(len(src)))
		binary.LittleEndian.PutUint32(dst, uint32(len(src)))
		var c lz4.Compressor
		n, err := c.CompressBlock(src, dst[4:])
		if err != nil {
			tb.Fatal(err)
		}
		return dst[:4+n]
	}
	unlz4 := func(src []byte) ([]byte, error) {
		dst := make([]byte, binary.LittleEndian.Uint32(src))
		_, err := lz4.UncompressBlock(src[4:], dst)
		return dst, err
	}
	zstded := func(src []byte) []byte { return fast.EncodeAll(src, nil) }
	unzstded := func(src []byte) ([]byte, error) { return unzstd.DecodeAll(src, nil) }
	encode := (*Observations).Encode
	packed := (*Observations).Pack
	return []rowDesign{
		{"arrow", encode, arrow},
		compressed("arrow+lz4", encode, lz4ed, unlz4, arrow),
		compressed("arrow+zstd1", encode, zstded, unzstded, arrow),
		{"varint", varints, unvarints},
		compressed("shuffle+lz4", shuffled, lz4ed, unlz4, unshuffled),
		compressed("shuffle+s2", shuffled, func(src []byte) []byte { return s2.Encode(nil, src) },
			func(src []byte) ([]byte, error) { return s2.Decode(nil, src) }, unshuffled),
		compressed("shuffle+zstd1", shuffled, zstded, unzstded, unshuffled),
		{"packed", packed, arrow},
		compressed("packed+lz4", packed, lz4ed, unlz4, arrow),
		compressed("packed+zstd1", packed, zstded, unzstded, arrow),
	}
}

// words returns the columns of numbers as differences, eight bytes a value.
func (o *Observations) words() (columns [][]uint64) {
	difference := func(n int, at func(int) uint64) {
		c, before := make([]uint64, n), uint64(0)
		for i := range c {
			v := at(i)
			c[i], before = v-before, v
		}
		columns = append(columns, c)
	}
	difference(o.Len(), func(i int) uint64 { return uint64(o.Group[i]) })
	difference(o.Len(), func(i int) uint64 { return o.Row[i] })
	difference(o.Len(), func(i int) uint64 { return uint64(o.Time[i]) })
	difference(o.Len(), func(i int) uint64 { return uint64(o.Read[i]) })
	return columns
}

// varints is a form of differences as varints, raw values and texts with their lengths. Features
// are values.
func varints(o *Observations) ([]byte, error) {
	data := binary.AppendUvarint(nil, uint64(o.Len()))
	for _, c := range o.words() {
		for _, v := range c {
			data = binary.AppendVarint(data, int64(v))
		}
	}
	for _, s := range o.Timestamp {
		data = append(binary.AppendUvarint(data, uint64(len(s))), s...)
	}
	return append(data, raw(o.Value)...), nil
}

func unvarints(data []byte) error {
	r := bytes.NewReader(data)
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	at := len(data) - r.Len()
	for range 4 {
		column, last := make([]int64, n), int64(0)
		for i := range column {
			v, size := binary.Varint(data[at:])
			at += size
			last += v
			column[i] = last
		}
	}
	texts := make([]string, n)
	all := string(data[at:])
	for i := range texts {
		m, size := binary.Uvarint(data[at:])
		texts[i] = all[len(all)-len(data)+at+size:][:m]
		at += size + int(m)
	}
	if len(data)-at != 8*int(n) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// shuffled is a form of differences and raw values whose bytes are sorted by their places in their
// words, and texts with their lengths.
func shuffled(o *Observations) ([]byte, error) {
	n := o.Len()
	data := binary.LittleEndian.AppendUint64(nil, uint64(n))
	columns := o.words()
	values := make([]uint64, n)
	for i := range values {
		values[i] = binary.LittleEndian.Uint64(raw(o.Value)[8*i:])
	}
	for _, c := range append(columns, values) {
		for place := range 8 {
			for _, v := range c {
				data = append(data, byte(v>>(8*place)))
			}
		}
	}
	for _, s := range o.Timestamp {
		data = append(append(data, byte(len(s))), s...)
	}
	return data, nil
}

func unshuffled(data []byte) error {
	n := int(binary.LittleEndian.Uint64(data))
	at := 8
	for c := range 5 {
		column := make([]uint64, n)
		for place := range 8 {
			for i, b := range data[at:][:n] {
				column[i] |= uint64(b) << (8 * place)
			}
			at += n
		}
		if c < 4 {
			last := uint64(0)
			for i, v := range column {
				last += v
				column[i] = last
			}
		}
	}
	texts, all := make([]string, n), string(data[at:])
	for i := range texts {
		m := int(all[0])
		texts[i], all = all[1:][:m], all[1+m:]
	}
	return nil
}

// BenchmarkRows compares forms of batches of recorded and generated telemetry: bytes a row, and
// nanoseconds a row of encoding and decoding on one core. GB/s is of rows as they are in memory.
// With EXOSWARM_NAB it has the recorded series of that folder too.
func BenchmarkRows(b *testing.B) {
	type batch struct {
		name string
		o    *Observations
	}
	batches := []batch{
		{"telemetry,runs", inRuns(recorded(b, telemetryFolder), 4096, 682)},
		{"telemetry,turns", inTurn(recorded(b, telemetryFolder), 4096)},
	}
	if nab := os.Getenv("EXOSWARM_NAB"); nab != "" {
		all := recorded(b, nab+"/data")
		batches = append(batches, batch{"nab,runs", inRuns(all, 4096, 132)}, batch{"nab,turns", inTurn(all, 4096)})
	}
	batches = append(batches, batch{"fleet", fleet(1000, 4096, false)}, batch{"fleet,64bit", fleet(1000, 4096, true)})
	for _, data := range batches {
		memory := 0
		for _, s := range data.o.Timestamp {
			memory += len(s)
		}
		memory += data.o.Len() * (4 + 8 + 8 + 8 + 16 + 8 + 4)
		for _, d := range designs(b) {
			encoded, err := d.encode(data.o)
			if err != nil {
				b.Fatal(err)
			}
			report := func(b *testing.B) {
				rows := float64(data.o.Len())
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
				b.ReportMetric(float64(len(encoded))/rows, "B/row")
				b.ReportMetric(float64(memory)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				b.ReportMetric(0, "ns/op")
			}
			b.Run(fmt.Sprintf("%s/%s/encode", data.name, d.name), func(b *testing.B) {
				for b.Loop() {
					if _, err := d.encode(data.o); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
			b.Run(fmt.Sprintf("%s/%s/decode", data.name, d.name), func(b *testing.B) {
				for b.Loop() {
					if err := d.decode(encoded); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
		}
	}
}

// BenchmarkAgentRows is BenchmarkRows for observations of single agents, compared with Arrow IPC.
func BenchmarkAgentRows(b *testing.B) {
	for _, sorted := range []bool{false, true} {
		o := currents(100_000_000, 65536, sorted)
		for name, encode := range map[string]func() ([]byte, error){"arrow": o.Encode, "packed": o.Pack} {
			data, err := encode()
			if err != nil {
				b.Fatal(err)
			}
			report := func(b *testing.B) {
				rows := float64(len(o.Agent))
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
				b.ReportMetric(float64(len(data))/rows, "B/row")
				b.ReportMetric(8*rows*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				b.ReportMetric(0, "ns/op")
			}
			b.Run(fmt.Sprintf("sorted=%v/%s/encode", sorted, name), func(b *testing.B) {
				for b.Loop() {
					if _, err := encode(); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
			b.Run(fmt.Sprintf("sorted=%v/%s/decode", sorted, name), func(b *testing.B) {
				for b.Loop() {
					if _, err := DecodeAgentObservations(data); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
		}
	}
}
