package generation

import (
	"crypto/sha256"
	"encoding/binary"
)

// block is the number of tokens of a block, whose digest covers all tokens before it too. A known
// beginning that is shorter by less than a block is not forked.
const block = 32

type digest [16]byte

// chain returns the digests of the whole blocks of tokens. The first digests of have, which belong
// to the same tokens, are not computed again.
func chain(have []digest, tokens []int32) []digest {
	data := make([]byte, 0, 4*block+len(digest{}))
	for n := len(have); (n+1)*block <= len(tokens); n++ {
		data = data[:0]
		if n > 0 {
			data = append(data, have[n-1][:]...)
		}
		for _, t := range tokens[n*block : (n+1)*block] {
			data = binary.LittleEndian.AppendUint32(data, uint32(t))
		}
		sum := sha256.Sum256(data)
		have = append(have, digest(sum[:16]))
	}
	return have
}

// prefixes finds agents by the beginnings of what they have read.
type prefixes map[digest]map[*place]struct{}

// update makes the index agree with the tokens that p has read.
func (x prefixes) update(p *place) {
	keep := 0
	for limit := p.read / block; keep < min(limit, len(p.chain)) && p.same >= (keep+1)*block; {
		keep++
	}
	for _, d := range p.chain[keep:] {
		delete(x[d], p)
		if len(x[d]) == 0 {
			delete(x, d)
		}
	}
	p.chain = chain(p.chain[:keep], p.tokens[:p.read])
	for _, d := range p.chain[keep:] {
		if x[d] == nil {
			x[d] = map[*place]struct{}{}
		}
		x[d][p] = struct{}{}
	}
	p.same = p.read
}

// longest returns an agent that may be asked, and has read the most whole blocks at the beginning
// of tokens; nil if there is none with a block.
func (x prefixes) longest(tokens []int32, may func(*place) bool) (best *place) {
	for _, d := range chain(nil, tokens) {
		var deeper *place
		for p := range x[d] {
			// The smallest number, so that the choice does not depend on the order of a map.
			if may(p) && (deeper == nil || p.id < deeper.id) {
				deeper = p
			}
		}
		if deeper == nil {
			break
		}
		best = deeper
	}
	return best
}

// common returns how many tokens are the same at the beginning.
func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
