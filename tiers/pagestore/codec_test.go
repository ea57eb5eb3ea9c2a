package pagestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// quantised is a page of floats that a shuffle and a compressor shrink: multiples of 1/32.
func quantised(n int, rng *rand.Rand) []byte {
	b := make([]byte, n)
	for i := 0; i+4 <= n; i += 4 {
		v := float32(math.Round(rng.NormFloat64()*32) / 32)
		binary.LittleEndian.PutUint32(b[i:], math.Float32bits(v))
	}
	return b
}

var specs = []Codec{{}, {ID: LZ4}, {ID: Zstd, Level: 3}, {ID: Zstd, Level: 9}}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20000).Draw(t, "size")
		spec := rapid.SampledFrom(specs).Draw(t, "spec")
		elem := rapid.IntRange(0, MaxElem+1).Draw(t, "elem")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		c, err := newCoder(size, spec)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		page := quantised(size, rng)
		buf := make([]byte, rapid.IntRange(0, size).Draw(t, "room"))
		n, id, shuffle, err := c.Encode(buf, page, elem)
		if err != nil {
			t.Fatal(err)
		}
		if n > len(buf) {
			t.Fatalf("encoded %d bytes into %d", n, len(buf))
		}
		if n == 0 {
			if id != Raw || shuffle != 1 {
				t.Fatalf("gave up as %v shuffled by %d, want raw by 1", id, shuffle)
			}
			return
		}
		got := make([]byte, size)
		if err := c.Decode(got, buf[:n], id, shuffle); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, page) {
			t.Fatal("decoded page differs")
		}
	})
}

func TestShuffleIsATransposition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOf(rapid.Byte()).Draw(t, "src")
		elem := rapid.IntRange(2, MaxElem).Draw(t, "elem")
		got, back := make([]byte, len(src)), make([]byte, len(src))
		shuffleBytes(got, src, elem)
		n := len(src) / elem
		for i := range n {
			for b := range elem {
				if got[b*n+i] != src[i*elem+b] {
					t.Fatalf("byte %d of element %d is in the wrong place", b, i)
				}
			}
		}
		unshuffleBytes(back, got, elem)
		if !bytes.Equal(back, src) {
			t.Fatal("unshuffle does not undo shuffle")
		}
	})
}

func TestDecodeRefusesDamage(t *testing.T) {
	const size = 1 << 14
	rng := rand.New(rand.NewPCG(1, 1))
	page := quantised(size, rng)
	for _, spec := range specs {
		c, err := newCoder(size, spec)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, size)
		n, id, shuffle, err := c.Encode(buf, page, 4)
		if err != nil {
			t.Fatal(err)
		}
		stored := buf[:n]
		if id == Raw {
			stored = page
		}
		got := make([]byte, size)
		if err := c.Decode(got, stored[:len(stored)-1], id, shuffle); !errors.Is(err, errDecode) {
			t.Errorf("%v: cut short: %v, want errDecode", spec, err)
		}
		if err := c.Decode(got, stored, 77, shuffle); !errors.Is(err, errCodec) {
			t.Errorf("%v: format 77: %v, want errCodec", spec, err)
		}
		if err := c.Decode(got, stored, id, 200); !errors.Is(err, errCodec) {
			t.Errorf("%v: shuffle 200: %v, want errCodec", spec, err)
		}
		for range 2000 { // Damage may decode to something, which the page's CRC is there for; it must not panic.
			bad := append([]byte{}, stored...)
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			_ = c.Decode(got, bad, id, shuffle)
		}
		c.Close()
	}
}

func TestShufflePays(t *testing.T) {
	const size = 1 << 18
	page := make([]byte, size)
	rng := rand.New(rand.NewPCG(2, 2))
	for i := 0; i < size; i += 4 {
		binary.LittleEndian.PutUint32(page[i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	c, err := newCoder(size, Codec{ID: Zstd, Level: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, size-size/20)
	if n, _, _, err := c.Encode(buf, page, 1); err != nil || n != 0 {
		t.Errorf("Gaussian floats without shuffle: %d bytes, %v; want none under 95 %%", n, err)
	}
	if n, _, shuffle, err := c.Encode(buf, page, 4); err != nil || n == 0 || shuffle != 4 {
		t.Errorf("Gaussian floats shuffled by 4: %d bytes, shuffle %d, %v; want under 95 %%", n, shuffle, err)
	}
}

func TestChooserGivesUpAndRetries(t *testing.T) {
	var c chooser
	tries := 0
	for range 64 * 10 {
		if c.Try(7) {
			tries++
			c.Learn(7, false)
		}
	}
	if tries < 5 || tries > 20 {
		t.Errorf("%d tries of 640 hopeless pages, want a few and a retry now and then", tries)
	}
	if !c.Try(8) {
		t.Error("one class's failures spoil another class")
	}
	for !c.Try(7) { //nolint:revive // The loop waits for the retry.
	}
	c.Learn(7, true)
	for range 10 {
		if !c.Try(7) {
			t.Fatal("a class that pays again is still left raw")
		}
	}
}

func TestParseSpec(t *testing.T) {
	for _, s := range []string{"raw", "lz4", "zstd:3", "zstd:9"} {
		spec, err := ParseCodec(s)
		if err != nil || spec.String() != s {
			t.Errorf("ParseCodec(%q) = %v, %v", s, spec, err)
		}
	}
	for _, s := range []string{"gzip", "zstd:", "zstd:0x3", "zstd:23", "zstd:-1", "zstd:3 "} {
		if spec, err := ParseCodec(s); err == nil {
			t.Errorf("ParseCodec(%q) = %v, want an error", s, spec)
		}
	}
}

// benchCodecs runs a benchmark with a page for each codec but raw.
func benchCodecs(b *testing.B, run func(b *testing.B, c *coder, buf, page []byte)) {
	const size = 2 << 20
	page := quantised(size, rand.New(rand.NewPCG(3, 3)))
	for _, spec := range specs[1:] {
		b.Run(spec.String(), func(b *testing.B) {
			c, err := newCoder(size, spec)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.SetBytes(size)
			b.ReportAllocs()
			run(b, c, make([]byte, size), page)
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	benchCodecs(b, func(b *testing.B, c *coder, buf, page []byte) {
		for b.Loop() {
			if _, _, _, err := c.Encode(buf, page, 4); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	benchCodecs(b, func(b *testing.B, c *coder, buf, page []byte) {
		n, id, shuffle, err := c.Encode(buf, page, 4)
		if err != nil || n == 0 {
			b.Fatal(n, err)
		}
		for b.Loop() {
			if err := c.Decode(page, buf[:n], id, shuffle); err != nil {
				b.Fatal(err)
			}
		}
	})
}
