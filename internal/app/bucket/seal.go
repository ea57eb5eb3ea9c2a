package bucket

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

// An encrypted object is a header (magic, id of the key, salt) and chunks of 64 KiB, each sealed
// with AES-256-GCM under a key that is derived from the operator's by the salt and the object's
// name. The nonce is the chunk's number; the additional data says whether it is the last, so that
// an object that was cut is noticed. docs/formats/snapshot.md has the format.
const (
	sealMagic = "EXOSEAL1"
	saltLen   = 32
	headLen   = len(sealMagic) + 8 + saltLen
	chunkLen  = 64 << 10
	tagLen    = 16
)

// ErrKey is an object that is encrypted with a key that is not there, or that was changed.
var ErrKey = errors.New("encrypted object cannot be read")

// Seal returns a bucket whose objects are encrypted with the current key of a ring. Each object is
// decrypted with the key it was written with, and a plain object is read as it is. With a nil ring
// objects are written as they are, and an encrypted object is an ErrKey.
func Seal(b Bucket, ring *keyring.Ring) Bucket { return sealed{b, ring} }

type sealed struct {
	Bucket
	ring *keyring.Ring
}

// aead derives the cipher of an object.
func aead(key, salt []byte, name string) (cipher.AEAD, error) {
	k, err := hkdf.Key(sha256.New, key, salt, "exoswarm object "+name, keyring.KeyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// chunk is the place of a chunk in an object: what it is sealed with.
type chunk uint64

func (c chunk) nonce() []byte { return binary.BigEndian.AppendUint64(make([]byte, 4, 12), uint64(c)) }

func last(yes bool) []byte {
	if yes {
		return []byte{1}
	}
	return []byte{0}
}

func (s sealed) Create(ctx context.Context, name string) (snapshot.Object, error) {
	key := s.ring.Current()
	if key == nil {
		return s.Bucket.Create(ctx, name)
	}
	head := make([]byte, headLen)
	id := keyring.ID(key)
	copy(head, sealMagic)
	copy(head[len(sealMagic):], id[:])
	salt := head[len(sealMagic)+8:]
	if _, err := rand.Read(salt); err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", name, err)
	}
	c, err := aead(key, salt, name)
	if err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", name, err)
	}
	o, err := s.Bucket.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := o.Write(head); err != nil {
		o.Abort()
		return nil, err
	}
	return &sealedObject{Object: o, aead: c, plain: make([]byte, 0, chunkLen)}, nil
}

// sealedObject is an object that is being written. A full chunk is held back until more bytes
// arrive, since the last chunk is sealed as the last.
type sealedObject struct {
	snapshot.Object
	aead  cipher.AEAD
	at    chunk
	plain []byte
	out   []byte
}

func (o *sealedObject) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(o.plain) == chunkLen {
			if err := o.flush(false); err != nil {
				return n, err
			}
		}
		k := min(len(p), chunkLen-len(o.plain))
		o.plain = append(o.plain, p[:k]...)
		p, n = p[k:], n+k
	}
	return n, nil
}

func (o *sealedObject) flush(end bool) error {
	o.out = o.aead.Seal(o.out[:0], o.at.nonce(), o.plain, last(end))
	o.at++
	o.plain = o.plain[:0]
	_, err := o.Object.Write(o.out)
	return err
}

func (o *sealedObject) Commit() error {
	if err := o.flush(true); err != nil {
		o.Abort()
		return err
	}
	return o.Object.Commit()
}

func (s sealed) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.Bucket.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	o, err := s.open(r, name)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return o, nil
}

func (s sealed) open(r io.ReadCloser, name string) (io.ReadCloser, error) {
	head := make([]byte, headLen)
	n, err := io.ReadFull(r, head)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	case !isSealed(head[:n]):
		return &sealedReader{from: r, plain: head[:n], raw: true}, nil
	}
	c, err := s.cipher(head, name)
	if err != nil {
		return nil, err
	}
	return &sealedReader{from: r, name: name, aead: c, in: make([]byte, 0, chunkLen+tagLen+1)}, nil
}

// isSealed reports whether the first bytes of an object, headLen of them or all, are the head of an
// encrypted one.
func isSealed(head []byte) bool {
	return len(head) == headLen && string(head[:len(sealMagic)]) == sealMagic
}

// cipher returns the cipher of an object with a head.
func (s sealed) cipher(head []byte, name string) (cipher.AEAD, error) {
	if s.ring == nil {
		return nil, fmt.Errorf("%s: %w: give the key (--key-file)", name, ErrKey)
	}
	id := [8]byte(head[len(sealMagic):])
	for _, key := range append([][]byte{s.ring.Current()}, s.ring.Former()...) {
		if keyring.ID(key) == id {
			return aead(key, head[len(sealMagic)+8:], name)
		}
	}
	return nil, fmt.Errorf("%s: %w: its key is not in the key file: add it as a further line", name, ErrKey)
}

// sealedReader reads an object, encrypted or not (raw).
type sealedReader struct {
	from  io.ReadCloser
	name  string
	aead  cipher.AEAD
	at    chunk
	in    []byte // read ahead: whether a chunk is the last shows by the byte behind it
	plain []byte // decrypted and not yet read
	raw   bool
	end   bool
}

func (r *sealedReader) Read(p []byte) (int, error) {
	for len(r.plain) == 0 {
		if r.raw {
			return r.from.Read(p)
		}
		if r.end {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.plain)
	r.plain = r.plain[n:]
	return n, nil
}

func (r *sealedReader) next() error {
	const whole = chunkLen + tagLen
	have := len(r.in)
	n, err := io.ReadFull(r.from, r.in[have:whole+1])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	r.in = r.in[:have+n]
	r.end = len(r.in) <= whole
	sealed := r.in[:min(len(r.in), whole)]
	var rest byte
	if !r.end {
		rest = r.in[whole]
	}
	if r.plain, err = r.aead.Open(sealed[:0], r.at.nonce(), sealed, last(r.end)); err != nil {
		return fmt.Errorf("%s: %w: chunk %d was changed, or the object was cut", r.name, ErrKey, r.at)
	}
	r.at++
	// Decrypted bytes lie at the start of the buffer until they are read. The byte behind them is
	// the first byte of the next chunk, and is kept.
	next := make([]byte, 0, whole+1)
	if !r.end {
		next = append(next, rest)
	}
	r.in = next
	return nil
}

func (r *sealedReader) Close() error { return r.from.Close() }
