package rows

import (
	"bufio"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/memory"
)

// zstdWindow bounds the window of a zstd stream in bytes. It is the limit of zstd itself without
// --long. zstdRest is the memory of its decoder without the window, in bytes.
const (
	zstdWindow = 128 << 20
	zstdRest   = 1 << 20
)

// unpacker reads the contents of a packed file. left is how many more bytes of contents are
// allowed: a small file may unpack to very many.
type unpacker struct {
	name, pack string
	from       io.Reader
	left       int64
	closers    []func() error
}

// unpack returns the contents of src, which it owns from here on, also when it returns an error.
// For an empty pack it returns src itself. It reads at most limit bytes of contents. Damage of the
// packing is an error of class jobs.CodeInput. The memory of a decoder is taken from h, where it
// stays until h is released.
func unpack(name string, src io.ReadCloser, pack string, limit int64, h *access.Hold) (io.ReadCloser, error) {
	if pack == "" {
		return src, nil
	}
	u := &unpacker{name: name, pack: pack, left: limit, closers: []func() error{src.Close}}
	var err error
	// Errors of the file get their class below the decoder, which would hide them in its own.
	raw := bufio.NewReaderSize(typed{name, src}, 64<<10)
	switch _, empty := raw.Peek(1); {
	case empty != nil: // zstd would take it for a file of nothing
		err = empty
	case pack == "gz":
		var z *gzip.Reader
		if z, err = gzip.NewReader(raw); err == nil {
			u.from = z
		}
	default:
		var z *zstd.Decoder
		// The decoder uses no other goroutine, since many packed files are read at a time.
		if z, err = zstd.NewReader(&zstdFrames{r: raw, window: zstdMemory(name, h)}, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow)); err == nil {
			u.from = z
			u.closers = append(u.closers, func() error { z.Close(); return nil })
		}
	}
	if err != nil {
		_ = src.Close()
		return nil, u.fault(err)
	}
	return u, nil
}

// zstdMemory returns a function that takes the memory of a frame's window from h. Frames follow one
// another, so only the largest window counts. The hold gives it back with everything else.
func zstdMemory(name string, h *access.Hold) func(window int64) error {
	// The first frame pays for the decoder too.
	most := int64(-zstdRest)
	return func(window int64) error {
		if window > zstdWindow {
			return access.InputError(
				"%s: its zstd stream asks for a window of %s; %s are allowed: pack it without --long", name,
				memory.Text(window), memory.Text(zstdWindow),
			)
		}
		if window <= most {
			return nil
		}
		err := h.Grow(window - most)
		most = window
		return err
	}
}

// fault returns an error of a decoder as damage of the data, unless it has a class already.
func (u *unpacker) fault(err error) error {
	if access.Classified(err) {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return access.InputError("%s: its %s stream is cut off: get the file again", u.name, u.pack)
	}
	return access.InputError("%s: its %s stream is damaged (%v): get the file again", u.name, u.pack, err)
}

// Read implements io.Reader. Contents beyond the limit are an error of the input, whatever was read
// before.
func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	if u.left -= int64(n); u.left < 0 {
		return 0, access.InputError(
			"%s: it unpacks to more than the bytes that this agent allows: unpack it before, or raise --max-unpacked",
			u.name,
		)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.fault(err)
	}
	return n, err
}

// Close implements io.Closer. It closes the decoder before the file. A second call does nothing.
func (u *unpacker) Close() error {
	var errs []error
	for i := len(u.closers) - 1; i >= 0; i-- {
		errs = append(errs, u.closers[i]())
	}
	u.closers = nil
	return errors.Join(errs...)
}

// typed gives the errors of the file below a decoder a class, so that they do not count as damage.
type typed struct {
	name string
	r    io.Reader
}

// Read implements io.Reader. A failing disk is then jobs.CodeIO, and not damage of the file.
func (t typed) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = access.IOError("read", t.name, err)
	}
	return n, err
}
