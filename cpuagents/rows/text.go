package rows

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns the UTF-8 of a text that may be UTF-16, as spreadsheets save it: with a byte order
// mark, or with a first character of ASCII. Other texts stay as they are. Large reads of these go
// around its buffer.
func Text(r io.Reader) io.Reader { return &text{in: bufio.NewReaderSize(r, 4<<10)} }

type text struct {
	in    *bufio.Reader
	order binary.ByteOrder // nil for a text that is not UTF-16
	begun bool
	high  rune   // the first half of a surrogate pair; 0 for none
	out   []byte // UTF-8 that was not read yet
}

// utf16Order returns the byte order of a text that begins as UTF-16 does; nil for another text.
func utf16Order(head []byte) binary.ByteOrder {
	switch {
	case len(head) < 2:
		return nil
	case head[0] == 0xff && head[1] == 0xfe, head[0] != 0 && head[0] < utf8.RuneSelf && head[1] == 0:
		return binary.LittleEndian
	case head[0] == 0xfe && head[1] == 0xff, head[0] == 0 && head[1] != 0 && head[1] < utf8.RuneSelf:
		return binary.BigEndian
	}
	return nil
}

// NoText says what is wrong with a header that is no text.
const NoText = "it is not text in UTF-8 or UTF-16: save the file as UTF-8"

// IsText reports whether a text is UTF-8 without control characters, as names of columns are.
func IsText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\t'
	})
}

// IsUTF16 reports whether a text begins as UTF-16 does.
func IsUTF16(head []byte) bool { return utf16Order(head) != nil }

func (t *text) Read(p []byte) (int, error) {
	if !t.begun {
		head, err := t.in.Peek(2)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		t.begun, t.order = true, utf16Order(head)
	}
	if t.order == nil {
		return t.in.Read(p)
	}
	for len(t.out) == 0 {
		if err := t.decode(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.out)
	t.out = t.out[n:]
	return n, nil
}

// decode sets out to the characters that are buffered, at least to one. A half of a pair, and a
// byte behind the last unit, become the replacement character.
func (t *text) decode() error {
	t.out = t.out[:0]
	if _, err := t.in.Peek(2); err != nil {
		if !errors.Is(err, io.EOF) {
			return err
		}
		if left := t.in.Buffered(); left == 0 && t.high == 0 {
			return io.EOF
		}
		_, _ = t.in.Discard(t.in.Buffered())
		t.out, t.high = utf8.AppendRune(t.out, utf8.RuneError), 0
		return nil
	}
	units, _ := t.in.Peek(t.in.Buffered() &^ 1)
	for i := 0; i < len(units); i += 2 {
		unit := rune(t.order.Uint16(units[i:]))
		switch {
		case t.high != 0:
			t.out = utf8.AppendRune(t.out, utf16.DecodeRune(t.high, unit))
			if t.high = 0; unit < 0xdc00 || unit > 0xdfff {
				i -= 2 // it is no second half, and is read again
			}
		case unit >= 0xd800 && unit < 0xdc00:
			t.high = unit
		default:
			t.out = utf8.AppendRune(t.out, unit) // of a second half alone: the replacement character
		}
	}
	_, _ = t.in.Discard(len(units))
	return nil
}

// lineEnds makes lines that end with CR, as old systems write them, end with LF.
type lineEnds struct{ r io.Reader }

func (l lineEnds) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i := range p[:n] {
		if p[i] == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// endsWithCR reports whether the start of a text has lines that end with CR alone. The start is a
// whole line of other texts, or longer than any header.
func endsWithCR(begin []byte) bool {
	return !bytes.HasSuffix(begin, []byte{'\n'}) && bytes.IndexByte(begin, '\r') >= 0
}

// floats gives rows their features from slices of many rows, so that a row needs no allocation. The
// rows of a slice keep it, about 12 KiB.
type floats struct {
	features []float32
	values   []float64
}

// floatsStep is the numbers that are allocated at a time.
const floatsStep = 1024

// take returns n features and values, which are 0 and belong to the caller.
func (f *floats) take(n int) (features []float32, values []float64) {
	if len(f.features) < n {
		f.features, f.values = make([]float32, max(n, floatsStep)), make([]float64, max(n, floatsStep))
	}
	features, values = f.features[:n:n], f.values[:n:n]
	f.features, f.values = f.features[n:], f.values[n:]
	return features, values
}
