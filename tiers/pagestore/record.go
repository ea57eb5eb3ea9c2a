package pagestore

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// The layout of a record: one block of header, then the stored bytes padded with zeros to whole
// blocks. docs/formats/tiers.md describes every field.
const (
	// HeaderBytes is the length of a record's header: a block of its own, so that what follows is
	// aligned for direct I/O straight into a page frame.
	HeaderBytes = vfs.BlockSize

	recordMagic   = 0x47505845 // "EXPG"
	recordVersion = 1

	flagSealed   = 1 // the stored bytes are AES-GCM ciphertext
	flagShuffled = 2 // they decode to bytes shuffled by the element size
	nonceBytes   = 12
	tagBytes     = 16
)

// castagnoli is the polynomial of CRC32C, for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var noSum [4]byte

type recordHeader struct {
	// Page and Epoch are the page's id and the epoch in which its content was written.
	Page, Epoch uint64
	// Stored is the number of bytes after the header, without padding.
	Stored int
	// Codec and Shuffled say how they decode.
	Codec    CodecID
	Shuffled bool
	// Elem is the page's element size in bytes and Class its class, as the caller declared them.
	Elem  uint8
	Class uint8
	// Sealed reports whether they are encrypted.
	Sealed bool
	// Life and Seq tell when the content was first written: the opening of the store, and a number
	// that grows within it. They decide which record counts when the index is rebuilt.
	Life, Seq uint64

	payloadCRC uint32
}

// Shuffle is the element size to unshuffle by; 1 for none.
func (h recordHeader) Shuffle() int {
	if h.Shuffled {
		return int(h.Elem)
	}
	return 1
}

// Blocks is the length of the record in blocks, header included.
func (h recordHeader) Blocks() int { return blocksFor(h.Stored) }

func (h recordHeader) bodyBytes() int { return (h.Blocks() - 1) * vfs.BlockSize }

func blocksFor(stored int) int { return 1 + (stored+vfs.BlockSize-1)/vfs.BlockSize }

// recordIdentity is what a record must match: a record of another store, place (a misdirected
// write), page or time is refused.
type recordIdentity struct {
	Store    [16]byte
	PageSize int
	Segment  uint32
	Slot     uint32
	Page     uint64
	Epoch    uint64
}

// sealRecord completes a record: head, of HeaderBytes, is filled in, and body holds h.Stored bytes
// and has room for whole blocks, and for tagBytes behind the stored bytes when aead is not nil. It
// encrypts and pads body in place and returns its whole blocks; a body of whole blocks that is not
// encrypted is only read. The caller owns both buffers and writes them as one record. A nonce is
// random, so the same page sealed twice gives different bytes.
func sealRecord(head, body []byte, h recordHeader, id recordIdentity, aead cipher.AEAD) ([]byte, error) {
	clear(head)
	le := binary.LittleEndian
	le.PutUint32(head[0:], recordMagic)
	le.PutUint16(head[4:], recordVersion)
	head[6] = byte(h.Codec)
	head[7] = h.Elem
	le.PutUint64(head[8:], id.Page)
	le.PutUint64(head[16:], id.Epoch)
	le.PutUint32(head[24:], uint32(id.PageSize))
	le.PutUint32(head[28:], uint32(h.Stored))
	var flags uint16
	if h.Shuffled {
		flags |= flagShuffled
	}
	if aead != nil {
		flags |= flagSealed
	}
	le.PutUint16(head[36:], flags)
	head[38] = h.Class
	copy(head[40:56], id.Store[:])
	le.PutUint32(head[56:], id.Segment)
	le.PutUint32(head[60:], id.Slot)
	le.PutUint64(head[104:], h.Life)
	le.PutUint64(head[112:], h.Seq)
	if aead != nil {
		if _, err := rand.Read(head[64 : 64+nonceBytes]); err != nil {
			return nil, fmt.Errorf("nonce: %w", err)
		}
		plain := body[:h.Stored]
		out := aead.Seal(plain[:0], head[64:64+nonceBytes], plain, associated(head))
		copy(head[80:96], out[h.Stored:])
	}
	body = body[:h.bodyBytes()]
	clear(body[h.Stored:])
	le.PutUint32(head[100:], crc32.Checksum(body, castagnoli))
	le.PutUint32(head[96:], crc32.Checksum(head, castagnoli))
	return body, nil
}

// associated returns the part of the header that the cipher authenticates: all fields that are
// fixed before encryption.
func associated(head []byte) []byte { return head[4:64] }

// parseRecord checks a record's header block on its own and returns it, with the identity that it
// claims. A record of another version is tiers.ErrVersion, and any other block that has no valid
// header is tiers.ErrCorrupt. head is not changed.
func parseRecord(head []byte) (recordHeader, recordIdentity, error) {
	var h recordHeader
	var id recordIdentity
	le := binary.LittleEndian
	if len(head) < HeaderBytes || le.Uint32(head[0:]) != recordMagic {
		return h, id, fmt.Errorf("no record here: %w", tiers.ErrCorrupt)
	}
	head = head[:HeaderBytes]
	sum := le.Uint32(head[96:])
	crc := crc32.Update(0, castagnoli, head[:96])
	crc = crc32.Update(crc, castagnoli, noSum[:])
	if crc = crc32.Update(crc, castagnoli, head[100:]); crc != sum {
		return h, id, fmt.Errorf("header checksum %08x, computed %08x: %w", sum, crc, tiers.ErrCorrupt)
	}
	if v := le.Uint16(head[4:]); v != recordVersion {
		return h, id, fmt.Errorf("record version %d: %w", v, tiers.ErrVersion)
	}
	h = recordHeader{
		Page: le.Uint64(head[8:]), Epoch: le.Uint64(head[16:]), Stored: int(le.Uint32(head[28:])),
		Codec: CodecID(head[6]), Elem: head[7], Class: head[38],
		Sealed: le.Uint16(head[36:])&flagSealed != 0, Shuffled: le.Uint16(head[36:])&flagShuffled != 0,
		Life: le.Uint64(head[104:]), Seq: le.Uint64(head[112:]),
		payloadCRC: le.Uint32(head[100:]),
	}
	id = recordIdentity{
		PageSize: int(le.Uint32(head[24:])), Segment: le.Uint32(head[56:]), Slot: le.Uint32(head[60:]),
		Page: h.Page, Epoch: h.Epoch,
	}
	copy(id.Store[:], head[40:])
	return h, id, nil
}

