package commitlog

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
)

// BenchmarkCommit is batches of a detector over a server that syncs each message to the disk of the
// folder of temporary files.
func BenchmarkCommit(b *testing.B) {
	for _, shards := range []int{1, 3} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			record, log := openLogs(b, shards)
			s, err := Open(b.Context(), Options{Record: record, Log: log, Logs: ClusterLogs})
			if err != nil {
				b.Fatal(err)
			}
			data := bytes.Repeat([]byte{7}, 16<<10)
			parts := make([]feed.Part, shards)
			for k := range parts {
				parts[k] = feed.Part{Shard: k, Data: data}
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
