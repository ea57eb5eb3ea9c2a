package index

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Layout of the superblock; docs/formats/tiers.md describes every field.
const (
	fileMagic   = "EXOSUP\r\n"
	fileVersion = 1

	batchMagic  = 0x42505845 // "EXPB"
	batchHeader = 128
	entryBytes  = 32
	// partEntries is the most entries of a part: 1 MiB, so that recovery needs no more memory than
	// that for a snapshot of any size.
	partEntries = 1 << 15

	kindPart   = 1 // marks of the commit that follows
	kindCommit = 2 // the last marks of a commit, and its seal
)

// MaxNote is the longest note in bytes.
const MaxNote = 64 << 10

// castagnoli is the polynomial of CRC32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mark is something that a rebuild must know and that records do not tell.
type mark struct {
	kind markKind
	// id is a page, or for markLife a life.
	id, epoch, seq uint64
}

type markKind uint8

const (
	// markGone: records of the page up to the epoch do not count, it was deleted.
	markGone markKind = iota + 1
	// markVoid: the record of the page with this epoch and sequence number does not count, its
	// write failed or was overtaken by a commit.
	markVoid
	// markLife: records that were written in this life count up to the epoch.
	markLife
)

// encode writes a mark into 32 bytes that are zero.
func (m mark) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], m.id)
	le.PutUint64(b[8:], m.epoch)
	le.PutUint64(b[16:], m.seq)
	b[24] = byte(m.kind)
}

// decodeMark reads what encode wrote.
func decodeMark(b []byte) mark {
	le := binary.LittleEndian
	return mark{kind: markKind(b[24]), id: le.Uint64(b[0:]), epoch: le.Uint64(b[8:]), seq: le.Uint64(b[16:])}
}

type seal struct {
	Epoch uint64
	Note  []byte
	// stamp numbers the commits of a store; the entries of the table carry it.
	stamp uint64
	// sums are over all entries of the table.
	sums
	// life is the life in which the records of this commit were written.
	life uint64
	// Every record with an epoch <= base counts, whatever its life.
	base uint64
	// table is the number of the table.
	table uint64
	// checked reports whether every entry has its Check. A store of an earlier version has none
	// until it is rebuilt.
	checked bool
	// healed: the files were not as a clean end leaves them.
	healed bool
}

// known returns an entry as the index of this seal keeps it.
func (s *seal) known(e Entry) Entry {
	if !s.checked {
		e.Check = 0
	}
	return e
}

// batch is one append: a part or a commit.
type batch struct {
	kind    uint8
	seq     uint64 // from 0 within a generation
	gen     uint64
	seal           // of a commit
	entries []byte // encoded marks
	length  int64  // on the medium, from a decode
}

func roundUp(n int) int { return (n + vfs.BlockSize - 1) / vfs.BlockSize * vfs.BlockSize }

// size is the length of the batch on the medium: whole blocks, so that no append touches a block of
// the one before.
func (b *batch) size() int {
	return roundUp(batchHeader + (len(b.Note)+7)/8*8 + len(b.entries))
}

func (b *batch) encode(buf []byte) []byte {
	at := len(buf)
	buf = append(buf, make([]byte, b.size())...)
	p := buf[at:]
	le := binary.LittleEndian
	le.PutUint32(p[0:], batchMagic)
	p[4] = b.kind
	le.PutUint32(p[8:], uint32(len(p)))
	le.PutUint32(p[12:], uint32(len(b.entries)/entryBytes))
	le.PutUint64(p[16:], b.seq)
	le.PutUint64(p[24:], b.gen)
	le.PutUint64(p[32:], b.Epoch)
	le.PutUint32(p[40:], uint32(len(b.Note)))
	le.PutUint64(p[48:], b.stamp)
	le.PutUint64(p[56:], b.count)
	le.PutUint64(p[64:], b.pages)
	le.PutUint64(p[72:], b.places)
	le.PutUint64(p[80:], b.life)
	le.PutUint64(p[88:], b.base)
	le.PutUint64(p[96:], b.table)
	if b.checked {
		p[104] = 1
	}
	copy(p[batchHeader:], b.Note)
	copy(p[batchHeader+(len(b.Note)+7)/8*8:], b.entries)
	le.PutUint32(p[44:], crc32.Checksum(p, castagnoli))
	return buf
}

