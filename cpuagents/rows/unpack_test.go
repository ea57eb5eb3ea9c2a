package rows

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestUnpack: contents up to the limit and no byte more, whatever the packing; what is wrong with
// it is said.
func TestUnpack(t *testing.T) {
	text := []byte(strings.Repeat("0123456789", 1000))
	for pack, data := range map[string][]byte{"gz": fixture.Gzip(t, text), "zst": fixture.Zstd(t, text), "": text} {
		for limit, want := range map[int64]bool{
			int64(len(text)): true, int64(len(text)) + 1: true,
			int64(len(text)) - 1: pack == "", 0: pack == "",
		} {
			src := &failingReader{Reader: bytes.NewReader(data), err: io.EOF}
			r, err := unpack("s", src, pack, limit, nil)
			if err != nil {
				t.Fatalf("unpack: %v, want no error", err)
			}
			got, err := io.ReadAll(r)
			if (err == nil) != want || want && !bytes.Equal(got, text) || err != nil &&
				(!fixture.IsInput(err) || !strings.Contains(err.Error(), "--max-unpacked")) {
				t.Errorf("%q up to %d: %d bytes, %v", pack, limit, len(got), err)
			}
			if err := r.Close(); err != nil || src.closed != 1 {
				t.Errorf("%q: closed %d times, %v", pack, src.closed, err)
			}
			if err := r.Close(); pack != "" && (err != nil || src.closed != 1) {
				t.Errorf("%q: a second Close: closed %d times, %v", pack, src.closed, err)
			}
		}
		if pack == "" {
			continue
		}
		for name, c := range map[string]struct {
			src  io.Reader
			want string
			code jobs.Code
		}{
			"nothing": {strings.NewReader(""), "its " + pack + " stream is cut off", jobs.CodeInput},
			"text":    {bytes.NewReader(text), "its " + pack + " stream is damaged", jobs.CodeInput},
			"cut":     {bytes.NewReader(data[:len(data)-3]), "its " + pack + " stream is cut off", jobs.CodeInput},
			"damaged": {
				bytes.NewReader(append(bytes.Clone(data[:len(data)-6]), 1, 2, 3, 4, 5, 6)),
				"its " + pack + " stream is damaged", jobs.CodeInput,
			},
			"disk": {
				&failingReader{Reader: bytes.NewReader(data[:len(data)-3]), err: syscall.EIO},
				"read s: input/output error", jobs.CodeIO,
			},
			"disk at once": {
				&failingReader{Reader: bytes.NewReader(nil), err: syscall.EIO},
				"read s: input/output error", jobs.CodeIO,
			},
			"disk at start": {
				&failingReader{Reader: bytes.NewReader(data[:2]), err: syscall.EIO},
				"read s: input/output error", jobs.CodeIO,
			},
		} {
			src := &failingReader{Reader: c.src, err: io.EOF}
			r, err := unpack("s", src, pack, fixture.Plenty, nil)
			if err == nil {
				_, err = io.ReadAll(r)
				_ = r.Close()
			}
			if e := (*jobs.Error)(nil); !errors.As(err, &e) || e.Code != c.code ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s of %s: %v", name, pack, err)
			}
			if src.closed != 1 {
				t.Errorf("%s of %s: closed %d times", name, pack, src.closed)
			}
		}
	}
}

// TestZstdMemory: the largest window of the frames is taken, with the decoder's own memory, and one
// that is too large is refused.
func TestZstdMemory(t *testing.T) {
	const rest = 1 << 20
	h := access.NewMemoryParts(1<<40, 1<<40).Hold(t.Context(), "s")
	take := zstdMemory("s", h)
	for _, c := range []struct{ window, held int64 }{
		{0, rest},
		{5, rest + 5},
		{5, rest + 5},
		{4, rest + 5},
		{6, rest + 6},
		{128 << 20, rest + 128<<20},
		{1, rest + 128<<20},
	} {
		if err := take(c.window); err != nil || h.Bytes() != c.held {
			t.Errorf("a window of %d: %d bytes are held, want %d, %v", c.window, h.Bytes(), c.held, err)
		}
	}
	if err := take(128<<20 + 1); !fixture.IsInput(err) || !strings.Contains(err.Error(), "128 MiB are allowed") ||
		h.Bytes() != rest+128<<20 {
		t.Errorf("%v, %d bytes are held", err, h.Bytes())
	}
	if err := zstdMemory("s", access.NewMemoryParts(100, 100).Hold(t.Context(), "s"))(0); !access.IsMemory(err) {
		t.Errorf("a window without memory: %v, want an error of memory", err)
	}
	// A file with a window of 16 MiB and one of the largest.
	for window, limit := range map[int]int64{1 << 20: 2 << 20, 16 << 20: 17 << 20} {
		var packed bytes.Buffer
		enc, err := zstd.NewWriter(&packed, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatalf("zstd.NewWriter: %v, want no error", err)
		}
		for range 2 {
			if _, err := enc.Write(make([]byte, window)); err != nil {
				t.Fatalf("enc.Write: %v, want no error", err)
			}
		}
		if err := enc.Close(); err != nil {
			t.Fatalf("enc.Close: %v, want no error", err)
		}
		for at, want := range map[int64]bool{limit: true, limit - 1: false} {
			r, err := unpack("s", io.NopCloser(bytes.NewReader(packed.Bytes())), "zst", fixture.Plenty,
				access.NewMemoryParts(at, at).Hold(t.Context(), "s"))
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				_ = r.Close()
			}
			if (err == nil) != want || err != nil && !access.IsMemory(err) {
				t.Errorf("a window of %d bytes with %d of memory: %v", window, at, err)
			}
		}
	}
}
