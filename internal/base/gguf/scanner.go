package gguf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// scanner reads a file from its start on. After the first error it reads zeros, and keeps the
// error.
type scanner struct {
	r    *bufio.Reader
	at   int64 // of the next byte
	size int64 // of the file
	err  error
	// small is where number reads: a variable there would be allocated for each.
	small [8]byte
}

func newScanner(r io.ReaderAt, size int64) *scanner {
	return &scanner{r: bufio.NewReader(io.NewSectionReader(r, 0, size)), size: size}
}

// fail keeps an ErrFormat at the present byte.
func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: byte %d: %s", ErrFormat, s.at, fmt.Sprintf(format, args...))
	}
}

// room reports whether the file has n more bytes, and fails otherwise.
func (s *scanner) room(n int64) bool {
	if s.err == nil && n > s.size-s.at {
		s.fail("%d more bytes are needed, and the file has %d in all: is it cut short?", n, s.size)
	}
	return s.err == nil
}

func (s *scanner) read(p []byte) {
	if !s.room(int64(len(p))) {
		return
	}
	n, err := io.ReadFull(s.r, p)
	s.at += int64(n)
	s.end(err)
}

// end keeps an error of the reader.
func (s *scanner) end(err error) {
	switch {
	case s.err != nil || err == nil:
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		s.fail("the file ends: is it cut short?")
	default:
		s.err = fmt.Errorf("read byte %d: %w", s.at, err)
	}
}

func (s *scanner) skip(n int64) {
	for s.err == nil && n > 0 {
		if !s.room(n) {
			return
		}
		done, err := s.r.Discard(int(min(n, math.MaxInt32)))
		s.at, n = s.at+int64(done), n-int64(done)
		s.end(err)
	}
}

// number reads an unsigned number of n bytes, at most 8.
func (s *scanner) number(n int64) uint64 {
	s.small = [8]byte{}
	s.read(s.small[:n])
	if s.err != nil {
		return 0
	}
	return little.Uint64(s.small[:])
}

// count reads the number of tensors or keys, and each takes at least least bytes.
func (s *scanner) count(of string, least int64) int64 {
	n := s.number(8)
	if n > maxCount {
		s.fail("%d %s: at most %d are read", n, of, maxCount)
		return 0
	}
	s.room(int64(n) * least)
	if s.err != nil {
		return 0
	}
	return int64(n)
}

// length reads the length of a string, of at most most bytes, which the file has.
func (s *scanner) length(most int64) int64 {
	n := s.number(8)
	if n > uint64(most) {
		s.fail("a string of %d bytes: at most %d are read", n, most)
		return 0
	}
	if !s.room(int64(n)) {
		return 0
	}
	return int64(n)
}

func (s *scanner) text(n int64) string {
	b := make([]byte, n)
	s.read(b)
	return string(b)
}

// name reads the name of a key or a tensor, which differs from all names before.
func (s *scanner) name(of string, again func(string) bool) string {
	name := s.text(s.length(maxName))
	switch {
	case s.err != nil:
	case name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		s.fail("%s %.100q: its name is empty, has control characters or is not UTF-8", of, name)
	case again(name):
		s.fail("%s %s: its name is there twice: remove one", of, name)
	}
	return name
}

// key reads a key with its value. Strings and arrays stay in the file.
func (s *scanner) key(f *File) {
	if s.err != nil {
		return
	}
	k := Key{Name: s.name("key", func(name string) bool { _, there := f.byName[name]; return there })}
	k.Type = Type(s.number(4))
	switch {
	case s.err != nil:
	case int(k.Type) >= len(sizes):
		s.fail("key %s: a value of the unknown %v", k.Name, k.Type)
	case k.Type == String:
		k.Len = s.length(maxString)
		k.at, k.size = s.at, k.Len
		s.skip(k.Len)
	case k.Type == Array:
		s.array(&k)
	default:
		k.bits = s.number(sizes[k.Type])
		if k.Type == Bool && k.bits > 1 {
			s.fail("key %s: a bool is %d: use 0 or 1", k.Name, k.bits)
		}
	}
	if s.err == nil {
		f.byName[k.Name] = len(f.Keys)
		f.Keys = append(f.Keys, k)
	}
}

