package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decoder joins the tokens of a stream to a text. It gives whole characters alone. One goroutine
// uses it.
type Decoder struct {
	t    *Tokenizer
	held []byte // the beginning of a character
	cut  bool   // the next space was put there by Encode
}

// NewDecoder returns a decoder at the start of a text.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t, cut: t.sentence && t.prefix} }

// Add returns the text that is complete with one more token. The beginning of a character waits for
// the rest of it. Bytes that are no part of a character become U+FFFD, one for each longest
// beginning of a character. Special tokens and ids that are none give nothing.
func (d *Decoder) Add(id int32) string {
	t := d.t
	if id < 0 || int(id) >= len(t.pieces) || t.kinds[id] == control {
		return ""
	}
	piece := t.pieces[id]
	if d.cut && piece != "" {
		piece, d.cut = strings.TrimPrefix(piece, " "), false
	}
	d.held = append(d.held, piece...)
	return d.take(false)
}

// Flush returns what is left at the end of a text: U+FFFD for the beginning of a character, or
// nothing.
func (d *Decoder) Flush() string { return d.take(true) }

// take removes all complete characters from held; at the end of a text, all bytes.
func (d *Decoder) take(end bool) string {
	var b strings.Builder
	rest := d.held
	for len(rest) > 0 && (end || utf8.FullRune(rest)) {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 {
			for n < len(rest) && !utf8.FullRune(rest[:n+1]) {
				n++
			}
		}
		b.WriteRune(r)
		rest = rest[n:]
	}
	d.held = append(d.held[:0], rest...)
	return b.String()
}
