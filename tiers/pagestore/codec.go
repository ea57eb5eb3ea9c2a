package pagestore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// A page is stored raw, as LZ4 or as Zstandard, with an optional byte shuffle by element size in
// front. Dense float state does not shrink under a plain compressor; once its bytes are transposed,
// so that all sign and exponent bytes lie together, Zstandard takes 15 % off Gaussian values and
// two thirds off quantised ones.

// CodecID names a format of stored bytes. The values are part of the on-disk format.
type CodecID uint8

// The formats.
const (
	Raw  CodecID = 0
	LZ4  CodecID = 1 // one LZ4 block
	Zstd CodecID = 2 // one Zstandard frame, of any level
)

// String returns the name that options and statistics use.
func (id CodecID) String() string {
	switch id {
	case Raw:
		return "raw"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", uint8(id))
}

// MaxElem is the largest element size in bytes that the shuffle knows.
const MaxElem = 16

// Errors of decoding. Both mean that the stored bytes are not what Encode made.
var (
	// errCodec: the format is none of this version.
	errCodec = errors.New("unknown codec")
	// errDecode: the bytes do not decode to a page of the expected length.
	errDecode = errors.New("stored page does not decode")
)

// Codec is how the pages of one tier are encoded. The zero Codec is raw.
type Codec struct {
	// ID is the format to try.
	ID CodecID
	// Level is the Zstandard level, 1 to 22, mapped to the nearest of the library's four; 0 means
	// 3.
	Level int
}

// String returns the form that ParseCodec reads.
func (s Codec) String() string {
	if s.ID == Zstd {
		return fmt.Sprintf("zstd:%d", s.level())
	}
	return s.ID.String()
}

// ParseCodec reads "raw", "lz4", "zstd" or "zstd:LEVEL".
func ParseCodec(s string) (Codec, error) {
	switch s {
	case "raw", "":
		return Codec{}, nil
	case "lz4":
		return Codec{ID: LZ4}, nil
	case "zstd":
		return Codec{ID: Zstd, Level: 3}, nil
	}
	var level int
	if _, err := fmt.Sscanf(s, "zstd:%d", &level); err != nil || fmt.Sprintf("zstd:%d", level) != s {
		return Codec{}, fmt.Errorf("codec %q: want raw, lz4, zstd or zstd:LEVEL: %w", s, errCodec)
	}
	spec := Codec{ID: Zstd, Level: level}
	return spec, spec.Validate()
}

// Validate returns an error that names what this version cannot encode.
func (s Codec) Validate() error {
	switch {
	case s.ID > Zstd:
		return fmt.Errorf("%v: %w", s.ID, errCodec)
	case s.ID == Zstd && (s.level() < 1 || s.level() > 22):
		return fmt.Errorf("zstd level %d is not in 1..22", s.Level)
	}
	return nil
}

func (s Codec) level() int {
	if s.Level == 0 {
		return 3
	}
	return s.Level
}

// coder encodes and decodes pages of one size. It keeps its scratch memory, so a warm coder
// allocates nothing; one goroutine uses it at a time.
type coder struct {
	pageSize int
	spec     Codec
	shuffled []byte
	lz4      lz4.Compressor
	enc      *zstd.Encoder
	dec      *zstd.Decoder
}

func newCoder(pageSize int, spec Codec) (*coder, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return &coder{pageSize: pageSize, spec: spec}, nil
}

// Encode writes src, a page, into dst and returns how many bytes it took, in which format, and the
// element size that was shuffled by (1 for none). It gives up and reports Raw with n = 0 and
// nothing of use in dst when the result would not fit in dst: the caller sizes dst to what pays.
// elem is the page's element size in bytes; 1 or less shuffles nothing.
func (c *coder) Encode(dst, src []byte, elem int) (n int, id CodecID, shuffle int, err error) {
	if len(src) != c.pageSize {
		return 0, Raw, 1, fmt.Errorf("encode: page of %d bytes, want %d", len(src), c.pageSize)
	}
	if c.spec.ID == Raw || len(dst) == 0 {
		return 0, Raw, 1, nil
	}
	shuffle = 1
	if elem > 1 && elem <= MaxElem {
		shuffle = elem
		c.shuffled = sized(c.shuffled, len(src))
		shuffleBytes(c.shuffled, src, elem)
		src = c.shuffled
	}
	switch c.spec.ID {
	case LZ4:
		n, err = c.lz4.CompressBlock(src, dst)
		if err != nil && !errors.Is(err, lz4.ErrInvalidSourceShortBuffer) {
			return 0, Raw, 1, fmt.Errorf("encode lz4: %w", err)
		}
		if err != nil {
			n = 0
		}
	case Zstd:
		if c.enc == nil {
			c.enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
				zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(c.spec.level())),
				zstd.WithWindowSize(window(c.pageSize)))
			if err != nil {
				return 0, Raw, 1, fmt.Errorf("open zstd encoder: %w", err)
			}
		}
		// EncodeAll moves to a new array when dst is too small, and may do so for a block that it
		// then replaces by a shorter one; copy is a no-op when it stayed.
		if out := c.enc.EncodeAll(src, dst[:0]); len(out) <= len(dst) {
			n = copy(dst, out)
		}
	}
	if n == 0 {
		return 0, Raw, 1, nil
	}
	return n, c.spec.ID, shuffle, nil
}

