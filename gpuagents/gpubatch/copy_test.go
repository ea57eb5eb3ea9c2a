package gpubatch

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestCopy: a copy writes all bytes and no other. done is called once for each byte, in order and
// after it was copied, and not again after its error.
func TestCopy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, sizes := range [][]int{
		{}, {0}, {1}, {leastPiece}, {leastPiece + 1, 3}, {0, 5*leastPiece - 7, 0, 100}, {1 << 20, 9 << 20},
	} {
		var parts []Part
		for _, n := range sizes {
			p := Part{To: make([]byte, n+3), From: make([]byte, n)}
			for i := range p.From {
				p.From[i] = byte(r.Uint32())
			}
			parts = append(parts, p)
		}
		part, at := 0, 0
		if err := Copy(parts, func(k, from, to int) error {
			for ; part < k; part, at = part+1, 0 {
				if at != sizes[part] {
					t.Errorf("%v: part %d ends at %d", sizes, part, at)
				}
			}
			if part != k || from != at || to <= from || !bytes.Equal(parts[k].To[from:to], parts[k].From[from:to]) {
				t.Errorf("%v: done of %d to %d of part %d behind %d of part %d", sizes, from, to, k, at, part)
			}
			at = to
			return nil
		}); err != nil {
			t.Fatalf("Copy: %v, want no error", err)
		}
		for ; part < len(parts); part, at = part+1, 0 {
			if at != sizes[part] {
				t.Errorf("%v: part %d ends at %d", sizes, part, at)
			}
		}
		for i, p := range parts {
			if n := sizes[i]; !bytes.Equal(p.To[:n], p.From) || !bytes.Equal(p.To[n:], make([]byte, 3)) {
				t.Errorf("%v: other bytes of part %d", sizes, i)
			}
		}
	}
	refused, calls := errors.New("refused"), 0
	err := Copy([]Part{{make([]byte, 9<<20), make([]byte, 9<<20)}}, func(int, int, int) error {
		calls++
		return refused
	})
	if !errors.Is(err, refused) || calls != 1 {
		t.Errorf("%d calls and %v, want one call and its error", calls, err)
	}
}
