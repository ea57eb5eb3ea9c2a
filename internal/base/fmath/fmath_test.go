package fmath

import (
	"math"
	"testing"
)

// TestExp compares Exp with float64 and requires that it does not fall, also from one power of two
// to the next.
func TestExp(t *testing.T) {
	last := float32(0)
	for x := float32(0); x <= 80; x += 1.0 / 512 {
		got, want := Exp(x), math.Exp(float64(x))
		if e := math.Abs(float64(got)/want - 1); e > 2e-4 {
			t.Fatalf("Exp(%v) = %v, want %v, off by %v", x, got, want, e)
		}
		if got < last {
			t.Fatalf("Exp(%v) = %v is below %v before it", x, got, last)
		}
		last = got
	}
}

// TestPowerOfE compares PowerOfE with float64, and at its ends.
func TestPowerOfE(t *testing.T) {
	worst := 0.0
	for x := float32(-87); x <= 88; x += 1.0 / 1024 {
		got, want := PowerOfE(x), math.Exp(float64(x))
		worst = max(worst, math.Abs(float64(got)/want-1))
	}
	if worst > 2e-7 {
		t.Errorf("off by %v", worst)
	}
	for _, of := range [][2]float32{{0, 1}, {-100, PowerOfE(-87)}, {float32(math.Inf(1)), PowerOfE(88)}} {
		if got := PowerOfE(of[0]); got != of[1] || got == 0 {
			t.Errorf("PowerOfE(%v) = %v, want %v", of[0], got, of[1])
		}
	}
}

// TestLog2Rough compares Log2Rough with float64 and requires that it rises.
func TestLog2Rough(t *testing.T) {
	last := float32(math.Inf(-1))
	for x := float32(1e-6); x < 1e6; x *= 1.01 {
		got, want := Log2Rough(x), math.Log2(float64(x))
		if math.Abs(float64(got)-want) > 0.09 || got <= last {
			t.Fatalf("Log2Rough(%v) = %v, want %v and more than %v", x, got, want, last)
		}
		last = got
	}
}
