package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
)

// tensor is a tensor of a file, with its place.
type tensor struct {
	Tensor
	first, bytes int64
}

// tensors reads the head of a file of tensors.
func tensors(name string, r io.ReaderAt, size int64) ([]tensor, error) {
	if name == GGUFName {
		f, err := gguf.Open(r, size)
		if err != nil {
			return nil, err
		}
		return ofGGUF(f), nil
	}
	f, err := safetensors.Open(r, size)
	if err != nil {
		return nil, err
	}
	return ofSafetensors(f), nil
}

func ofGGUF(f *gguf.File) (all []tensor) {
	for _, t := range f.Tensors {
		all = append(all, tensor{Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape}, t.First, t.Bytes})
	}
	return all
}

func ofSafetensors(f *safetensors.File) (all []tensor) {
	for _, t := range f.Tensors {
		all = append(all, tensor{Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape}, t.First, t.Bytes})
	}
	return all
}

// described returns what a manifest says of the tensors of a file.
func described(all []tensor, file int) []Tensor {
	to := make([]Tensor, len(all))
	for i, t := range all {
		to[i] = t.Tensor
		to[i].File = file
	}
	return to
}

// same returns an error if a file has other tensors than the manifest says.
func (m *Manifest) same(file int, all []tensor) error {
	want := slices.DeleteFunc(slices.Clone(m.Tensors), func(t Tensor) bool { return t.File != file })
	if !slices.EqualFunc(described(all, file), want, Tensor.equal) {
		return fmt.Errorf("%s has other tensors than the manifest", m.Files[file].Name)
	}
	return nil
}

