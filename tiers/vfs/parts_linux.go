package vfs

import (
	"io/fs"
	"sync"
	"syscall"
	"unsafe"
)

// maxParts is the most parts of one request; further parts go one by one. A record has two.
const maxParts = 64

// request is one preadv(2) or pwritev(2). It is used again, since a closure for each would be an
// allocation a page.
type request struct {
	trap  uintptr
	parts [maxParts]syscall.Iovec
	count int
	off   int64
	n     uintptr
	errno syscall.Errno
	run   func(fd uintptr)
}

var requests = sync.Pool{New: func() any {
	r := &request{}
	r.run = r.call
	return r
}}

func (r *request) call(fd uintptr) {
	for {
		// The kernel takes the offset in two words, the low one first, and a 64-bit kernel reads
		// only that.
		r.n, _, r.errno = syscall.Syscall6(r.trap, fd, uintptr(unsafe.Pointer(&r.parts[0])), uintptr(r.count),
			uintptr(r.off), uintptr(uint64(r.off)>>32), 0)
		if r.errno != syscall.EINTR {
			return
		}
	}
}

// readParts is one preadv(2), which may stop short.
func readParts(c syscall.RawConn, parts [][]byte, off int64) (int, error) {
	return transferParts(syscall.SYS_PREADV, c, parts, off)
}

// writeParts is one pwritev(2), which may stop short.
func writeParts(c syscall.RawConn, parts [][]byte, off int64) (int, error) {
	return transferParts(syscall.SYS_PWRITEV, c, parts, off)
}

// transferParts runs one request and returns how many bytes it transferred.
func transferParts(trap uintptr, c syscall.RawConn, parts [][]byte, off int64) (int, error) {
	r := requests.Get().(*request)
	defer requests.Put(r)
	r.trap, r.off, r.count = trap, off, 0
	for _, p := range parts[:min(len(parts), maxParts)] {
		if len(p) == 0 {
			continue
		}
		r.parts[r.count].Base = unsafe.SliceData(p)
		r.parts[r.count].SetLen(len(p))
		r.count++
	}
	// Control, since Read and Write would let one request at a time at the file.
	err := c.Control(r.run)
	clear(r.parts[:r.count]) // Nobody else's memory is kept.
	switch {
	case err != nil:
		return 0, fs.ErrClosed // Nothing else makes Control fail.
	case r.errno != 0:
		return 0, r.errno
	}
	return int(r.n), nil
}
