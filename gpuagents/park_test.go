package gpuagents

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestPackPage: a page that was packed is the same bytes, whatever of it is zeros, and takes little more than what is not.
func TestPackPage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{4096, 64 << 10, 2 << 20} {
		for range 20 {
			page := make([]byte, size)
			written := 0
			for range r.IntN(6) {
				at := r.IntN(size)
				for i := at; i < min(size, at+r.IntN(5000)); i++ {
					page[i] = byte(r.Uint32())
					written++
				}
			}
			packed := packPage(nil, page)
			if len(packed) > written+8*(2*restBlock+10) {
				t.Errorf("%d bytes of a page take %d", written, len(packed))
			}
			got := make([]byte, size)
			if err := unpackPage(got, packed); err != nil || !bytes.Equal(got, page) {
				t.Fatalf("a page of %d bytes came back changed: %v", size, err)
			}
			for range 20 { // damage is an error or other bytes, never a panic
				if len(packed) > 0 {
					packed[r.IntN(len(packed))] ^= byte(1 << r.IntN(8))
				}
				_ = unpackPage(got, packed[:r.IntN(len(packed)+1)])
			}
		}
	}
}

// asked reports whether a shard was asked to park.
func (s *opened) askedNow() bool {
	select {
	case <-s.park:
		return true
	default:
		return false
	}
}

// TestOpenings: of shards that are open the one that is idle the longest is parked for another. One that has something to do is not, and where all
// have, another is opened beside them.
func TestOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpenings(3)
		var all []*opened
		for range 3 {
			all = append(all, o.take(t.Context()))
		}
		all[0].busy()
		time.Sleep(time.Second)
		all[1].idle()
		time.Sleep(time.Second)
		all[2].idle()
		time.Sleep(time.Second)
		began := time.Now()
		taken := make(chan *opened)
		go func() { taken <- o.take(t.Context()) }()
		synctest.Wait()
		if all[0].askedNow() || all[2].askedNow() || !all[1].askedNow() {
			t.Fatal("another shard than the one that is idle the longest is parked")
		}
		o.leave(all[1])
		fourth := <-taken
		if d := time.Since(began); d != 0 {
			t.Errorf("opened after %v", d)
		}
		for _, s := range []*opened{all[0], all[2], fourth} {
			s.busy()
		}
		began = time.Now()
		fifth := o.take(t.Context())
		fifth.busy()
		if d := time.Since(began); d != openPatience {
			t.Errorf("opened beside busy ones after %v", d)
		}
		for _, s := range []*opened{all[0], all[2], fourth, fifth} {
			if s.askedNow() {
				t.Error("a busy shard is parked")
			}
		}
		// There are more than are kept open: the first that has nothing to do is parked.
		fourth.idle()
		time.Sleep(time.Second)
		o.trim()
		if !fourth.askedNow() || fifth.askedNow() {
			t.Error("the idle one of too many is not parked")
		}
	})
}
