package staging

import (
	"runtime"
	"sync/atomic"
)

// Sizes of the pieces of a Copy in bytes, and the most goroutines. One core copies some 10 GB/s, and
// a bus takes 55 GB/s: eight cores keep it busy. A piece takes a core 12 to 100 us, which is long
// beside the time that a goroutine takes to wake.
const (
	leastPiece  = 128 << 10
	mostPiece   = 1 << 20
	pieces      = 32 // of a copy whose pieces have neither of these sizes
	copyWorkers = 8
)

// Copy copies src to dst, which is not shorter, in pieces and on several cores, and calls done with
// the first byte and the end of each piece once it is copied. Calls of done come one after the
// other in the calling goroutine, in any order of the pieces. After an error of done, which Copy
// returns, done is not called again. No copy is under way when Copy returns.
func Copy(dst, src []byte, done func(from, to int) error) error {
	size := min(max(leastPiece, (len(src)/pieces+4095)&^4095), mostPiece)
	n := (len(src) + size - 1) / size
	piece := func(i int) (from, to int) {
		from, to = i*size, min((i+1)*size, len(src))
		copy(dst[from:to], src[from:to])
		return from, to
	}
	workers := min(runtime.GOMAXPROCS(0), copyWorkers, n)
	if workers <= 1 {
		for i := range n {
			if err := done(piece(i)); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	copied := make(chan int, n)
	for range workers {
		go func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				piece(i)
				copied <- i
			}
		}()
	}
	var err error
	for range n {
		if i := <-copied; err == nil {
			err = done(i*size, min((i+1)*size, len(src)))
		}
	}
	return err
}
