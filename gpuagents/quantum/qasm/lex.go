package qasm

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a word of a text with its place: line and column from 1, in characters.
type token struct {
	kind         byte // 'i' identifier, 'n' number, 's' string, 'o' operator, 0 end
	text         string
	value        float64 // of a number
	line, column int
}

// operators, the longest first.
var operators = []string{
	"->", "==", "!=", "**", "++", "&&", "||", "<=", ">=", "<<", ">>", "+", "-", "*", "/", "%", "^", "=", "!", "<", ">",
	"&", "|", "~", "(", ")", "[", "]", "{", "}", ",", ";", ":", "@", "$", "#", ".",
}

// lexer divides a text into tokens.
type lexer struct {
	rest         string
	line, column int
}

// lex returns the tokens of a text; the last one is its end.
func lex(text string) ([]token, error) {
	l := lexer{rest: text, line: 1, column: 1}
	if len(text) > MaxText {
		return nil, fail(token{line: 1, column: 1}, "the text has %d bytes; give at most %d", len(text), MaxText)
	}
	var all []token
	for {
		if err := l.skip(); err != nil {
			return nil, err
		}
		t := token{line: l.line, column: l.column}
		if l.rest == "" {
			t.text = "the end of the text"
			return append(all, t), nil
		}
		size, err := l.scan(&t)
		if err != nil {
			return nil, err
		}
		l.advance(size)
		all = append(all, t)
	}
}

// advance moves over n bytes.
func (l *lexer) advance(n int) {
	for _, r := range l.rest[:n] {
		l.column++
		if r == '\n' {
			l.line, l.column = l.line+1, 1
		}
	}
	l.rest = l.rest[n:]
}

// skip moves over spaces and comments.
func (l *lexer) skip() error {
	for {
		n := len(l.rest) - len(strings.TrimLeft(l.rest, " \t\r\n"))
		switch {
		case n > 0:
		case strings.HasPrefix(l.rest, "//"):
			if n = strings.IndexByte(l.rest, '\n'); n < 0 {
				n = len(l.rest)
			}
		case strings.HasPrefix(l.rest, "/*"):
			end := strings.Index(l.rest[2:], "*/")
			if end < 0 {
				return fail(token{line: l.line, column: l.column}, `the comment has no end; close it with "*/"`)
			}
			n = end + 4
		default:
			return nil
		}
		l.advance(n)
	}
}

// scan sets the kind and the text of the token that l.rest begins with, and returns its size.
func (l *lexer) scan(t *token) (size int, err error) {
	first, _ := utf8.DecodeRuneInString(l.rest)
	switch {
	case first == utf8.RuneError:
		return 0, fail(*t, "the text is not UTF-8 here; save it as UTF-8")
	case isLetter(first):
		t.kind = 'i'
		size = strings.IndexFunc(l.rest, func(r rune) bool { return !isLetter(r) && !isDigit(r) })
		if size < 0 {
			size = len(l.rest)
		}
		t.text = l.rest[:size]
		return size, nil
	case isDigit(first) || first == '.' && len(l.rest) > 1 && isDigit(rune(l.rest[1])):
		t.kind = 'n'
		for size < len(l.rest) {
			c := rune(l.rest[size])
			if !isDigit(c) && !isLetter(c) && c != '.' &&
				(c != '+' && c != '-' || l.rest[size-1] != 'e' && l.rest[size-1] != 'E') {
				break
			}
			size++
		}
		t.text = l.rest[:size]
		t.value, err = strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil || strings.ContainsAny(t.text, "xXpP") {
			return 0, fail(*t, "%.40q is no number; write it with decimal digits", t.text)
		}
		return size, nil
	case first == '"':
		end := strings.IndexAny(l.rest[1:], "\"\n")
		if end < 0 || l.rest[end+1] == '\n' {
			return 0, fail(*t, `the string has no end; close it with '"'`)
		}
		t.kind, t.text = 's', l.rest[1:end+1]
		return end + 2, nil
	}
	for _, o := range operators {
		if strings.HasPrefix(l.rest, o) {
			t.kind, t.text = 'o', o
			return len(o), nil
		}
	}
	return 0, fail(*t, "%q is no character of OpenQASM; remove it", first)
}

// isLetter takes letters of all scripts, as parameters are named by Greek ones.
func isLetter(r rune) bool { return r == '_' || unicode.IsLetter(r) }

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
