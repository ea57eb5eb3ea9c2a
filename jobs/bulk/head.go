package bulk

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// A file of a payload has a head of headSize bytes, and then the payload. All numbers are
// little-endian.
//
//	offset  bytes  field
//	     0      8  headMagic
//	     8     16  id
//	    24     32  token
//	    56      8  length of the payload
//	    64      8  time of its begin, in nanoseconds since 1970
//	    72      4  shard
//	    76      4  length of the key of the swarm
//	    80         the key
//	  1020      4  CRC32C of the bytes before it
//	  2048      8  number of the entry
//	  2056      4  CRC32C of the number
//
// The number is written when the entry is in the log. It lies in a sector of its own: a write that
// is cut off leaves the rest of the head as it was.
const (
	headSize  = 4096
	headMagic = "EXOBULK\x01"
	headSum   = 1020
	headKey   = 80
	entryAt   = 2048
	entrySize = 12
)

// maxKey bounds the key of a swarm in a head.
const maxKey = headSum - headKey

// head describes the payload of a file.
type head struct {
	id      string // in hexadecimal digits
	token   []byte
	bytes   int
	created time.Time
	swarm   string // its key
	shard   int
	entry   uint64 // 0: not known
}

// encode returns the head without the number of the entry.
func (h head) encode() ([]byte, error) {
	id, err := hex.DecodeString(h.id)
	if err != nil || len(id) != swarms.BulkID/2 || len(h.token) != swarms.BulkToken || len(h.swarm) > maxKey {
		return nil, fmt.Errorf("encode the head of payload %.100s of swarm %.100s: %w", h.id, h.swarm, ErrDamaged)
	}
	b := make([]byte, headSize)
	copy(b, headMagic)
	copy(b[8:], id)
	copy(b[24:], h.token)
	binary.LittleEndian.PutUint64(b[56:], uint64(h.bytes))
	binary.LittleEndian.PutUint64(b[64:], uint64(h.created.UnixNano()))
	binary.LittleEndian.PutUint32(b[72:], uint32(h.shard))
	binary.LittleEndian.PutUint32(b[76:], uint32(len(h.swarm)))
	copy(b[headKey:], h.swarm)
	binary.LittleEndian.PutUint32(b[headSum:], swarms.BulkSum(b[:headSum]))
	return b, nil
}

// encodeEntry returns the number of an entry with its checksum.
func encodeEntry(seq uint64) []byte {
	b := make([]byte, entrySize)
	binary.LittleEndian.PutUint64(b, seq)
	binary.LittleEndian.PutUint32(b[8:], swarms.BulkSum(b[:8]))
	return b
}

// decodeHead reads a head. For any bytes it returns a head within the limits of swarms.Bulk, or
// ErrDamaged. A number of an entry that is damaged is not known.
func decodeHead(b []byte) (h head, err error) {
	if len(b) != headSize || string(b[:8]) != headMagic ||
		binary.LittleEndian.Uint32(b[headSum:]) != swarms.BulkSum(b[:headSum]) {
		return h, fmt.Errorf("head of a payload: %w", ErrDamaged)
	}
	n, key := binary.LittleEndian.Uint64(b[56:]), binary.LittleEndian.Uint32(b[76:])
	shard := binary.LittleEndian.Uint32(b[72:])
	if n < 1 || n > swarms.MaxBulk || key > maxKey || shard >= swarms.MaxShards {
		return h, fmt.Errorf("head of a payload of %d bytes, shard %d, with a key of %d: %w", n, shard, key, ErrDamaged)
	}
	h = head{
		id: hex.EncodeToString(b[8:24]), token: append([]byte(nil), b[24:56]...), bytes: int(n),
		created: time.Unix(0, int64(binary.LittleEndian.Uint64(b[64:]))), shard: int(shard),
		swarm: string(b[headKey : headKey+key]),
	}
	if e := b[entryAt:]; binary.LittleEndian.Uint32(e[8:]) == swarms.BulkSum(e[:8]) {
		h.entry = binary.LittleEndian.Uint64(e)
	}
	return h, nil
}
