package expr

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of a text.
const (
	MaxText  = 64 << 10 // bytes
	MaxDepth = 200      // nested operators, calls and parentheses
)

// token is a word of a text. Its place is a byte offset from 0, which errors have too.
type token struct {
	kind  byte // 'i' identifier, 'n' number, 'o' operator, 0 end
	text  string
	at    int
	value float64
}

// operators, the longest first.
var operators = []string{
	":=", "||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "+", "-", "*", "/", "%", "&", "|", "^", "<", ">", "!", "(",
	")", ",", ";", "=",
}

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// lex returns the tokens of a text; the last one is its end, so that a parser may always look at
// one.
func lex(text string) ([]token, error) {
	if len(text) > MaxText {
		return nil, &SyntaxError{
			0,
			fmt.Sprintf("the text has %d bytes: use at most %d", len(text), MaxText),
			ErrLimit,
		}
	}
	var all []token
	for at := 0; ; {
		for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
		}
		if at == len(text) {
			return append(all, token{at: at}), nil
		}
		t := token{at: at}
		switch c := text[at]; {
		case isLetter(c):
			for at < len(text) && (isLetter(text[at]) || isDigit(text[at])) {
				at++
			}
			t.kind, t.text = 'i', text[t.at:at]
		case isDigit(c) || c == '.' && at+1 < len(text) && isDigit(text[at+1]):
			for at < len(text) && (isLetter(text[at]) || isDigit(text[at]) || text[at] == '.' ||
				(text[at] == '+' || text[at] == '-') && (text[at-1] == 'e' || text[at-1] == 'E') &&
					!strings.HasPrefix(text[t.at:], "0x")) {
				at++
			}
			t.kind, t.text = 'n', text[t.at:at]
			var err error
			if t.value, err = number(t.text); err != nil {
				return nil, &SyntaxError{t.at, fmt.Sprintf("%.40q is no number", t.text), nil}
			}
		default:
			for _, o := range operators {
				if strings.HasPrefix(text[at:], o) {
					t.kind, t.text = 'o', o
					break
				}
			}
			if t.kind == 0 {
				return nil, &SyntaxError{at, fmt.Sprintf("unexpected %.8q", text[at:]), nil}
			}
			at += len(t.text)
		}
		all = append(all, t)
	}
}

// number returns the value of a number: hexadecimal digits behind 0x, of 32 bits at most, or a
// float.
func number(text string) (float64, error) {
	if strings.HasPrefix(text, "0x") {
		v, err := strconv.ParseUint(text[2:], 16, 32)
		return float64(v), err
	}
	return strconv.ParseFloat(strings.ReplaceAll(text, "_", "?"), 64)
}

// syntax is a node of the tree of a text. Names and types are not checked yet.
type syntax struct {
	kind byte   // 'i' input or local, 'n' number, 'o' operator, 'c' call
	name string // of the operator, the function or the value
	num  float64
	args []*syntax
	at   int
}

// statement is "name = tree", "name := tree" or "tree", with a condition.
type statement struct {
	name  string // empty for a tree alone
	local bool
	at    int
	tree  *syntax
	where *syntax
	by    string // the values by which results are grouped; only swarms have it
}

// parser makes statements of tokens, by precedence of operators. depth bounds the recursion: a text
// of any content ends with a tree or an error, and does not exhaust the stack.
type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) peek() token { return p.tokens[p.at] }

// take returns the next token if it has the text.
func (p *parser) take(text string) bool {
	t := p.peek()
	if (t.kind == 'o' || t.kind == 'i') && t.text == text {
		p.at++
		return true
	}
	return false
}

func (p *parser) expected(what string) error {
	t := p.peek()
	found := "the end"
	if t.kind != 0 {
		found = fmt.Sprintf("%.40q", t.text)
	}
	return &SyntaxError{t.at, "expected " + what + ", found " + found, nil}
}

func statements(text string) ([]statement, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	var all []statement
	for {
		for p.take(";") {
		}
		if p.peek().kind == 0 {
			break
		}
		s := statement{at: p.peek().at}
		if next := p.tokens[min(p.at+1, len(tokens)-1)]; p.peek().kind == 'i' &&
			(next.text == "=" || next.text == ":=") {
			s.name, s.local = p.peek().text, next.text == ":="
			p.at += 2
		}
		if s.tree, err = p.tree(0); err != nil {
			return nil, err
		}
		for {
			if s.by == "" && p.take("by") {
				if p.peek().kind != 'i' {
					return nil, p.expected("a name behind by")
				}
				s.by = p.peek().text
				p.at++
			} else if s.where == nil && p.take("where") {
				if s.where, err = p.tree(0); err != nil {
					return nil, err
				}
			} else {
				break
			}
		}
		all = append(all, s)
		if !p.take(";") && p.peek().kind != 0 {
			return nil, p.expected("an operator or the end")
		}
	}
	if len(all) == 0 {
		return nil, &SyntaxError{0, "the text is empty", nil}
	}
	return all, nil
}

// levels are the binary operators by precedence, as in Go.
var levels = map[string]int{
	"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4, "|": 4, "^": 4, "*": 5,
	"/": 5, "%": 5, "<<": 5, ">>": 5, "&": 5,
}

// deeper counts the depth of the tree; the caller subtracts 1 later.
func (p *parser) deeper() error {
	if p.depth++; p.depth > MaxDepth {
		return &SyntaxError{p.peek().at, fmt.Sprintf("more than %d levels", MaxDepth), ErrLimit}
	}
	return nil
}

// tree parses binary operators of a level above least. Operators of one level are grouped from the
// left.
func (p *parser) tree(least int) (*syntax, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	left, err := p.unary()
	if err != nil {
		return nil, err
	}
	for chain := 0; ; chain++ {
		t := p.peek()
		level := levels[t.text]
		if t.kind != 'o' || level <= least {
			return left, nil
		}
		if chain >= MaxNodes { // a chain of one level is as deep as it is long
			return nil, &SyntaxError{t.at, "too many operators", ErrLimit}
		}
		p.at++
		right, err := p.tree(level)
		if err != nil {
			return nil, err
		}
		left = &syntax{kind: 'o', name: t.text, args: []*syntax{left, right}, at: t.at}
	}
}

// unary parses prefix operators, and a number, a name, a call or parentheses behind them.
func (p *parser) unary() (*syntax, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	t := p.peek()
	for _, o := range []string{"-", "!", "^", "+"} {
		if p.take(o) {
			of, err := p.unary()
			if err != nil {
				return nil, err
			}
			return &syntax{kind: 'o', name: o, args: []*syntax{of}, at: t.at}, nil
		}
	}
	p.at++
	switch {
	case t.kind == 'n':
		return &syntax{kind: 'n', num: t.value, name: t.text, at: t.at}, nil
	case t.kind == 'o' && t.text == "(":
		of, err := p.tree(0)
		if err == nil && !p.take(")") {
			err = p.expected(`")"`)
		}
		return of, err
	case t.kind != 'i':
		p.at--
		return nil, p.expected("a value")
	case !p.take("("):
		return &syntax{kind: 'i', name: t.text, at: t.at}, nil
	}
	call := &syntax{kind: 'c', name: t.text, at: t.at}
	for !p.take(")") {
		if len(call.args) > 0 && !p.take(",") {
			return nil, p.expected(`"," or ")"`)
		}
		arg, err := p.tree(0)
		if err != nil {
			return nil, err
		}
		call.args = append(call.args, arg)
	}
	return call, nil
}
