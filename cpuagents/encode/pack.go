package encode

import (
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// NewPacker returns a writer that packs into w: with gzip for gz, with zstd for zst, and not at all
// for an empty pack. Its Close ends the packing and leaves w open. The same bytes in give the same
// bytes out. No other goroutine is used, so the order of the writes to w is fixed.
func NewPacker(w io.Writer, pack string) (io.WriteCloser, error) {
	switch pack {
	case "gz":
		return gzip.NewWriter(w), nil
	case "zst":
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return plainWriter{w}, nil
}

// plainWriter packs nothing.
type plainWriter struct{ io.Writer }

// Close implements io.Closer.
func (plainWriter) Close() error { return nil }
