package tokenizer

import "unicode/utf8"

// merger merges the symbols of a text: it takes the pair with the least rank, or the largest score,
// and of equal ones the first, until no pair is a token. The work is n log n in the bytes of a text.
// One goroutine uses it.
type merger struct {
	t       *Tokenizer
	text    string
	symbols []symbol
	pairs   pairs
}

// symbol is a run of bytes of the text that is one token, or a character that is none.
type symbol struct {
	at, before, next int32 // its first byte; the symbols before and behind, -1 and len(symbols) at the ends
	id               int32 // -1: no token
}

// pair is a pair of symbols that may be merged. It is out of date if one of both has grown, or is
// gone: then the bytes of the symbols are others.
type pair struct {
	rank      float64
	left      int32 // the index of the symbol
	right, to int32 // the first byte of the second symbol, and the byte behind it
	id        int32 // of the token
}

// pairs is a heap of pairs, the first to merge at the top. Package container/heap would allocate for
// each pair.
type pairs []pair

// before reports whether pair i is merged before pair k.
func (p pairs) before(i, k int) bool {
	return p[i].rank < p[k].rank || p[i].rank == p[k].rank && p[i].left < p[k].left
}

func (p *pairs) push(v pair) {
	h := append(*p, v)
	for i := len(h) - 1; i > 0 && h.before(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	*p = h
}

func (p *pairs) pop() pair {
	h := *p
	first, n := h[0], len(h)-1
	h[0], h = h[n], h[:n]
	for i := 0; 2*i+1 < n; {
		k := 2*i + 1
		if k+1 < n && h.before(k+1, k) {
			k++
		}
		if !h.before(k, i) {
			break
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
	*p = h
	return first
}

// merge appends the tokens of a text that is not cut any further.
func (m *merger) merge(out []int32, text string) []int32 {
	m.text, m.symbols, m.pairs = text, m.symbols[:0], m.pairs[:0]
	for at := 0; at < len(text); {
		s := symbol{at: int32(at), before: int32(len(m.symbols)) - 1, next: int32(len(m.symbols)) + 1}
		n := 1
		if m.t.sentence {
			_, n = utf8.DecodeRuneInString(text[at:])
			s.id = m.t.id(text[at : at+n])
		} else {
			s.id = m.t.bytes[text[at]]
		}
		m.symbols = append(m.symbols, s)
		at += n
	}
	for i := range m.symbols {
		if p, is := m.pair(int32(i)); is {
			m.pairs.push(p)
		}
	}
	for len(m.pairs) > 0 {
		p := m.pairs.pop()
		left := &m.symbols[p.left]
		if left.at < 0 || m.end(left.next) != p.right {
			continue
		}
		right := &m.symbols[left.next]
		if m.end(right.next) != p.to {
			continue
		}
		left.id, left.next, right.at = p.id, right.next, -1
		if int(left.next) < len(m.symbols) {
			m.symbols[left.next].before = p.left
		}
		for _, i := range []int32{left.before, p.left} {
			if next, is := m.pair(i); is {
				m.pairs.push(next)
			}
		}
	}
	for i := int32(0); int(i) < len(m.symbols); i = m.symbols[i].next {
		s := m.symbols[i]
		if s.id >= 0 {
			out = append(out, s.id)
			continue
		}
		for _, b := range []byte(text[s.at:m.end(s.next)]) {
			out = append(out, m.t.bytes[b])
		}
	}
	return out
}

// end returns the first byte of a symbol, or the end of the text.
func (m *merger) end(next int32) int32 {
	if int(next) == len(m.symbols) {
		return int32(len(m.text))
	}
	return m.symbols[next].at
}

// pair returns the pair that begins with symbol i, and whether it is a token.
func (m *merger) pair(i int32) (p pair, is bool) {
	if i < 0 || int(m.symbols[i].next) >= len(m.symbols) {
		return pair{}, false
	}
	left := m.symbols[i]
	right := m.symbols[left.next]
	p = pair{left: i, right: right.at, to: m.end(right.next)}
	if m.t.sentence {
		p.id = m.t.id(m.text[left.at:p.to])
		if p.id < 0 {
			return pair{}, false
		}
		p.rank = -float64(m.t.scores[p.id])
		return p, true
	}
	to, is := m.t.merges[[2]int32{left.id, right.id}]
	p.id, p.rank = to.id, float64(to.rank)
	return p, is
}

// id returns the token of SentencePiece with a text; -1: none.
func (t *Tokenizer) id(text string) int32 {
	if len(text) <= t.longest {
		if id, is := t.ids[text]; is {
			return id
		}
	}
	return -1
}