// window is the smallest Zstandard window that covers a page.
func window(pageSize int) int {
	w := zstd.MinWindowSize
	for w < pageSize && w < zstd.MaxWindowSize {
		w *= 2
	}
	return w
}

// Decode writes the page that src holds into dst, which is one page long. On an error dst may hold
// anything.
func (c *coder) Decode(dst, src []byte, id CodecID, shuffle int) error {
	if len(dst) != c.pageSize {
		return fmt.Errorf("decode: page of %d bytes, want %d", len(dst), c.pageSize)
	}
	if shuffle < 1 || shuffle > MaxElem {
		return fmt.Errorf("decode: shuffle by %d: %w", shuffle, errCodec)
	}
	plain := dst
	if shuffle > 1 {
		c.shuffled = sized(c.shuffled, len(dst))
		plain = c.shuffled
	}
	switch id {
	case Raw:
		if len(src) != len(plain) {
			return fmt.Errorf("decode raw: %d bytes, want %d: %w", len(src), len(plain), errDecode)
		}
		copy(plain, src)
	case LZ4:
		n, err := lz4.UncompressBlock(src, plain)
		if err != nil || n != len(plain) {
			return fmt.Errorf("decode lz4: %d bytes, %w: %w", n, errDecode, orNil(err))
		}
	case Zstd:
		if c.dec == nil {
			dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
				zstd.WithDecoderMaxMemory(uint64(max(c.pageSize, 1<<20))))
			if err != nil {
				return fmt.Errorf("open zstd decoder: %w", err)
			}
			c.dec = dec
		}
		out, err := c.dec.DecodeAll(src, plain[:0])
		if err != nil || len(out) != len(plain) || &out[0] != &plain[0] {
			return fmt.Errorf("decode zstd: %d bytes, %w: %w", len(out), errDecode, orNil(err))
		}
	default:
		return fmt.Errorf("decode %v: %w", id, errCodec)
	}
	if shuffle > 1 {
		unshuffleBytes(dst, plain, shuffle)
	}
	return nil
}

var errLength = errors.New("wrong length")

// orNil gives a wrapped detail where the decoder itself had no complaint.
func orNil(err error) error {
	if err == nil {
		return errLength
	}
	return err
}

func (c *coder) Close() {
	if c.enc != nil {
		_ = c.enc.Close() // It writes to no stream, so it has nothing to flush.
		c.enc = nil
	}
	if c.dec != nil {
		c.dec.Close()
		c.dec = nil
	}
}

// sized returns b with length n, with new memory only when it is too small.
func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// coderPool is a set of coders of one kind for many goroutines. It keeps as many as were ever in
// use at once.
type coderPool struct {
	pageSize int
	spec     Codec
	mu       sync.Mutex
	idle     []*coder
}

func newCoderPool(pageSize int, spec Codec) (*coderPool, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return &coderPool{pageSize: pageSize, spec: spec}, nil
}

// Get takes a coder that is the caller's until Put.
func (p *coderPool) Get() *coder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c
	}
	return &coder{pageSize: p.pageSize, spec: p.spec}
}

func (p *coderPool) Put(c *coder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

func (p *coderPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}

// Numbers of the chooser.
const (
	// hopelessAfter tries in a row that did not pay, a class is left raw.
	hopelessAfter = 4
	// retryEvery pages of a class that is left raw, one is tried again, since state changes its
	// nature as it learns. The cost of a wrong guess is at most 1/64 of the compressor's time,
	// about 1 % of a disk write.
	retryEvery = 64
)

// chooser remembers for each of 256 classes of page whether compression pays there, so that
// hopeless pages are not tried again and again. A class is whatever the caller says: pages of one
// state variable, of one swarm. All methods may be called at once; the zero chooser is ready.
type chooser struct {
	classes [256]triedClass
}

type triedClass struct {
	failures atomic.Uint32 // tries in a row that did not pay, up to hopelessAfter
	skipped  atomic.Uint32 // pages since the last try
}

// Try reports whether the next page of a class should be encoded at all.
func (c *chooser) Try(cl uint8) bool {
	k := &c.classes[cl]
	if k.failures.Load() < hopelessAfter {
		return true
	}
	return k.skipped.Add(1)%retryEvery == 0
}

func (c *chooser) Learn(cl uint8, paid bool) {
	k := &c.classes[cl]
	switch {
	case paid:
		k.failures.Store(0)
	case k.failures.Load() < hopelessAfter:
		k.failures.Add(1)
	}
}
