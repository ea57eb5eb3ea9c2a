package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
)

// Bits of the attributes of a batch of records.
const (
	codecBits      = 7
	transactionBit = 1 << 4
	controlBit     = 1 << 5
)

// The layout of a batch, in bytes from its start.
const (
	batchHead  = 12 // the first offset and the length, which counts what follows
	magicPlace = 16 // the format
	crcPlace   = 17 // the checksum of what follows it
	afterCRC   = 21
)

const (
	// supportedFormat is the format of records since Kafka 0.11.
	supportedFormat = 2
	// abortMarker is the type of a mark that ends a transaction without its records.
	abortMarker = 0
	// maxUnpacked bounds the records of a batch in bytes. An answer has fewer than two such
	// batches.
	maxUnpacked = 64 << 20
	// maxRecords bounds the records of an answer.
	maxRecords = 1 << 20
)

var errDamaged = errors.New("its records are damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// abortedTransaction is a transaction whose records are not read.
type abortedTransaction = kmsg.FetchResponseTopicPartitionAbortedTransaction

// decoder adds the records of answers until it is full.
type decoder struct {
	remote.Records
	codecs   kgo.Decompressor
	asked    map[int32]int64 // the offsets of the partitions without an answer
	unpacked int             // bytes of all records
}

func (d *decoder) full() bool {
	return d.unpacked >= maxUnpacked || len(d.Records.Records) >= maxRecords
}

// decode adds the records of a partition from an offset on, and returns the offset behind them. It
// leaves out the records of aborted transactions and the marks of transactions. A batch that is cut
// off at the end is left for the next request.
//
// The parameter aborted lists the transactions that were aborted, by producer and first offset. A
// producer has one transaction at a time, which ends with a mark. So a batch of a producer is
// dropped from the first offset of its aborted transaction on until that mark.
func (d *decoder) decode(
	partition int32, from int64, data []byte, aborted []abortedTransaction,
) (behind int64, err error) {
	behind = from
	aborted = slices.Clone(aborted)
	slices.SortFunc(aborted, func(a, b abortedTransaction) int {
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	open := map[int64]bool{} // producers whose transaction is aborted
	for len(data) >= batchHead && !d.full() {
		size := int64(int32(binary.BigEndian.Uint32(data[8:])))
		if size < afterCRC-batchHead {
			return behind, errDamaged
		}
		if int64(len(data)) < batchHead+size {
			break
		}
		raw := data[:batchHead+size]
		data = data[batchHead+size:]
		if raw[magicPlace] != supportedFormat {
			return behind, fmt.Errorf("format %d of its records is from brokers before 0.11: convert the topic",
				raw[magicPlace])
		}
		if crc32.Checksum(raw[afterCRC:], castagnoli) != binary.BigEndian.Uint32(raw[crcPlace:]) {
			return behind, errDamaged
		}
		var b kmsg.RecordBatch
		if err := b.ReadFrom(raw); err != nil {
			return behind, fmt.Errorf("%w: %w", errDamaged, err)
		}
		end := b.FirstOffset + int64(b.LastOffsetDelta) + 1
		if end <= b.FirstOffset {
			return behind, errDamaged
		}
		for len(aborted) > 0 && aborted[0].FirstOffset < end {
			open[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if end <= behind { // before what is wanted
			continue
		}
		drop := b.Attributes&transactionBit != 0 && open[b.ProducerID]
		if b.Attributes&controlBit != 0 || !drop {
			if behind, err = d.records(partition, behind, end, &b, open); err != nil {
				return behind, err
			}
		} else {
			behind = end
		}
	}
	return behind, nil
}

// records adds the records of a batch from an offset on, up to end. It returns the offset behind
// them. A mark ends an aborted transaction.
func (d *decoder) records(
	partition int32, from, end int64, b *kmsg.RecordBatch, open map[int64]bool,
) (behind int64, err error) {
	data, err := d.codecs.Decompress(b.Records, kgo.CompressionCodecType(b.Attributes&codecBits))
	if errors.Is(err, kgo.ErrMaxDecompress) {
		return from, fmt.Errorf("the batch of records at offset %d has more than %d bytes: write smaller batches",
			b.FirstOffset, maxUnpacked)
	}
	if err != nil {
		return from, fmt.Errorf("%w: %w", errDamaged, err)
	}
	d.unpacked += len(data)
	for range b.NumRecords {
		size, n := binary.Varint(data)
		if n <= 0 || size < 1 || size > int64(len(data)-n) {
			return from, errDamaged
		}
		r := fields{data: data[n : n+int(size)]}
		data = data[n+int(size):]
		r.skip(1) // attributes
		r.number()
		offset := b.FirstOffset + r.number()
		key, value := r.bytes(), r.bytes()
		switch {
		case r.bad || offset >= end:
			return from, errDamaged
		case b.Attributes&controlBit != 0:
			if len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == abortMarker {
				delete(open, b.ProducerID)
			}
		case offset >= from:
			r := remote.Record{Partition: partition, Offset: offset, Value: value}
			d.Records.Records = append(d.Records.Records, r)
			if len(d.Records.Records) >= maxRecords {
				return offset + 1, nil
			}
		}
	}
	return end, nil
}

type fields struct {
	data []byte
	bad  bool
}

// skip leaves out n bytes. After a field that is cut off, bad is set and all later fields are
// empty.
func (f *fields) skip(n int) {
	if f.bad = f.bad || len(f.data) < n; !f.bad {
		f.data = f.data[n:]
	}
}

// number returns the next number, which has zigzag coding of variable length.
func (f *fields) number() int64 {
	v, n := binary.Varint(f.data)
	if f.bad = f.bad || n <= 0; f.bad {
		return 0
	}
	f.data = f.data[n:]
	return v
}

// bytes returns the next field of bytes, which is part of the answer; nil for a null.
func (f *fields) bytes() []byte {
	n := f.number()
	if f.bad || n < 0 {
		return nil
	}
	if f.bad = n > int64(len(f.data)); f.bad {
		return nil
	}
	v := f.data[:n:n]
	f.data = f.data[n:]
	return v
}
