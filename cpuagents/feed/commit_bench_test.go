package feed

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkCommit is batches of a detector over a server that syncs each message to the disk of the
// folder of temporary files.
func BenchmarkCommit(b *testing.B) {
	for _, shards := range []int{1, 3} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			record, log := openLogs(b, shards)
			s, err := OpenState(b.Context(), StateOptions{Record: record, Log: log, Logs: ClusterLogs})
			if err != nil {
				b.Fatal(err)
			}
			data := bytes.Repeat([]byte{7}, 16<<10)
			parts := make([]Part, shards)
			for k := range parts {
				parts[k] = Part{Shard: k, Data: data}
			}
			rows := uint64(0)
			for b.Loop() {
				rows++
				if err := s.Commit(b.Context(), parts, at(rows)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
		})
	}
}
