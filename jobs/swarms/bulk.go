package swarms

import (
	"encoding/hex"
	"hash/crc32"
	"net"
	"strconv"

	"github.com/exoswarm/exoswarm/jobs"
)

// Sizes of a Bulk in bytes.
const (
	// BulkChunk is how many bytes have a checksum of their own.
	BulkChunk = 1 << 20
	// MaxBulk bounds Bytes and Memory: 65,536 rows of 60 features.
	MaxBulk = 16 << 20
	// BulkToken is the length of a token, and BulkID that of an id in hexadecimal digits.
	BulkToken = 32
	BulkID    = 32
)

// maxPlace bounds the text of a place: the longest name of a host, and a port.
const maxPlace = 253 + 6

// Bulk describes observations whose bytes are in the spool of their producer (docs/rfcs/0055).
type Bulk struct {
	Version int    `json:"v"`
	Place   string `json:"place"`         // HOST:PORT of the server of the spool
	TLS     bool   `json:"tls,omitempty"` // the server speaks TLS
	ID      string `json:"id"`            // BulkID hexadecimal digits, random
	// Token is the right to fetch the bytes: BulkToken bytes, random.
	Token []byte `json:"token"`
	Bytes int    `json:"bytes"` // length, 1 to MaxBulk
	// Memory is how many bytes the observations need when they are decoded, Bytes to MaxBulk.
	Memory int `json:"memory"`
	// Sums has the CRC32C of each BulkChunk bytes, the last one of the rest, as 4 bytes each, the
	// least significant first.
	Sums []byte `json:"sums"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BulkSum returns the checksum of one chunk.
func BulkSum(chunk []byte) uint32 { return crc32.Checksum(chunk, castagnoli) }

// Chunks returns the number of chunks.
func (b Bulk) Chunks() int { return (b.Bytes + BulkChunk - 1) / BulkChunk }

// Sum returns the checksum of a chunk.
func (b Bulk) Sum(chunk int) uint32 {
	s := b.Sums[4*chunk:]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// BulkSums returns Sums of data.
func BulkSums(data []byte) (sums []byte) {
	for first := 0; first < len(data); first += BulkChunk {
		s := BulkSum(data[first:min(first+BulkChunk, len(data))])
		sums = append(sums, byte(s), byte(s>>8), byte(s>>16), byte(s>>24))
	}
	return sums
}

// DecodeBulk reads the data of an EntryBulk. For any bytes it returns a Bulk within its limits, or a
// *jobs.Error with jobs.CodeInvalid or jobs.CodeVersion.
func DecodeBulk(data []byte) (b Bulk, err error) {
	if err := decodeEntry("bulk", data, &b, &b.Version); err != nil {
		return b, err
	}
	return b, b.validate()
}

// validate checks all fields. The error names the field and its value, but never the token.
func (b Bulk) validate() error {
	if id, err := hex.DecodeString(b.ID); err != nil || len(id) != BulkID/2 {
		return invalid("bulk: id %.100q: use %d hexadecimal digits", b.ID, BulkID)
	}
	host, port, err := net.SplitHostPort(b.Place)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" ||
		len(b.Place) > maxPlace {
		return invalid("bulk: place %.100q: use HOST:PORT", b.Place)
	}
	switch {
	case len(b.Token) != BulkToken:
		return invalid("bulk: a token of %d bytes: use %d", len(b.Token), BulkToken)
	case b.Bytes < 1 || b.Bytes > MaxBulk:
		return invalid("bulk: %d bytes: use 1 to %d", b.Bytes, MaxBulk)
	case b.Memory < b.Bytes || b.Memory > MaxBulk:
		return invalid("bulk: memory %d: use %d, the bytes, to %d", b.Memory, b.Bytes, MaxBulk)
	case len(b.Sums) != 4*b.Chunks():
		return invalid("bulk: %d bytes of sums: use %d for %d bytes", len(b.Sums), 4*b.Chunks(), b.Bytes)
	}
	return nil
}

// CheckBulk returns the error that refuses an entry whose bytes have arrived: when they are decoded
// they need more memory than the entry says. memory is what they need.
func CheckBulk(b Bulk, memory int) error {
	if memory > b.Memory {
		return jobs.Errorf(jobs.CodeInvalid, "bulk: the observations need %d bytes of memory, and the entry says %d",
			memory, b.Memory)
	}
	return nil
}
