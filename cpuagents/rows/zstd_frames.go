package rows

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// zstdFrames passes a zstd stream through, and reads the header of each frame before it passes the
// frame: a decoder allocates the window of that header. It checks no contents: the decoder behind
// it finds damage. One goroutine uses it.
type zstdFrames struct {
	r      *bufio.Reader
	window func(bytes int64) error // called before a frame is passed on
	left   int64                   // bytes to pass on before the next head
	// blocks reports whether the next head belongs to a block, sum whether the frame ends with a
	// checksum, and ended whether its last block has been announced.
	blocks, sum, ended bool
}

// zstdWindows calls fn with the window of each frame of data.
func zstdWindows(data []byte, fn func(window int64) error) error {
	z := &zstdFrames{r: bufio.NewReader(bytes.NewReader(data)), window: fn}
	_, err := io.Copy(io.Discard, z)
	return err
}

// frameHead is the most bytes of the header of a frame.
const frameHead = zstd.HeaderMaxSize

func (z *zstdFrames) Read(p []byte) (int, error) {
	for z.left == 0 {
		if err := z.head(); err != nil {
			return 0, err
		}
	}
	n, err := z.r.Read(p[:min(int64(len(p)), z.left)])
	z.left -= int64(n)
	if errors.Is(err, io.EOF) && z.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// head reads the next header, of a frame or of a block, or finds the checksum of a frame. A
// skippable frame has no window. The size of a frame without a window is its content.
func (z *zstdFrames) head() error {
	switch {
	case z.ended && z.sum:
		z.left, z.sum = 4, false
		return nil
	case z.ended:
		z.ended, z.blocks = false, false
	}
	if z.blocks {
		b, err := z.r.Peek(3)
		if err != nil {
			return z.rest(b, err)
		}
		v := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
		// The header of a block is 3 bytes: the mark of the last block, the type, and the size.
		z.ended = v&1 != 0
		if z.left = 3 + v>>3; v>>1&3 == 1 { // a run: one byte, however long
			z.left = 4
		}
		return nil
	}
	b, err := z.r.Peek(frameHead)
	if len(b) == 0 {
		return err
	}
	var h zstd.Header
	switch herr := h.Decode(b); {
	case errors.Is(herr, io.ErrUnexpectedEOF) && err != nil:
		return z.rest(b, err)
	case herr != nil:
		return fmt.Errorf("the head of a frame: %w", herr)
	case h.Skippable:
		z.left = int64(h.HeaderSize) + int64(h.SkippableSize)
		return nil
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	// The size comes from the file; the limit keeps it an int64, and is far above every allowed
	// window.
	if window > 1<<40 {
		window = 1 << 40
	}
	z.blocks, z.sum, z.left = true, h.HasCheckSum, int64(h.HeaderSize)
	return z.window(int64(window))
}

// rest passes a header that is cut off to the decoder, which reports the damage.
func (z *zstdFrames) rest(b []byte, err error) error {
	if len(b) == 0 || !errors.Is(err, io.EOF) {
		return err
	}
	z.left = int64(len(b))
	return nil
}