// unsealRecord checks that head and body, whole blocks as read from the medium, are the record of
// an identity, and returns its header and its stored bytes, decrypted in place inside body, which
// has room for tagBytes behind them when aead is not nil.
func unsealRecord(head, body []byte, want recordIdentity, aead cipher.AEAD) (recordHeader, []byte, error) {
	h, got, err := parseRecord(head)
	if err != nil {
		return h, nil, err
	}
	if got != want {
		return h, nil, fmt.Errorf("record of page %d epoch %d (slot %d/%d) where page %d epoch %d (slot %d/%d) "+
			"should be: %w",
			got.Page, got.Epoch, got.Segment, got.Slot, want.Page, want.Epoch, want.Segment, want.Slot,
			tiers.ErrCorrupt)
	}
	if h.Stored > want.PageSize || h.bodyBytes() > len(body) {
		return h, nil, fmt.Errorf("record of %d bytes in %d: %w", h.Stored, len(body), tiers.ErrCorrupt)
	}
	if crc := crc32.Checksum(body[:h.bodyBytes()], castagnoli); crc != h.payloadCRC {
		return h, nil, fmt.Errorf("page checksum %08x, computed %08x: %w", h.payloadCRC, crc, tiers.ErrCorrupt)
	}
	stored := body[:h.Stored:h.Stored]
	if !h.Sealed {
		if aead != nil {
			return h, nil, fmt.Errorf("record is not encrypted and the store is: %w", tiers.ErrCorrupt)
		}
		return h, stored, nil
	}
	if aead == nil {
		return h, nil, fmt.Errorf("record is encrypted and no key was given: %w", tiers.ErrMismatch)
	}
	// Open wants the tag behind the text; the caller left room for it there.
	room := body[:h.Stored+tagBytes]
	copy(room[h.Stored:], head[80:80+tagBytes])
	plain, err := aead.Open(room[:0], head[64:64+nonceBytes], room, associated(head))
	if err != nil {
		return h, nil, fmt.Errorf("decrypt: %w", tiers.ErrCorrupt)
	}
	return h, plain, nil
}

// bodyBuffer is the number of bytes that a buffer for the body of any record of a page size needs:
// whole blocks, and room for the cipher's tag.
func bodyBuffer(pageSize int) int { return blocksFor(pageSize) * vfs.BlockSize }

// fileHeader is the first block of a segment file. The last block of the file has a copy of it.
type fileHeader struct {
	store    [16]byte
	tier     uint8
	number   uint32
	pageSize int
	blocks   int // per slot
	slots    int
}

const (
	fileMagic   = "EXOSEG\r\n"
	fileVersion = 1
)

// encode fills a block. The checksum covers the whole block, with its own field as zeros.
func (h fileHeader) encode(b []byte) {
	clear(b)
	le := binary.LittleEndian
	copy(b, fileMagic)
	le.PutUint32(b[8:], fileVersion)
	b[12] = h.tier
	copy(b[16:32], h.store[:])
	le.PutUint32(b[32:], h.number)
	le.PutUint32(b[36:], uint32(h.pageSize))
	le.PutUint32(b[40:], uint32(h.blocks))
	le.PutUint32(b[44:], uint32(h.slots))
	le.PutUint32(b[48:], crc32.Checksum(b, castagnoli))
}

// decodeFileHeader reads a block. Bytes that no header starts with are ErrCorrupt, as after a crash
// while the file was made. A header of another version is tiers.ErrVersion. b is a whole block and
// is not changed.
func decodeFileHeader(b []byte) (h fileHeader, err error) {
	le := binary.LittleEndian
	if !bytes.HasPrefix(b, []byte(fileMagic)) {
		return h, fmt.Errorf("no segment header: %w", tiers.ErrCorrupt)
	}
	sum := le.Uint32(b[48:])
	c := append([]byte{}, b...)
	clear(c[48:52])
	if crc32.Checksum(c, castagnoli) != sum {
		return h, fmt.Errorf("segment header checksum: %w", tiers.ErrCorrupt)
	}
	if v := le.Uint32(b[8:]); v != fileVersion {
		return h, fmt.Errorf("segment version %d: %w", v, tiers.ErrVersion)
	}
	h = fileHeader{
		tier: b[12], number: le.Uint32(b[32:]), pageSize: int(le.Uint32(b[36:])),
		blocks: int(le.Uint32(b[40:])), slots: int(le.Uint32(b[44:])),
	}
	copy(h.store[:], b[16:32])
	if h.blocks < 1 || h.slots < 1 {
		return h, fmt.Errorf("segment of %d slots of %d blocks: %w", h.slots, h.blocks, tiers.ErrCorrupt)
	}
	return h, nil
}
