package kernels

import "github.com/exoswarm/exoswarm/cuda/device"

// A record is the partial tally of a shard: the result of a tally kernel, as it stores it, and a
// word behind the counts that says the id of the shard's first agent, which the leader of the
// result is counted from. The result of tally_merge is a record too, so merges can be merged.
const (
	// ResultOverflow is a flag of a merge: the sums do not fit 64 bits. Nothing is decided or
	// closed.
	ResultOverflow = 8
	// ResultTorn is a flag of a merge: some record's total is not the sum of its parts. Nothing is
	// decided or closed.
	ResultTorn = 16
)

// RecordFirst is the word of a record that holds the id of the shard's first agent; of a merge's
// result the leader's id.
func RecordFirst(candidates int) int { return ResultCounts + candidates }

// RecordWords is the length of a record, even, so that records one behind the other begin at
// multiples of 16 bytes.
func RecordWords(candidates int) int { return (ResultCounts + candidates + 2) / 2 * 2 }

// TallyMergeParams is the signature of tally_merge. A record counts when its round is the launch's
// and it is marked as elected: that shard has closed the round. The round is closed when the
// records that count are at least need and their sums fit. In the result, the high half of the word
// of the priority is the number of records that counted.
var TallyMergeParams = []device.Param{
	{Name: "records", Kind: device.KindBuffer},    // uint64[shards][stride]
	{Name: "stride", Kind: device.KindUint32},     // words from one record to the next, RecordWords or more
	{Name: "shards", Kind: device.KindUint32},     // records
	{Name: "candidates", Kind: device.KindUint32}, // 1..256
	{Name: "need", Kind: device.KindUint32},
	{Name: "rule", Kind: device.KindUint32},
	{Name: "of_all", Kind: device.KindUint32},
	{Name: "num", Kind: device.KindUint32},
	{Name: "den", Kind: device.KindUint32},
	{Name: "seen", Kind: device.KindUint64},
	{Name: "round", Kind: device.KindUint64},
	{Name: "sequence", Kind: device.KindUint32},
	{Name: "scratch", Kind: device.KindBuffer}, // in and out uint64[WeightedScratch], zero
	{Name: "word", Kind: device.KindBuffer},    // in and out uint64[1]
	{Name: "result", Kind: device.KindBuffer},  // out uint64[RecordFirst+1]
}

func init() {
	register(Source{
		Name: "tally_merge", Params: TallyMergeParams, File: "tally_merge.cu",
		Text: func() string { return code("tally_merge.cu") },
	})
}
