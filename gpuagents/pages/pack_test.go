package pages

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestPackPage: a page that was packed is the same bytes, whatever of it is zeros, and takes little
// more than what is not.
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
			if len(packed) > written+8*(2*packBlock+10) {
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
