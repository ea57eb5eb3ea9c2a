package pagestore

import (
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// buffer is what a record passes through: the block of its header, and room for its body, which is
// made when the body cannot pass between the medium and the caller's memory by itself.
type buffer struct {
	head []byte
	body []byte
	rec  [2][]byte // header and body, as the medium takes them
}

func newBuffer() *buffer { return &buffer{head: vfs.Buffer(HeaderBytes)} }

// room is memory for the body of any record of a page size, and for a page.
func (b *buffer) room(pageSize int) []byte {
	if b.body == nil {
		b.body = vfs.Buffer(bodyBuffer(pageSize))
	}
	return b.body
}

// record is the header and a body.
func (b *buffer) record(body []byte) [][]byte {
	b.rec = [2][]byte{b.head, body}
	return b.rec[:]
}