// batchLen reads the length of the batch whose first block is given, or 0 when none starts here.
func batchLen(block []byte) int {
	le := binary.LittleEndian
	if le.Uint32(block[0:]) != batchMagic {
		return 0
	}
	n := int(le.Uint32(block[8:]))
	if n < vfs.BlockSize || n%vfs.BlockSize != 0 || n > roundUp(batchHeader+MaxNote+partEntries*entryBytes) {
		return 0
	}
	return n
}

// decodeBatch reads a whole batch and checks it. The result shares p's memory. It returns false for
// bytes that are no batch of this version or fail their checksum, as a torn write does.
func decodeBatch(p []byte) (*batch, bool) {
	le := binary.LittleEndian
	if len(p) < batchHeader || batchLen(p) != len(p) {
		return nil, false
	}
	sum := le.Uint32(p[44:])
	var zero [4]byte
	crc := crc32.Update(0, castagnoli, p[:44])
	crc = crc32.Update(crc, castagnoli, zero[:])
	if crc32.Update(crc, castagnoli, p[48:]) != sum {
		return nil, false
	}
	b := &batch{
		kind: p[4], seq: le.Uint64(p[16:]), gen: le.Uint64(p[24:]), length: int64(len(p)),
	}
	b.Epoch, b.stamp = le.Uint64(p[32:]), le.Uint64(p[48:])
	b.sums = sums{count: le.Uint64(p[56:]), pages: le.Uint64(p[64:]), places: le.Uint64(p[72:])}
	b.life, b.base, b.table, b.checked = le.Uint64(p[80:]), le.Uint64(p[88:]), le.Uint64(p[96:]), p[104] == 1
	note, entries := int(le.Uint32(p[40:])), int(le.Uint32(p[12:]))
	from := batchHeader + (note+7)/8*8
	if note > MaxNote || entries > partEntries || from+entries*entryBytes > len(p) {
		return nil, false
	}
	b.Note = p[batchHeader : batchHeader+note]
	b.entries = p[from : from+entries*entryBytes]
	return b, b.kind == kindPart || b.kind == kindCommit
}

// Meta is what an index says about its store.
type Meta struct {
	Store    [16]byte
	PageSize int
	// Pages is the number of pages that the last commit sealed; Open fills it in.
	Pages int
	// KeyCheck is 0, or tells a wrong key from the right one.
	KeyCheck [32]byte
}

func encodeFileHeader(p []byte, m Meta, gen uint64) {
	clear(p)
	le := binary.LittleEndian
	copy(p, fileMagic)
	le.PutUint32(p[8:], fileVersion)
	copy(p[16:32], m.Store[:])
	le.PutUint32(p[32:], uint32(m.PageSize))
	le.PutUint64(p[40:], gen)
	copy(p[48:80], m.KeyCheck[:])
	le.PutUint32(p[80:], crc32.Checksum(p, castagnoli))
}

// decodeFileHeader reads a block; ErrCorrupt when it is none. p is a whole block and is not
// changed.
func decodeFileHeader(p []byte) (m Meta, gen uint64, err error) {
	le := binary.LittleEndian
	sum := le.Uint32(p[80:])
	c := append([]byte{}, p...)
	clear(c[80:84])
	if string(p[:8]) != fileMagic || crc32.Checksum(c, castagnoli) != sum {
		return m, 0, fmt.Errorf("superblock header: %w", tiers.ErrCorrupt)
	}
	if v := le.Uint32(p[8:]); v != fileVersion {
		return m, 0, fmt.Errorf("version %d: %w", v, tiers.ErrVersion)
	}
	m.PageSize = int(le.Uint32(p[32:]))
	copy(m.Store[:], p[16:32])
	copy(m.KeyCheck[:], p[48:80])
	return m, le.Uint64(p[40:]), nil
}
