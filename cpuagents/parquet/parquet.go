// Package parquet reads and writes the flat columns of Parquet files: numbers, texts and times. The
// bytes of a file are not trusted. Each length in it is bounded before memory is allocated for it,
// and the memory of pages is taken from a budget.
//
// It reads pages of both versions in plain encoding, with dictionaries, differences or split bytes,
// packed with snappy, gzip, zstd, LZ4_RAW, brotli or not at all. It writes required columns, packed
// with zstd. Columns that are lists, or lie in structures that may be null, are listed and not
// read.
//
// The package has no dependency but codecs. The Arrow project's own library registers all of its
// compute kernels in each program that reads Parquet, which are 17 MB; tests compare this package
// with that library.
package parquet

import "errors"

// Memory is a budget from which a reader takes the memory of pages. A nil *inputmem.Hold is one
// without a limit.
type Memory interface {
	Grow(n int64) error
	Shrink(n int64)
}

// Limits of a file that is read, in bytes. Writers make pages of 1 MiB by default.
const (
	// MaxFooter bounds the footer, MaxPage one page, packed and unpacked, and maxHeader the header
	// of a page.
	MaxFooter = 16 << 20
	MaxPage   = 32 << 20
	maxHeader = 256 << 10
	// Window is the read-ahead of a column, which the caller takes from its budget.
	Window = 64 << 10
)

// Errors of a file that is whole and cannot be read.
var (
	// ErrEncrypted is a file or a column that is encrypted.
	ErrEncrypted = errors.New("it is encrypted: decrypt it first")
	// ErrEncoding is a page in an encoding that is not read.
	ErrEncoding = errors.New("write the file with plain or dictionary encoding")
)

// Encodings of pages. The numbers are from the format.
const (
	encPlain           = 0
	encPlainDictionary = 2
	encRLE             = 3
	encBitPacked       = 4
	encDelta           = 5
	encDeltaLength     = 6
	encDeltaTexts      = 7
	encRLEDictionary   = 8
	encSplit           = 9
)

// encodingNames are the names of encodings in the documents of the format.
var encodingNames = []string{
	"PLAIN", "GROUP_VAR_INT", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED",
	"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT",
}
