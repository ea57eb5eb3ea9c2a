//go:build cuda

package driver

import (
	"math/rand/v2"
	"testing"
)

// A class holds its size and wastes an eighth at most, or what the driver rounds to.
func TestClassSize(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		n := r.Int64N(int64(1)<<(1+i%37)) + 1
		c := classSize(n)
		if c < n || c-n >= max(n/8, smallestBlock) && c-n >= bigStep || c%smallestBlock != 0 || classSize(c) != c {
			t.Fatalf("%d bytes are in the class %d, that one in %d", n, c, classSize(c))
		}
	}
	for n, c := range map[int64]int64{
		1: 512, 512: 512, 513: 1024, 1 << 20: 1 << 20, 1<<20 + 1: 9 << 17,
		2 << 20: 2 << 20, 64<<20 + 1: 66 << 20, 4 << 30: 4 << 30,
	} {
		if got := classSize(n); got != c {
			t.Errorf("class of %d is %d, want %d", n, got, c)
		}
	}
}