// Each reads all files of a model once, from the first byte to the last, and gives fn each tensor
// with its bytes in the file: in the order of the manifest, encoded as its type says. fn may read
// all of data, or less. Each compares the lengths, the checksums and the tensors of the files with
// the manifest. So what fn has seen is the model only when Each has returned nil. The error is an
// ErrCorrupt, an error of the store, or of fn. It holds a few kilobytes of a file at a time.
func (m *Manifest) Each(
	ctx context.Context, store snapshot.Store, fn func(t Tensor, bytes int64, data io.Reader) error,
) error {
	for i := range m.Files {
		if err := m.each(ctx, store, i, fn); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	return nil
}

func (m *Manifest) each(
	ctx context.Context, store snapshot.Store, file int, fn func(t Tensor, bytes int64, data io.Reader) error,
) (err error) {
	want := m.Files[file]
	r, err := store.Open(ctx, Folder(m.Name)+"/"+want.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, want.Name)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f := &forward{r: r, sum: sha256.New(), ended: func() error { return context.Cause(ctx) }}
	var failed error
	if want.Name == GGUFName || isSafetensors(want.Name) {
		all, err := tensors(want.Name, f, want.Bytes)
		if err == nil {
			err = m.same(file, all)
		}
		for k := 0; err == nil && k < len(all); k++ {
			t := all[k]
			t.File = file
			failed = fn(t.Tensor, t.bytes, io.NewSectionReader(f, t.first, t.bytes))
			err = failed
		}
		if failed != nil && !errors.Is(failed, io.EOF) && !errors.Is(failed, io.ErrUnexpectedEOF) {
			return failed
		}
		if err != nil && f.failed == nil {
			failed = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	n, err := io.Copy(f.sum, readerFunc(f.stream))
	n += f.at
	switch got := hex.EncodeToString(f.sum.Sum(nil)); {
	case f.failed != nil:
		return fmt.Errorf("read %s: %w", want.Name, f.failed)
	case err != nil:
		return fmt.Errorf("read %s: %w", want.Name, err)
	case got != want.SHA256:
		return fmt.Errorf("%w: %s has %d bytes and the SHA-256 %s, the manifest says %d and %s", ErrCorrupt, want.Name,
			n, got, want.Bytes, want.SHA256)
	}
	return failed
}

// Verify reads all files of a model and compares them with the manifest. Tensors of a language
// model are decoded; a value that is not finite is an ErrCorrupt, as a damaged file is.
func (m *Manifest) Verify(ctx context.Context, store snapshot.Store) error {
	if m.Parameters == nil {
		_, err := Read(ctx, store, m)
		return err
	}
	const most = 1 << 14 // elements at a time: whole blocks of all types
	values, data := make([]float32, most), make([]byte, 4*most)
	return m.Each(ctx, store, func(t Tensor, bytes int64, r io.Reader) error {
		elements, size, _ := quant.Block(t.Type)
		for at := int64(0); bytes > 0; at += most {
			n := min(bytes, most/elements*size)
			if _, err := io.ReadFull(r, data[:n]); err != nil {
				return err
			}
			part := values[:n/size*elements]
			if err := quant.Decode(t.Type, part, data[:n]); err != nil {
				return fmt.Errorf("tensor %s: %w", t.Name, err)
			}
			for i, v := range part {
				if v-v != 0 {
					return fmt.Errorf("%w: value %d of tensor %s is %v", ErrCorrupt, at+int64(i), t.Name, v)
				}
			}
			bytes -= n
		}
		return nil
	})
}

// behind is how many of the last bytes a forward keeps: more than a reader of a head reads ahead.
const behind = 4096

// forward is a stream that is read as an io.ReaderAt: in order, or at most a few bytes back. It
// sums all bytes that pass. One goroutine uses it.
type forward struct {
	r      io.Reader
	sum    hash.Hash
	ended  func() error // why reading ends
	at     int64        // of the next byte of r
	tail   []byte       // the last bytes before it
	failed error        // of r, and no end
}

func (f *forward) stream(p []byte) (int, error) {
	if err := f.ended(); err != nil {
		f.failed = err
		return 0, err
	}
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.failed = err
	}
	return n, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// next reads the next bytes of the stream.
func (f *forward) next(p []byte) (int, error) {
	n, err := io.ReadFull(readerFunc(f.stream), p)
	_, _ = f.sum.Write(p[:n]) // a hash does not fail
	f.at += int64(n)
	f.tail = append(f.tail, p[max(0, n-behind):n]...)
	f.tail = append(f.tail[:0], f.tail[max(0, len(f.tail)-behind):]...)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// ReadAt implements io.ReaderAt for bytes that are still to come, or are among the last behind.
func (f *forward) ReadAt(p []byte, at int64) (n int, err error) {
	var skipped [behind]byte
	for f.at < at {
		if _, err := f.next(skipped[:min(behind, at-f.at)]); err != nil {
			return 0, err
		}
	}
	if back := f.at - at; back > int64(len(f.tail)) {
		return 0, fmt.Errorf("byte %d of a stream that is at byte %d", at, f.at)
	} else if back > 0 {
		n = copy(p, f.tail[int64(len(f.tail))-back:])
	}
	if n == len(p) {
		return n, nil
	}
	k, err := f.next(p[n:])
	return n + k, err
}

// copyPart copies a file, and returns its SHA-256.
func copyPart(ctx context.Context, p Part, to io.Writer) (string, error) {
	s, from := sha256.New(), io.NewSectionReader(p.From, 0, p.Bytes)
	n, err := io.CopyBuffer(io.MultiWriter(to, s), readerFunc(func(b []byte) (int, error) {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		return from.Read(b)
	}), make([]byte, 1<<20))
	if err == nil && n != p.Bytes {
		err = fmt.Errorf("it has %d bytes, and had %d: it was cut short", n, p.Bytes)
	}
	return hex.EncodeToString(s.Sum(nil)), err
}

// writePart stores a file as an object, and returns its SHA-256.
func writePart(ctx context.Context, store snapshot.Store, name string, p Part) (sum string, err error) {
	o, err := store.Create(ctx, name)
	if err != nil {
		return "", err
	}
	defer o.Abort()
	if sum, err = copyPart(ctx, p, o); err != nil {
		return "", err
	}
	return sum, o.Commit()
}
