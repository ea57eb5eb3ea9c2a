package batch

// Bounds of a batch of observations, so that it and its answer stay below 1 MiB each, which a NATS
// server accepts by default. An answer has up to 64 bytes a row more than its batch, and 4 bytes a
// row and candidate.
const (
	MaxRows  = 4096
	MaxBytes = 480 << 10
)

// RowBytes returns the bytes of a row in MaxBytes, with a timestamp of some bytes. The columns of a
// fixed size of both the batch and its answer are below 128 bytes a row.
func RowBytes(features, timestamp int) int { return timestamp + 12*features + 56 }
