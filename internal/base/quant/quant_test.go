package quant

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// exactHalf is the value of an IEEE float of 16 bits, by its definition.
func exactHalf(v uint16) float64 {
	sign, e, f := 1-2*float64(v>>15), int(v>>10&31), float64(v&1023)
	switch e {
	case 0:
		return sign * math.Ldexp(f, -24)
	case 31:
		if f != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+f, e-25)
}

// bitsOf returns n bits of b from bit at on, of the lowest bits of each byte first.
func bitsOf(b []byte, at, n int) (v int) {
	for i := range n {
		v |= int(b[(at+i)/8]>>((at+i)%8)&1) << i
	}
	return v
}

// element computes element i of a block in float64, from where its bits are and by no loop over
// runs: the obvious twin of Decode.
func element(kind string, b []byte, i int) float64 {
	d := func(at int) float64 { return exactHalf(binary.LittleEndian.Uint16(b[at:])) }
	switch kind {
	case F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case F16:
		return d(0)
	case BF16:
		return float64(math.Float32frombits(uint32(b[0])<<16 | uint32(b[1])<<24))
	case Q8_0:
		return d(0) * float64(int8(b[2+i]))
	case Q4_0: // the low halves of 16 bytes, then the high halves
		return d(0) * float64(bitsOf(b[2:], 8*(i%16)+4*(i/16), 4)-8)
	case Q4K:
		part := i / 32
		q := bitsOf(b[16:], 8*(i/64*32+i%32)+4*(part%2), 4)
		var scale, least int
		if part < 4 {
			scale, least = bitsOf(b[4:], 8*part, 6), bitsOf(b[4:], 8*(part+4), 6)
		} else {
			scale = bitsOf(b[4:], 8*(part+4), 4) + 16*bitsOf(b[4:], 8*(part-4)+6, 2)
			least = bitsOf(b[4:], 8*(part+4)+4, 4) + 16*bitsOf(b[4:], 8*part+6, 2)
		}
		return d(0)*float64(scale)*float64(q) - d(2)*float64(least)
	case Q6K:
		part, quarter, l := i/128, i%128/32, i%32
		low := bitsOf(b, 8*(64*part+32*(quarter%2)+l)+4*(quarter/2), 4)
		high := bitsOf(b[128:], 8*(32*part+l)+2*quarter, 2)
		return d(208) * float64(int8(b[192+i/16])) * float64(low+16*high-32)
	}
	panic(kind)
}

// TestDecode compares each type with its twin, for random bytes whose scales are finite.
func TestDecode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for kind, l := range layouts {
		for range 500 {
			n := 1 + r.IntN(3)
			src := make([]byte, int64(n)*l.bytes)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			dst := make([]float32, int64(n)*l.elements)
			if err := Decode(kind, dst, src); err != nil {
				t.Fatalf("Decode of %s: %v", kind, err)
			}
			for i, got := range dst {
				want := element(kind, src[int64(i)/l.elements*l.bytes:], i%int(l.elements))
				// Q4_K is a difference: its error is relative to the parts.
				off := math.Abs(float64(got) - want)
				if math.IsNaN(want) != math.IsNaN(float64(got)) || off > 1e-6*max(math.Abs(want), 8e7) && kind == Q4K ||
					kind != Q4K && off > 2e-7*math.Abs(want) {
					t.Fatalf("%s, element %d: %v, want %v", kind, i, got, want)
				}
			}
		}
	}
}

// TestDecodeQ4K compares blocks whose scales are of the size of weights.
func TestDecodeQ4K(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		b := make([]byte, 144)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		binary.LittleEndian.PutUint16(b, toHalf(r.Float32()))
		binary.LittleEndian.PutUint16(b[2:], toHalf(r.Float32()))
		dst := make([]float32, 256)
		if err := Decode(Q4K, dst, b); err != nil {
			t.Fatal(err)
		}
		for i, got := range dst {
			if want := element(Q4K, b, i); math.Abs(float64(got)-want) > 1e-4 {
				t.Fatalf("element %d: %v, want %v", i, got, want)
			}
		}
	}
}

func TestHalf(t *testing.T) {
	for v := range 1 << 16 {
		got, want := half([]byte{byte(v), byte(v >> 8)}), exactHalf(uint16(v))
		if float64(got) != want && !math.IsNaN(want) || math.IsNaN(want) != math.IsNaN(float64(got)) ||
			math.Signbit(want) != math.Signbit(float64(got)) && !math.IsNaN(want) {
			t.Fatalf("%#04x: %v, want %v", v, got, want)
		}
		if v >= 1<<15 || v > 31<<10 {
			continue
		}
		if back := toHalf(got); back != uint16(v) {
			t.Fatalf("toHalf(%v): %#04x, want %#04x", got, back, v)
		}
		if v < 31<<10-1 { // between two of them: the even one
			between := float32((want + exactHalf(uint16(v+1))) / 2)
			if back := toHalf(between); back != uint16(v+v&1) {
				t.Fatalf("toHalf(%v): %#04x, want %#04x", between, back, v+v&1)
			}
		}
	}
}

// TestEncodeQ8: a value is off by at most half a scale, and 11 bits of the scale.
func TestEncodeQ8(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		src := make([]float32, 64)
		for i := range src[:32+r.IntN(33)] {
			src[i] = float32(r.NormFloat64())
		}
		data, err := EncodeQ8(src)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(src))
		if err := Decode(Q8_0, got, data); err != nil {
			t.Fatal(err)
		}
		for i, v := range src {
			var largest float64
			for _, of := range src[i/32*32:][:32] {
				largest = max(largest, math.Abs(float64(of)))
			}
			if off := math.Abs(float64(got[i] - v)); off > largest/127*0.5+largest*0x1p-11 {
				t.Fatalf("element %d: %v, want %v", i, got[i], v)
			}
		}
	}
	for _, bad := range [][]float32{
		make([]float32, 31), append(make([]float32, 31), float32(math.NaN())),
		append(make([]float32, 31), float32(math.Inf(1))),
	} {
		if _, err := EncodeQ8(bad); !errors.Is(err, ErrType) {
			t.Errorf("EncodeQ8 of %v: %v, want an ErrType", bad, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for kind, n := range map[string]int{"Q5_K": 0, Q8_0: 33, Q4K: 144} {
		if err := Decode(kind, make([]float32, 32), make([]byte, n)); !errors.Is(err, ErrType) {
			t.Errorf("Decode of %s: %v, want an ErrType", kind, err)
		}
	}
}
