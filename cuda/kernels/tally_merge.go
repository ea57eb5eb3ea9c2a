package kernels

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

// TallyMergeArgs are the arguments of tally_merge. A record counts when its round is the launch's
// and it is marked as elected: that shard has closed the round. The round is closed when the
// records that count are at least need and their sums fit. In the result, the high half of the word
// of the priority is the number of records that counted.
//
//   - records: uint64[shards][stride]
//   - stride: words from one record to the next, RecordWords or more
//   - shards: records
//   - candidates: 1..256
//   - scratch: in and out uint64[WeightedScratch], zero
//   - word: in and out uint64[1]
//   - result: out uint64[RecordFirst+1]

func init() { register(Source{Name: "tally_merge", File: "tally_merge.cu"}) }
