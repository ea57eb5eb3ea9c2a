package bucket

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

// ErrChanged is an object whose bytes are others than asked for.
var ErrChanged = errors.New("object has other bytes")

// Files opens objects of a place to read them at any place. Files of a folder are read where they
// are. Objects of a bucket are copied into a folder of this machine once; the copies stay. Both stay
// encrypted. Its methods may be called from several goroutines.
type Files struct {
	from Bucket
	ring *keyring.Ring
	dir  string

	copying chan struct{} // has an element while an object is copied
	copies  *Folder       // nil before the first copy

	mu      sync.Mutex
	checked map[string]os.FileInfo // files of a folder whose checksum was compared
}

// copied is the folder of the copies in the folder of Files.
const copied = "copies"

// NewFiles returns the files of a place that Seal has not changed. dir is for the copies of objects
// of a bucket, and is of this process alone; empty: there are none. The caller closes both.
func NewFiles(from Bucket, ring *keyring.Ring, dir string) *Files {
	return &Files{
		from: from, ring: ring, dir: dir, copying: make(chan struct{}, 1), checked: map[string]os.FileInfo{},
	}
}

// FilesOf is NewFiles of a place that Seal may have changed, with its keys.
func FilesOf(b Bucket, dir string) *Files {
	if s, is := b.(sealed); is {
		return NewFiles(s.Bucket, s.ring, dir)
	}
	return NewFiles(b, nil, dir)
}

// Close closes the folder of the copies.
func (f *Files) Close() error {
	if f.copies == nil {
		return nil
	}
	return f.copies.Close()
}

// OpenAt opens an object with a length and a SHA-256, which are compared: while it is copied, or
// when this process opens a file of a folder first, and again after the file has changed.
// ErrChanged: it has others. The caller closes it.
func (f *Files) OpenAt(ctx context.Context, name string, bytes int64, sum string) (at snapshot.At, err error) {
	if folder, is := f.from.(*Folder); is {
		return f.here(ctx, folder, name, bytes, sum)
	}
	if f.dir == "" {
		return nil, fmt.Errorf("%s: objects of a bucket are copied into the data folder first: start the agent "+
			"process with --data-dir", name)
	}
	select {
	case f.copying <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-f.copying }()
	if f.copies == nil {
		if f.copies, err = OpenFolder(f.dir); err != nil {
			return nil, err
		}
		if err := f.copies.Sweep(ctx, copied); err != nil {
			return nil, err
		}
	}
	key := sha256.Sum256([]byte(name + "\x00" + sum)) // the name is part of the encryption
	of := copied + "/" + hex.EncodeToString(key[:])
	if at, _, err := f.open(f.copies, of, name, bytes); err == nil || !errors.Is(err, os.ErrNotExist) &&
		!errors.Is(err, ErrChanged) {
		return at, err
	}
	if err := f.copy(ctx, name, of, bytes, sum); err != nil {
		return nil, fmt.Errorf("copy %s into the data folder: %w", name, err)
	}
	at, _, err = f.open(f.copies, of, name, bytes)
	return at, err
}

// here opens a file of a folder.
func (f *Files) here(ctx context.Context, folder *Folder, name string, bytes int64, sum string) (snapshot.At, error) {
	at, is, err := f.open(folder, name, name, bytes)
	if err != nil {
		return nil, err
	}
	key := name + "\x00" + sum
	f.mu.Lock()
	was := f.checked[key]
	f.mu.Unlock()
	if was != nil && os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime()) {
		return at, nil
	}
	if err = compare(ctx, name, io.NewSectionReader(at, 0, bytes), bytes, sum); err != nil {
		return nil, errors.Join(err, at.Close())
	}
	f.mu.Lock()
	f.checked[key] = is
	f.mu.Unlock()
	return at, nil
}

// compare reads all of an object and compares its length and checksum.
func compare(ctx context.Context, name string, from io.Reader, bytes int64, sum string) error {
	s := sha256.New()
	n, err := io.CopyBuffer(s, ending{ctx, from}, make([]byte, 1<<20))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if got := hex.EncodeToString(s.Sum(nil)); n != bytes || got != sum {
		return fmt.Errorf("%s: %w: %d with the SHA-256 %s, want %d with %s", name, ErrChanged, n, got, bytes, sum)
	}
	return nil
}

// ending is a reader that ends with a context.
type ending struct {
	ctx context.Context //nolint:containedctx // of the call that reads
	r   io.Reader
}

func (e ending) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.r.Read(p)
}

// copy copies an object as it is stored, and compares what it has decrypted.
func (f *Files) copy(ctx context.Context, name, to string, bytes int64, sum string) error {
	raw, err := f.from.Open(ctx, name)
	if err != nil {
		return err
	}
	o, err := f.copies.Create(ctx, to)
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	defer o.Abort()
	plain, err := sealed{f.from, f.ring}.open(struct {
		io.Reader
		io.Closer
	}{io.TeeReader(raw, o), raw}, name)
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	if err := errors.Join(compare(ctx, name, plain, bytes, sum), plain.Close()); err != nil {
		return err
	}
	return o.Commit()
}

// open opens a file that has the stored form of an object. ErrChanged: its length is wrong.
func (f *Files) open(folder *Folder, file, name string, bytes int64) (at snapshot.At, is os.FileInfo, err error) {
	o, err := folder.root.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if is, err = o.Stat(); err != nil {
		return nil, nil, err
	}
	head := make([]byte, headLen)
	if n, rerr := o.ReadAt(head, 0); rerr != nil && !errors.Is(rerr, io.EOF) {
		return nil, nil, rerr
	} else if head = head[:n]; !isSealed(head) {
		if is.Size() != bytes {
			return nil, nil, fmt.Errorf("%s: %w: %d of them, want %d", name, ErrChanged, is.Size(), bytes)
		}
		return o, is, nil
	}
	s := &sealedAt{File: o, name: name, bytes: bytes}
	if s.aead, err = (sealed{f.from, f.ring}).cipher(head, name); err != nil {
		return nil, nil, err
	}
	if want := bytes + int64(headLen) + int64(s.last()+1)*tagLen; is.Size() != want {
		return nil, nil, fmt.Errorf("%s: %w: its encrypted form has %d, want %d", name, ErrChanged, is.Size(), want)
	}
	return s, is, nil
}

// sealedAt is an encrypted object in a file. Its chunks are decrypted one by one.
type sealedAt struct {
	*os.File
	name  string
	aead  cipher.AEAD
	bytes int64 // decrypted
}

// last returns the number of the last chunk.
func (s *sealedAt) last() chunk { return chunk(max(0, s.bytes-1) / chunkLen) }

// ReadAt implements io.ReaderAt.
func (s *sealedAt) ReadAt(p []byte, off int64) (n int, err error) {
	buf := make([]byte, chunkLen+tagLen)
	for n < len(p) {
		at := off + int64(n)
		if at >= s.bytes {
			return n, io.EOF
		}
		c := chunk(at / chunkLen)
		in := buf[:min(chunkLen, s.bytes-int64(c)*chunkLen)+tagLen]
		if _, err := s.File.ReadAt(in, int64(headLen)+int64(c)*(chunkLen+tagLen)); err != nil {
			return n, err
		}
		plain, err := s.aead.Open(in[:0], c.nonce(), in, last(c == s.last()))
		if err != nil {
			return n, fmt.Errorf("%s: %w: chunk %d was changed", s.name, ErrKey, c)
		}
		n += copy(p[n:], plain[at-int64(c)*chunkLen:])
	}
	return n, nil
}
