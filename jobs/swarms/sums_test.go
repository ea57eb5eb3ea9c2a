package swarms

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSums: the sums of shards of random agents add up to the sums of all agents, and a swarm takes
// them. The twin adds up the agents.
func TestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 41))
	for range 300 {
		merge := []string{"mean", "ema", "attention", MergeMax}[r.IntN(4)]
		nodes, units, shards, agents := 1+r.IntN(5), 1+r.IntN(4), 1+r.IntN(4), r.IntN(60)
		want, of := make([]uint64, nodes*(units+1)), make([][]uint64, shards)
		for k := range of {
			of[k] = make([]uint64, len(want))
		}
		heaviest := uint64(1)
		for range agents {
			node, shard, weight := r.IntN(nodes), r.IntN(shards), uint64(1)
			if merge == "attention" {
				heaviest = 1 << 16
				weight += r.Uint64N(heaviest)
			}
			for _, sums := range [][]uint64{want, of[shard]} {
				sums[node*(units+1)+units] += weight
			}
			for u := range units {
				unit := r.IntN(2<<14+1) - 1<<14
				for _, sums := range [][]uint64{want, of[shard]} {
					if at := &sums[node*(units+1)+u]; merge == MergeMax {
						*at = max(*at, uint64(unit+1<<14))
					} else {
						*at += weight * uint64(unit)
					}
				}
			}
		}
		got := make([]uint64, len(want))
		for _, sums := range of {
			AddSums(got, Words(PutWords(sums)), units, merge)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %d, want %d", merge, got, want)
		}
		if err := CheckSums(got, nodes, units, uint64(agents), heaviest, merge); err != nil {
			t.Fatalf("%s: CheckSums: %v", merge, err)
		}
		got[r.IntN(nodes)*(units+1)+units] += uint64(agents)*heaviest + 1
		if err := CheckSums(got, nodes, units, uint64(agents), heaviest, merge); err == nil {
			t.Fatalf("%s: CheckSums takes a count of more agents than there are", merge)
		}
	}
}

// TestNodeSumsRefused: sums whose size does not match their nodes are refused.
func TestNodeSumsRefused(t *testing.T) {
	for _, data := range []string{
		`{"v":1,"nodes":0,"units":1,"words":""}`, `{"v":1,"nodes":1,"units":0,"words":"AAAAAAAAAAA="}`,
		`{"v":1,"nodes":1,"units":1,"words":"AAAAAAAAAAA="}`,
		`{"v":1,"nodes":4611686018427387904,"units":1,"words":""}`, `{"v":1,"nodes":1}`,
	} {
		if _, err := DecodeNodeSums([]byte(data)); err == nil || !strings.Contains(err.Error(), "use 8 for each unit") {
			t.Errorf("%s: error %v, want a refusal", data, err)
		}
	}
}
