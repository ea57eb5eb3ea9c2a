package feed

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestKeyTable compares a table with a map over random keys, with and without Warm.
func TestKeyTable(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		table, twin := newKeyTable(), map[string]int{}
		for range 3000 {
			some := make([]string, r.IntN(5))
			for i := range some {
				some[i] = fmt.Sprint("k", r.IntN(1+int(seed)*100))
				if r.IntN(50) == 0 {
					some[i] = ""
				}
			}
			if r.IntN(2) == 0 {
				table.Warm(some)
			}
			for _, key := range some {
				n, ok := table.Find(key)
				want, has := twin[key]
				if ok != has || ok && n != want {
					t.Fatalf("seed %d: Find(%q) is %d, %v, want %d, %v", seed, key, n, ok, want, has)
				}
				if ok {
					continue
				}
				if n = table.Add(key); n != len(twin) || table.Keys()[n] != key || table.Len() != n+1 {
					t.Fatalf("seed %d: Add(%q) is %d of %d", seed, key, n, len(twin))
				}
				twin[key] = n
			}
		}
	}
}

// BenchmarkFind has the time of a lookup among a million keys in random order, in blocks of 512,
// with a map, with the table, and with Warm before each block.
func BenchmarkFind(b *testing.B) {
	const n, block = 1_000_000, 512
	table, twin := newKeyTable(), map[string]int{}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("device-", i)
		twin[keys[i]] = table.Add(keys[i])
	}
	r := rand.New(rand.NewPCG(1, 1))
	asked := make([]string, 1<<20)
	for i := range asked {
		asked[i] = fmt.Sprint("device-", r.IntN(n))
	}
	each := func(b *testing.B, find func(keys []string)) {
		at := 0
		for b.Loop() {
			find(asked[at : at+block])
			at = (at + block) % len(asked)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/block, "ns/key")
	}
	sum := 0
	b.Run("map", func(b *testing.B) {
		each(b, func(keys []string) {
			for _, key := range keys {
				sum += twin[key]
			}
		})
	})
	for _, warm := range []bool{false, true} {
		b.Run(fmt.Sprint("warm=", warm), func(b *testing.B) {
			each(b, func(keys []string) {
				if warm {
					table.Warm(keys)
				}
				for _, key := range keys {
					i, _ := table.Find(key)
					sum += i
				}
			})
		})
	}
	_ = sum
}
