package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is how the pages of a column are packed. The numbers are from the format.
type Codec int

// Codecs that are read. Files are written with Zstd.
const (
	Plain  Codec = 0
	Snappy Codec = 1
	Gzip   Codec = 2
	Brotli Codec = 4
	Zstd   Codec = 6
	LZ4Raw Codec = 7
)

// String returns the name of the codec in the documents of the format.
func (c Codec) String() string {
	names := []string{"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("codec %d", int(c))
	}
	return names[c]
}

// Readable reports whether pages of the codec are read.
func (c Codec) Readable() bool {
	switch c {
	case Plain, Snappy, Gzip, Brotli, Zstd, LZ4Raw:
		return true
	}
	return false
}

// working returns the memory that a decoder of the codec takes in addition to the page, in bytes:
// the window of brotli and its tables.
func (c Codec) working() int64 {
	if c == Brotli {
		return 17 << 20
	}
	return 0
}

// unpack unpacks src into dst, whose length is the size that the header of the page states. It
// allocates nothing of the size of the page. Another size is an error.
func (c Codec) unpack(dst, src []byte) error {
	var n int
	switch c {
	case Plain:
		copy(dst, src)
		n = len(src)
	case Snappy:
		size, err := snappy.DecodedLen(src)
		if err != nil {
			return err
		}
		if n = size; n == len(dst) {
			_, err = snappy.Decode(dst, src)
		}
		if err != nil {
			return err
		}
	case Zstd:
		d, err := pageDecoder()
		if err != nil {
			return err
		}
		// The capacity ends with the page, and the decoder respects it.
		out, err := d.DecodeAll(src, dst[:0:len(dst)])
		if err != nil {
			return err
		}
		n = len(out)
	case Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return err
		}
		return errors.Join(unpackStream(dst, r), r.Close())
	case Brotli:
		return unpackStream(dst, brotli.NewReader(bytes.NewReader(src)))
	case LZ4Raw:
		var err error
		if n, err = lz4.UncompressBlock(src, dst); err != nil {
			return err
		}
	default:
		return fmt.Errorf("it is packed with %s", c)
	}
	if n != len(dst) {
		return fmt.Errorf("a page unpacks to %d bytes, and its header says %d", n, len(dst))
	}
	return nil
}

// unpackStream reads dst from a decoder, which must end with it.
func unpackStream(dst []byte, r io.Reader) error {
	n, err := io.ReadFull(r, dst)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("a page unpacks to %d bytes, and its header says %d", n, len(dst))
	}
	if err != nil {
		return err
	}
	var more [1]byte
	switch n, err := r.Read(more[:]); {
	case n > 0:
		return fmt.Errorf("a page unpacks to more than %d bytes, which its header says", len(dst))
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// maxWindow bounds the window of a page of zstd in bytes. It is the limit of zstd itself without
// options.
const maxWindow = 128 << 20

// pageDecoder decodes zstd pages of all files. It is made with the first page. DecodeAll may be
// called from several goroutines at a time.
var pageDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(
		nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(maxWindow),
	)
})

// pageEncoder packs zstd pages of all files. EncodeAll may be called from several goroutines.
var pageEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithLowerEncoderMem(true))
})
