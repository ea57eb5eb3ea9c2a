package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// rule cuts a text into the parts that merges stay inside. Its fields are where the expressions of
// the families differ. Package regexp has no lookahead, so they are written out: L is a letter, N a
// number, S a space. The alternatives are tried in order at the byte where the last part ended.
//
//	gpt2              's|'t|'re|'ve|'m|'ll|'d
//	llama3, qwen2     the same in small and large letters
//	gpt2              ' '?L+
//	llama3, qwen2     (no \r \n L N)?L+
//	gpt2              ' '?N+
//	llama3, qwen2     N, at most digits of them
//	gpt2              ' '?(no S L N)+
//	llama3, qwen2     ' '?(no S L N)+[\r\n]*
//	llama3, qwen2     S*[\r\n]+
//	all               S+(?!no S)
//	all               S+
//
// A byte that is no UTF-8 is neither letter, number nor space.
type rule struct {
	digits int // 0: all, in the rule gpt2, which regards case
}

var gpt2, llama3, qwen2 = rule{0}, rule{3}, rule{1}

// rules are the rules by the names that GGUF files have for them.
var rules = map[string]rule{
	"gpt-2": gpt2, "llama-bpe": llama3, "llama3": llama3, "llama-v3": llama3, "qwen2": qwen2,
	"deepseek-r1-qwen": qwen2,
}

// expressions are the rules by the expressions of a tokenizer.json.
var expressions = map[string]rule{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: gpt2,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`: llama3,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`: qwen2,
}

func isOther(r rune) bool   { return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
func isNewline(r rune) bool { return r == '\r' || r == '\n' }

// run returns the bytes from at on whose characters, at most most of them, are of a class.
func run(text string, at int, most int, is func(rune) bool) (n int) {
	for ; most > 0 && at+n < len(text); most-- {
		r, size := utf8.DecodeRuneInString(text[at+n:])
		if !is(r) {
			break
		}
		n += size
	}
	return n
}

// next returns the bytes of the first part of a text, which is not empty.
func (u rule) next(text string) int {
	all := len(text)
	if n := u.contraction(text); n > 0 {
		return n
	}
	first, size := utf8.DecodeRuneInString(text)
	if unicode.IsLetter(first) {
		return run(text, 0, all, unicode.IsLetter)
	}
	if first == ' ' || u.digits > 0 && !isNewline(first) && !unicode.IsNumber(first) {
		if n := run(text, size, all, unicode.IsLetter); n > 0 {
			return size + n
		}
	}
	lead := 0 // bytes of a space before others
	if first == ' ' {
		lead = 1
	}
	if u.digits > 0 {
		if n := run(text, 0, u.digits, unicode.IsNumber); n > 0 {
			return n
		}
	} else if n := run(text, lead, all, unicode.IsNumber); n > 0 {
		return lead + n
	}
	if n := run(text, lead, all, isOther); n > 0 {
		n += lead
		if u.digits > 0 {
			n += run(text, n, all, isNewline)
		}
		return n
	}
	// Only spaces are left: up to the last newline of the run; or all but the last, which belongs to
	// what follows; or all.
	n, newline, last := 0, 0, 0
	for n < all {
		r, size := utf8.DecodeRuneInString(text[n:])
		if !unicode.IsSpace(r) {
			break
		}
		n, last = n+size, size
		if isNewline(r) {
			newline = n
		}
	}
	switch {
	case u.digits > 0 && newline > 0:
		return newline
	case n < all && n > last:
		return n - last
	}
	return n
}

// contraction returns the bytes of a contraction at the start of a text. In rules without regard to
// case, ſ is an s.
func (u rule) contraction(text string) int {
	if text == "" || text[0] != '\'' {
		return 0
	}
	rest := text[1:min(len(text), 3)]
	if u.digits > 0 {
		if len(rest) == 2 && rest == "ſ" {
			return 3
		}
		small := []byte(rest)
		for i, c := range small {
			if 'A' <= c && c <= 'Z' {
				small[i] = c + 'a' - 'A'
			}
		}
		rest = string(small)
	}
	switch {
	case rest == "":
		return 0
	case rest == "re", rest == "ve", rest == "ll":
		return 3
	case rest[0] == 's', rest[0] == 't', rest[0] == 'm', rest[0] == 'd':
		return 2
	}
	return 0
}
