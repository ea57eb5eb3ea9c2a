package gpubatch

import (
	"runtime"
	"sync/atomic"
)

// Part is bytes that a Copy copies: From to the start of To, which is not shorter.
type Part struct{ To, From []byte }

// Sizes in bytes, and the maximum number of goroutines of a Copy, including the caller. One core
// copies some 10 GB/s, and more than eight copy no faster together. A piece takes a core 6 to 100
// us, much longer than taking its number. One transfer for each eighth of the bytes keeps the bus
// busy with few calls.
const (
	leastPiece  = 64 << 10
	mostPiece   = 1 << 20
	pieces      = 64 // pieces of a copy whose piece size is not clamped
	transfers   = 8
	copyWorkers = 8
)

type piece struct{ part, from, to int }

// Copy copies parts on several cores. It calls done for each range [from, to) of a part that is
// copied, in the order of the parts and of their bytes. All calls of done are made by the calling
// goroutine; done may be nil. Copy returns the first error of done and does not call done again. No
// copy is under way when Copy returns.
func Copy(parts []Part, done func(part, from, to int) error) error {
	all, least := cut(parts)
	copied := make([]atomic.Bool, len(all))
	var next atomic.Int64
	// work copies a piece that no other goroutine has taken, and reports whether there was one.
	work := func() bool {
		i := int(next.Add(1)) - 1
		if i >= len(all) {
			return false
		}
		p := all[i]
		copy(parts[p.part].To[p.from:p.to], parts[p.part].From[p.from:p.to])
		copied[i].Store(true)
		return true
	}
	workers := min(runtime.GOMAXPROCS(0), copyWorkers, len(all)) - 1
	ended := make(chan struct{}, max(workers, 0))
	for range workers {
		go func() {
			for work() {
			}
			ended <- struct{}{}
		}()
	}
	var err error
	at, waiting := 0, piece{} // pieces before at are copied; done was not called for waiting yet
	report := func(last bool) {
		for ; at < len(all) && copied[at].Load(); at++ {
			p := all[at]
			if waiting.to = p.to; waiting.part != p.part || p.from == 0 {
				waiting = p
			}
			if p.to < len(parts[p.part].From) && p.to-waiting.from < least && !last {
				continue
			}
			if err == nil && done != nil && p.to > waiting.from {
				err = done(p.part, waiting.from, p.to)
			}
			waiting.from = p.to
		}
	}
	// The caller copies too: it does not wait for goroutines that have not begun yet.
	for work() {
		report(false)
	}
	for range workers {
		<-ended
		report(false)
	}
	report(true)
	return err
}

// cut cuts parts into pieces. least is the minimum size of a transfer in bytes.
func cut(parts []Part) (all []piece, least int) {
	total := 0
	for _, p := range parts {
		total += len(p.From)
	}
	size := min(max(leastPiece, (total/pieces+4095)&^4095), mostPiece)
	for i, p := range parts {
		for from := 0; from < len(p.From); from += size {
			all = append(all, piece{i, from, min(from+size, len(p.From))})
		}
	}
	return all, max(2*leastPiece, total/transfers)
}
