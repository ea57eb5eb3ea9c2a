package staging

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestCopy: a copy has all bytes and no other, done gets each byte once and after it was copied, and
// an error of done ends the calls.
func TestCopy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, leastPiece, leastPiece + 1, 5*leastPiece - 7, 9 << 20} {
		src, dst, seen := make([]byte, n), make([]byte, n+3), make([]byte, n)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		if err := Copy(dst, src, func(from, to int) error {
			if !bytes.Equal(dst[from:to], src[from:to]) {
				t.Errorf("%d bytes: done of %d to %d before the copy", n, from, to)
			}
			for i := from; i < to; i++ {
				seen[i]++
			}
			return nil
		}); err != nil {
			t.Fatalf("Copy: %v, want no error", err)
		}
		if !bytes.Equal(dst[:n], src) || !bytes.Equal(dst[n:], make([]byte, 3)) {
			t.Errorf("%d bytes: other bytes", n)
		}
		if bytes.Count(seen, []byte{1}) != n {
			t.Errorf("%d bytes: done has not had each byte once", n)
		}
	}
	refused, calls := errors.New("refused"), 0
	err := Copy(make([]byte, 4*leastPiece), make([]byte, 4*leastPiece), func(int, int) error {
		calls++
		return refused
	})
	if !errors.Is(err, refused) || calls != 1 {
		t.Errorf("%d calls and %v, want one call and its error", calls, err)
	}
}
