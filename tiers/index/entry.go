package index

import (
	"encoding/binary"
)

// Entry is the place of the content of a page: a slot of a segment of a tier, and the length of the
// record in blocks.
type Entry struct {
	Page, Epoch   uint64
	Segment, Slot uint32
	Blocks        uint16
	Tier          uint8
	// Check is Stamp.Check of the record that holds the content. It tells the last of several
	// records of a page in one epoch from the earlier ones. It is 0 in an index of a version that
	// did not keep it.
	Check uint32
}

// Change is what a commit does to a page: Old is the committed entry, New the one that takes its
// place.
type Change struct {
	Page           uint64
	Old, New       Entry
	HadOld, HasNew bool
}

// Void is a record that does not count though its epoch does: its write failed, or a commit
// overtook it.
type Void struct{ Page, Epoch, Seq uint64 }

// sums are checksums over all entries, in any order: each entry adds a hash, so entries can be
// added and taken out one by one.
type sums struct {
	count uint64
	// pages is over page ids, epochs and checks, places over everything.
	pages, places uint64
}

func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// add counts an entry with n 1, and takes it out with n ^0.
func (s *sums) add(e Entry, n uint64) {
	content := mix(mix(e.Page+0x9e3779b97f4a7c15) ^ e.Epoch)
	if e.Check != 0 {
		content = mix(content ^ uint64(e.Check))
	}
	place := mix(mix(content^(uint64(e.Segment)<<32|uint64(e.Slot))) ^ (uint64(e.Tier)<<16 | uint64(e.Blocks)))
	s.count += n
	s.pages += n * content
	s.places += n * place
}

const minus = ^uint64(0)

// The value of a page's key, in order: the number of the commit that wrote it, the entry as of that
// commit, and the one before. docs/formats/tiers.md has the fields.
const (
	placeBytes = 24
	valueBytes = 8 + 2*placeBytes
	hasPlace   = 1
)

// storeKey is the key of the identity of the store; the key of a page has 8 bytes.
var storeKey = []byte("store")

func encodePlace(b []byte, e Entry, has bool) {
	if !has {
		return
	}
	le := binary.LittleEndian
	le.PutUint64(b[0:], e.Epoch)
	le.PutUint32(b[8:], e.Segment)
	le.PutUint32(b[12:], e.Slot)
	le.PutUint16(b[16:], e.Blocks)
	b[18] = e.Tier
	b[19] = hasPlace
	le.PutUint32(b[20:], e.Check)
}

// decodePlace reads what encodePlace wrote, and reports whether there is an entry. b has
// placeBytes.
func decodePlace(page uint64, b []byte) (Entry, bool) {
	le := binary.LittleEndian
	return Entry{
		Page: page, Epoch: le.Uint64(b[0:]), Segment: le.Uint32(b[8:]), Slot: le.Uint32(b[12:]),
		Blocks: le.Uint16(b[16:]), Tier: b[18], Check: le.Uint32(b[20:]),
	}, b[19] == hasPlace
}

// op returns the change of the key of a page in commit number stamp. The result shares the memory
// of buf, which has room for 8+valueBytes and is zero. The old entry stays in the value, so that a
// table which is one commit ahead of the seal can be read as of the seal.
func (c Change) op(buf []byte, stamp uint64) Op {
	b := buf[: 8+valueBytes : 8+valueBytes]
	binary.BigEndian.PutUint64(b, c.Page)
	binary.LittleEndian.PutUint64(b[8:], stamp)
	encodePlace(b[16:], c.New, c.HasNew)
	encodePlace(b[16+placeBytes:], c.Old, c.HadOld)
	return Op{Key: b[:8:8], Value: b[8:]}
}
