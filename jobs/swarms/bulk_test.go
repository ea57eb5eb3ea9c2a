package swarms

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// aBulk returns a valid description of n bytes.
func aBulk(n int) Bulk {
	return Bulk{
		Version: jobs.Version, Place: "127.0.0.1:4280", ID: strings.Repeat("0f", BulkID/2),
		Token: bytes.Repeat([]byte{7}, BulkToken), Bytes: n, Memory: n, Sums: BulkSums(make([]byte, n)),
	}
}

func TestDecodeBulk(t *testing.T) {
	for _, n := range []int{1, BulkChunk - 1, BulkChunk, BulkChunk + 1, MaxBulk} {
		b := aBulk(n)
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeBulk(data)
		if err != nil || got.Bytes != n || !bytes.Equal(got.Sums, b.Sums) || !bytes.Equal(got.Token, b.Token) {
			t.Errorf("%d bytes: %+v, %v", n, got, err)
		}
		if got.Chunks() != (n+BulkChunk-1)/BulkChunk {
			t.Errorf("%d bytes: %d chunks", n, got.Chunks())
		}
	}
	for name, change := range map[string]func(*Bulk){
		"id":          func(b *Bulk) { b.ID = b.ID[2:] },
		"id of g":     func(b *Bulk) { b.ID = strings.Repeat("g", BulkID) },
		"place":       func(b *Bulk) { b.Place = "host" },
		"port 0":      func(b *Bulk) { b.Place = "host:0" },
		"port name":   func(b *Bulk) { b.Place = "host:http" },
		"no host":     func(b *Bulk) { b.Place = ":80" },
		"long place":  func(b *Bulk) { b.Place = strings.Repeat("a", 300) + ":80" },
		"token":       func(b *Bulk) { b.Token = b.Token[1:] },
		"bytes 0":     func(b *Bulk) { b.Bytes = 0 },
		"bytes":       func(b *Bulk) { b.Bytes, b.Memory = MaxBulk+1, MaxBulk+1 },
		"negative":    func(b *Bulk) { b.Bytes = -1 },
		"memory":      func(b *Bulk) { b.Memory = b.Bytes - 1 },
		"much memory": func(b *Bulk) { b.Memory = MaxBulk + 1 },
		"sums":        func(b *Bulk) { b.Sums = b.Sums[1:] },
		"version":     func(b *Bulk) { b.Version++ },
	} {
		b := aBulk(3 * BulkChunk)
		change(&b)
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var refused *jobs.Error
		if _, err := DecodeBulk(data); !errors.As(err, &refused) {
			t.Errorf("%s: error %v, want a refusal", name, err)
		} else if strings.Contains(err.Error(), string(b.Token)) {
			t.Errorf("%s: the error has the token: %v", name, err)
		}
	}
}

// TestBulkSums compares the sums with those of the chunks one by one.
func TestBulkSums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		data := make([]byte, 1+r.IntN(4*BulkChunk))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		b := Bulk{Bytes: len(data), Sums: BulkSums(data)}
		if len(b.Sums) != 4*b.Chunks() {
			t.Fatalf("%d bytes: %d bytes of sums", len(data), len(b.Sums))
		}
		for i := range b.Chunks() {
			// The plain form of CRC32C, bit by bit,.
			chunk := data[i*BulkChunk : min((i+1)*BulkChunk, len(data))]
			if got := b.Sum(i); got != plainSum(chunk) {
				t.Fatalf("chunk %d of %d bytes: sum %#x, want %#x", i, len(data), got, plainSum(chunk))
			}
		}
		if testing.Short() {
			return
		}
	}
}

// plainSum is CRC32C, bit by bit.
func plainSum(data []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range data {
		sum ^= uint32(c)
		for range 8 {
			sum = sum>>1 ^ 0x82f63b78&-(sum&1)
		}
	}
	return ^sum
}

// FuzzDecodeBulk sends any bytes: what is accepted is within its limits and can be written again.
func FuzzDecodeBulk(f *testing.F) {
	data, err := json.Marshal(aBulk(BulkChunk + 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodeBulk(data)
		if err != nil {
			if !errors.As(err, new(*jobs.Error)) {
				t.Fatalf("error %v is no refusal", err)
			}
			return
		}
		for i := range b.Chunks() {
			b.Sum(i)
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeBulk(again); err != nil {
			t.Fatalf("%s is accepted, and %s is not: %v", data, again, err)
		}
	})
}
