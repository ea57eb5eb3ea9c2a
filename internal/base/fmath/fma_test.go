package fmath

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA is a*b + c by exact arithmetic, of finite numbers, rounded once.
func exactFMA(a, b, c float32) float32 {
	sum := new(big.Float).SetPrec(1000).SetMode(big.ToNearestEven)
	sum.Mul(big.NewFloat(float64(a)).SetPrec(1000), big.NewFloat(float64(b)).SetPrec(1000))
	sum.Add(sum, big.NewFloat(float64(c)).SetPrec(1000))
	if sum.Sign() == 0 { // the sign of a zero is not in a big.Float
		return float32(float64(a)*float64(b) + float64(c))
	}
	v, _ := sum.Float32()
	return v
}

func checkFMA(t *testing.T, a, b, c float32) {
	t.Helper()
	if got, want := FMA(a, b, c), exactFMA(a, b, c); math.Float32bits(got) != math.Float32bits(want) {
		t.Fatalf("FMA(%#x, %#x, %#x) = %#x, want %#x", math.Float32bits(a), math.Float32bits(b), math.Float32bits(c),
			math.Float32bits(got), math.Float32bits(want))
	}
}

func isFinite(v float32) bool { return v-v == 0 }

// TestFMA compares FMA with exact arithmetic: on random bits, on sums of similar size, on sums very
// close to a tie of float32, which rounding twice gets wrong, and on results below the normal
// range.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	twice := 0 // how often rounding twice would have been wrong
	for range 300_000 {
		a, b, c := math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
		switch r.IntN(4) {
		case 0: // c is about as large as the product
			p := float32(float64(a) * float64(b))
			c = math.Float32frombits(math.Float32bits(p)&0xff800000 | r.Uint32()>>9)
			if r.IntN(2) == 0 {
				c = -c
			}
		case 1: // c is half a unit of the product, or a product of little half a unit of c
			a = math.Float32frombits(127<<23 | r.Uint32()>>9&^(1<<r.IntN(23)-1))
			b = math.Float32frombits(127<<23 | r.Uint32()>>9&^(1<<r.IntN(23)-1))
			c = float32(math.Ldexp(float64(r.IntN(3)-1), -24-r.IntN(60)))
			if r.IntN(2) == 0 {
				a, c = float32(math.Ldexp(float64(a), -24-r.IntN(40))), b*2
			}
		case 2: // subnormal results
			a = float32(math.Ldexp(float64(1+r.Float32()), -63-r.IntN(25)))
			b = float32(math.Ldexp(float64(1+r.Float32()), -63-r.IntN(25)))
			c = math.Float32frombits(r.Uint32() & 0x80ffffff)
		}
		if !isFinite(a) || !isFinite(b) || !isFinite(c) {
			continue
		}
		if float32(float64(a)*float64(b)+float64(c)) != exactFMA(a, b, c) {
			twice++
		}
		checkFMA(t, a, b, c)
	}
	if twice < 100 {
		t.Errorf("%d cases in which rounding twice is wrong: the test proves nothing", twice)
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, v := range [][4]float32{
		{inf, 1, 1, inf},
		{inf, 0, 1, nan},
		{1, nan, 1, nan},
		{1, inf, -inf, nan},
		{math.MaxFloat32, 2, 0, inf},
	} {
		got, want := FMA(v[0], v[1], v[2]), v[3]
		if got != want && !(math.IsNaN(float64(got)) && math.IsNaN(float64(want))) {
			t.Errorf("FMA(%v, %v, %v) = %v, want %v", v[0], v[1], v[2], got, want)
		}
	}
}

func FuzzFMA(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x3f800001), uint32(0xbf800000))
	f.Add(uint32(0x00000001), uint32(0x3f000000), uint32(0x00800000))
	f.Fuzz(func(t *testing.T, a, b, c uint32) {
		x, y, z := math.Float32frombits(a), math.Float32frombits(b), math.Float32frombits(c)
		if isFinite(x) && isFinite(y) && isFinite(z) {
			checkFMA(t, x, y, z)
		}
	})
}