// array checks the elements of an array and passes over them.
func (s *scanner) array(k *Key) {
	k.Elem = Type(s.number(4))
	n := s.number(8)
	switch {
	case s.err != nil:
		return
	case k.Elem == Array:
		s.fail("key %s: an array of arrays: nested arrays are not read", k.Name)
		return
	case int(k.Elem) >= len(sizes):
		s.fail("key %s: elements of the unknown %v", k.Name, k.Elem)
		return
	case n > maxArray:
		s.fail("key %s: %d elements: at most %d are read", k.Name, n, maxArray)
		return
	}
	k.Len, k.at = int64(n), s.at
	if k.Elem != String {
		s.skip(k.Len * sizes[k.Elem])
	} else if s.room(8 * k.Len) {
		for i := int64(0); i < k.Len && s.err == nil; i++ {
			s.skip(s.length(maxString))
		}
	}
	k.size = s.at - k.at
}

// texts reads an array of strings, whose bytes and lengths are k.size bytes of the file.
func (s *scanner) texts(k Key) []string {
	all := make([]string, 0, k.Len)
	var b strings.Builder
	b.Grow(int(k.size - 8*k.Len)) // enough: the builder never moves, and the strings before stay valid
	for range k.Len {
		n := s.length(min(maxString, k.size-8*k.Len-int64(b.Len())))
		from := b.Len()
		for n > 0 && s.err == nil {
			part, err := s.r.Peek(int(min(n, int64(s.r.Size()))))
			s.end(err)
			b.Write(part)
			s.skip(int64(len(part)))
			n -= int64(len(part))
		}
		if s.err != nil {
			return nil
		}
		all = append(all, b.String()[from:])
	}
	return all
}

// tensor reads the description of a tensor. Its first byte counts from the end of the head.
func (s *scanner) tensor(f *File, names map[string]bool, align int64) {
	if s.err != nil {
		return
	}
	t := Tensor{Name: s.name("tensor", func(name string) bool { return names[name] })}
	names[t.Name] = true
	dims := s.number(4)
	if dims > maxDims {
		s.fail("tensor %s: %d dimensions: at most %d are read", t.Name, dims, maxDims)
		return
	}
	n := int64(1)
	for range dims {
		d := s.number(8)
		if s.err == nil && (d == 0 || d > math.MaxInt64 || n > math.MaxInt64/int64(d)) {
			s.fail("tensor %s: dimension %d: it is 0, or its elements are more than a file can have", t.Name, d)
		}
		if s.err != nil {
			return
		}
		n *= int64(d)
		t.Shape = append(t.Shape, int64(d))
	}
	number, first := uint32(s.number(4)), s.number(8)
	if s.err != nil {
		return
	}
	t.Type = tensorTypes[number]
	elements, bytes, known := quant.Block(t.Type)
	contiguous := int64(1)
	if dims > 0 {
		contiguous = t.Shape[0]
	}
	switch {
	case !known:
		s.fail("tensor %s: elements of type %d (%s): F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K are read: quantise "+
			"it to one of them", t.Name, number, t.Type)
		return
	case contiguous%elements != 0:
		s.fail("tensor %s: rows of %d elements are no whole blocks of %d of type %s", t.Name, contiguous, elements,
			t.Type)
		return
	case n/elements > math.MaxInt64/bytes:
		s.fail("tensor %s: its elements are more than a file can have", t.Name)
		return
	case first > math.MaxInt64 || int64(first)%align != 0:
		s.fail("tensor %s: its first byte, %d, is no multiple of the alignment %d", t.Name, first, align)
		return
	}
	t.Bytes, t.First = n/elements*bytes, int64(first)
	slices.Reverse(t.Shape)
	f.Tensors = append(f.Tensors, t)
}
