package feed

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSplit: the parts of a batch have each row once, in the shard of its group, and decisions of
// the parts get the numbers of the rows again. Decisions of other shards are refused.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "groups")
		g := Groups{
			Record: swarms.Swarm{ID: "d", Groups: n, Shards: rapid.IntRange(1, min(n, 5)).Draw(t, "shards")},
			Keyed:  rapid.Bool().Draw(t, "keyed"),
		}
		const agents = 3
		b := NewBatch(1, batch.MaxRows)
		numbers := rapid.SliceOfN(rapid.IntRange(0, n-1), 1, 60).Draw(t, "rows")
		for i, of := range numbers {
			row := rows.Row{Number: uint64(i), Features: []float32{1}, Values: []float64{1}}
			if b.Add(of, &row, time.Unix(1, 0)) {
				t.Fatalf("the batch is full with %d rows", b.Len())
			}
		}
		parts, err := g.Split(&b.Observations)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, len(numbers))
		for _, p := range parts {
			o, err := batch.DecodeObservations(p.Data)
			if err != nil {
				t.Fatal(err)
			}
			d := &batch.Decisions{Group: append([]uint32{}, o.Group...), Leader: make([]uint64, o.Len())}
			for i, group := range d.Group {
				d.Leader[i] = uint64(group)*agents + 2
				if g.Record.ShardOf(int(group)) != p.Shard {
					t.Fatalf("shard %d has a row of group %d", p.Shard, group)
				}
			}
			if other := g.Record.ShardCount() - 1 - p.Shard; other != p.Shard {
				if err := g.Renumber(other, agents, d); err == nil {
					t.Fatalf("shard %d may decide for the groups of shard %d", other, p.Shard)
				}
			}
			if err := g.Renumber(p.Shard, agents, d); err != nil {
				t.Fatal(err)
			}
			for i, row := range o.Row {
				if of := numbers[row]; seen[row] || d.Group[i] != uint32(of) || d.Leader[i] != uint64(of)*agents+2 {
					t.Fatalf("row %d of number %d has number %d and leader %d", row, of, d.Group[i], d.Leader[i])
				}
				seen[row] = true
			}
		}
		for row, is := range seen {
			if !is {
				t.Fatalf("no part has row %d", row)
			}
		}
	})
}

// TestBatchBounds: a full batch fits into a message, whatever its rows are like.
func TestBatchBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		features := rapid.IntRange(1, 300).Draw(t, "features")
		stamp := rapid.StringN(0, 64, 64).Draw(t, "timestamp")
		most := rapid.IntRange(1, batch.MaxRows).Draw(t, "most")
		b := NewBatch(features, most)
		row := rows.Row{Timestamp: stamp, Features: make([]float32, features), Values: make([]float64, features)}
		for full := false; !full; row.Number++ {
			for i := range row.Features {
				v := float64(row.Number)*0.37 + float64(i)*1.01e-3
				row.Features[i], row.Values[i] = float32(v), v
			}
			full = b.Add(int(row.Number%7), &row, time.Unix(0, int64(row.Number)*1e6))
		}
		data, err := b.Pack()
		if err != nil || len(data) > jobs.MaxMessage-64<<10 || b.Len() > most {
			t.Fatalf("a batch of %d rows of %d features has %d bytes: %v", b.Len(), features, len(data), err)
		}
		if b.Reset(); b.Len() != 0 || b.Add(0, &row, time.Unix(0, 0)) != (most == 1) {
			t.Fatal("a batch that was emptied is not empty")
		}
	})
}
