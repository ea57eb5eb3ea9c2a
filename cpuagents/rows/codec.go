package rows

import (
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The Parquet library's own decoders of zstd and snappy allocate the size that the packed page
// states, which may differ from the size in the page's header. The decoders here write into the
// page's buffer and fail if it is too small. The registry is the process's, so they decode every
// Parquet file of the process.
func init() {
	for codec, decode := range map[compress.Compression]func(dst, src []byte) ([]byte, error){
		compress.Codecs.Zstd: decodeZstdPage, compress.Codecs.Snappy: decodeSnappyPage,
	} {
		// A library without the codec keeps its own error for such files.
		if own, err := compress.GetCodec(codec); err == nil {
			compress.RegisterCodec(codec, pageCodec{own, decode})
		}
	}
}

// pageCodec packs as the library does, and unpacks into the buffer that the caller gives.
type pageCodec struct {
	compress.Codec
	decode func(dst, src []byte) ([]byte, error)
}

// DecodeWithError implements compress.ErrorCodec.
func (c pageCodec) DecodeWithError(dst, src []byte) ([]byte, error) {
	// The capacity ends with the page, so a decoder that appends cannot grow the buffer unseen.
	return c.decode(dst[:len(dst):len(dst)], src)
}

// Decode implements compress.Codec. The library prefers DecodeWithError.
func (c pageCodec) Decode(dst, src []byte) []byte {
	out, err := c.DecodeWithError(dst, src)
	if err != nil {
		panic(err)
	}
	return out
}

// pageDecoder decodes zstd pages of all sources. It is made with the first page. DecodeAll may be
// called from several goroutines at a time.
var pageDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(
		nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(zstdWindow),
	)
})

// decodeZstdPage unpacks src into dst, whose length is the size that the page's header states. More
// contents are an error, because the decoder respects the capacity of dst.
func decodeZstdPage(dst, src []byte) ([]byte, error) {
	d, err := pageDecoder()
	if err != nil {
		return nil, err
	}
	return d.DecodeAll(src, dst[:0])
}

// decodeSnappyPage is decodeZstdPage for snappy. Its decoder would allocate a larger buffer by
// itself, so the size in src is compared first.
func decodeSnappyPage(dst, src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if n > len(dst) {
		return nil, fmt.Errorf("a page unpacks to %d bytes, and its header says %d", n, len(dst))
	}
	return snappy.Decode(dst, src)
}
