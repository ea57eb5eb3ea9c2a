package cpuagents

import (
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The Parquet library's own codecs for snappy and zstd unpack a page to what its contents say, whatever its header says. These
// stop at maxParquetPage. The registry is the process's: in it, every Parquet file is read under this bound.
func init() {
	for kind, decode := range map[compress.Compression]func(src []byte) ([]byte, error){
		compress.Codecs.Snappy: decodeSnappy, compress.Codecs.Zstd: decodeZstd,
	} {
		if c, err := compress.GetCodec(kind); err == nil {
			compress.RegisterCodec(kind, boundedCodec{c, decode})
		}
	}
}

// boundedCodec packs as the library does and unpacks no more than a page may have.
type boundedCodec struct {
	compress.Codec
	decode func(src []byte) ([]byte, error)
}

// DecodeWithError implements compress.ErrorCodec. The result is copied into dst where it fits.
func (c boundedCodec) DecodeWithError(dst, src []byte) ([]byte, error) {
	out, err := c.decode(src)
	if err != nil {
		return nil, err
	}
	if len(out) > len(dst) {
		return nil, fmt.Errorf("a page unpacks to %d bytes, its header says %d", len(out), len(dst))
	}
	return dst[:copy(dst, out)], nil
}

// Decode implements compress.Codec; the library prefers DecodeWithError.
func (c boundedCodec) Decode(dst, src []byte) []byte {
	out, err := c.DecodeWithError(dst, src)
	if err != nil {
		panic(err)
	}
	return out
}

func decodeSnappy(src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if n > maxParquetPage {
		return nil, fmt.Errorf("a page unpacks to %d bytes; %d are allowed", n, maxParquetPage)
	}
	return snappy.Decode(nil, src)
}

var pageZstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxParquetPage))
})

func decodeZstd(src []byte) ([]byte, error) {
	z, err := pageZstd()
	if err != nil {
		return nil, err
	}
	return z.DecodeAll(src, nil)
}
