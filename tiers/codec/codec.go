// Package codec turns pages into fewer bytes and back: raw, LZ4 and Zstandard, each with an
// optional byte shuffle by element size in front, and a memory of which classes of page are not
// worth the try.
//
// Dense float state does not shrink under a plain compressor; once its bytes are transposed, so
// that all sign and exponent bytes lie together, Zstandard takes 15 % off Gaussian values and two
// thirds off quantised ones.
package codec

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// ID names a format of stored bytes. The values are part of the on-disk format.
type ID uint8

// The formats.
const (
	Raw  ID = 0
	LZ4  ID = 1 // one LZ4 block
	Zstd ID = 2 // one Zstandard frame, of any level
)

// String returns the name that options and statistics use.
func (id ID) String() string {
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
	// ErrUnknown: the format is none of this version.
	ErrUnknown = errors.New("unknown codec")
	// ErrCorrupt: the bytes do not decode to a page of the expected length.
	ErrCorrupt = errors.New("stored page does not decode")
)

// Spec is how the pages of one tier are encoded. The zero Spec is raw.
type Spec struct {
	// ID is the format to try.
	ID ID
	// Level is the Zstandard level, 1 to 22, mapped to the nearest of the library's four; 0 means
	// 3.
	Level int
}

// String returns the form that ParseSpec reads.
func (s Spec) String() string {
	if s.ID == Zstd {
		return fmt.Sprintf("zstd:%d", s.level())
	}
	return s.ID.String()
}

// ParseSpec reads "raw", "lz4", "zstd" or "zstd:LEVEL".
func ParseSpec(s string) (Spec, error) {
	switch s {
	case "raw", "":
		return Spec{}, nil
	case "lz4":
		return Spec{ID: LZ4}, nil
	case "zstd":
		return Spec{ID: Zstd, Level: 3}, nil
	}
	var level int
	if _, err := fmt.Sscanf(s, "zstd:%d", &level); err != nil || fmt.Sprintf("zstd:%d", level) != s {
		return Spec{}, fmt.Errorf("codec %q: want raw, lz4, zstd or zstd:LEVEL: %w", s, ErrUnknown)
	}
	spec := Spec{ID: Zstd, Level: level}
	return spec, spec.Validate()
}

// Validate returns an error that names what this version cannot encode.
func (s Spec) Validate() error {
	switch {
	case s.ID > Zstd:
		return fmt.Errorf("%v: %w", s.ID, ErrUnknown)
	case s.ID == Zstd && (s.level() < 1 || s.level() > 22):
		return fmt.Errorf("zstd level %d is not in 1..22", s.Level)
	}
	return nil
}

// level is Level with its default.
func (s Spec) level() int {
	if s.Level == 0 {
		return 3
	}
	return s.Level
}

// Coder encodes and decodes pages of one size. It keeps its scratch memory, so a warm Coder
// allocates nothing; one goroutine uses it at a time.
type Coder struct {
	pageSize int
	spec     Spec
	shuffled []byte
	lz4      lz4.Compressor
	enc      *zstd.Encoder
	dec      *zstd.Decoder
}

// NewCoder returns a Coder for pages of pageSize bytes under a valid spec.
func NewCoder(pageSize int, spec Spec) (*Coder, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return &Coder{pageSize: pageSize, spec: spec}, nil
}

// Encode writes src, a page, into dst and returns how many bytes it took, in which format, and the
// element size that was shuffled by (1 for none). It gives up and reports Raw with n = 0 and
// nothing of use in dst when the result would not fit in dst: the caller sizes dst to what pays.
// elem is the page's element size in bytes; 1 or less shuffles nothing.
func (c *Coder) Encode(dst, src []byte, elem int) (n int, id ID, shuffle int, err error) {
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
		Shuffle(c.shuffled, src, elem)
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
func (c *Coder) Decode(dst, src []byte, id ID, shuffle int) error {
	if len(dst) != c.pageSize {
		return fmt.Errorf("decode: page of %d bytes, want %d", len(dst), c.pageSize)
	}
	if shuffle < 1 || shuffle > MaxElem {
		return fmt.Errorf("decode: shuffle by %d: %w", shuffle, ErrUnknown)
	}
	plain := dst
	if shuffle > 1 {
		c.shuffled = sized(c.shuffled, len(dst))
		plain = c.shuffled
	}
	switch id {
	case Raw:
		if len(src) != len(plain) {
			return fmt.Errorf("decode raw: %d bytes, want %d: %w", len(src), len(plain), ErrCorrupt)
		}
		copy(plain, src)
	case LZ4:
		n, err := lz4.UncompressBlock(src, plain)
		if err != nil || n != len(plain) {
			return fmt.Errorf("decode lz4: %d bytes, %w: %w", n, ErrCorrupt, orNil(err))
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
			return fmt.Errorf("decode zstd: %d bytes, %w: %w", len(out), ErrCorrupt, orNil(err))
		}
	default:
		return fmt.Errorf("decode %v: %w", id, ErrUnknown)
	}
	if shuffle > 1 {
		Unshuffle(dst, plain, shuffle)
	}
	return nil
}

// errLength is the detail of a decode that succeeded with another length.
var errLength = errors.New("wrong length")

// orNil gives a wrapped detail where the decoder itself had no complaint.
func orNil(err error) error {
	if err == nil {
		return errLength
	}
	return err
}

// Close releases what the Coder holds. A second call does nothing.
func (c *Coder) Close() {
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

// Pool is a set of Coders of one kind for many goroutines. It keeps as many as were ever in use at
// once.
type Pool struct {
	pageSize int
	spec     Spec
	mu       sync.Mutex
	idle     []*Coder
}

// NewPool returns an empty pool of Coders.
func NewPool(pageSize int, spec Spec) (*Pool, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return &Pool{pageSize: pageSize, spec: spec}, nil
}

// Get takes a Coder that is the caller's until Put.
func (p *Pool) Get() *Coder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c
	}
	return &Coder{pageSize: p.pageSize, spec: p.spec}
}

// Put gives a Coder back.
func (p *Pool) Put(c *Coder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// Close releases the idle Coders.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}
