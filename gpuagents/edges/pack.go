package edges

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// The first byte of a packed list.
const (
	packed         = 1 // its version
	packedWeighted = 2 // the same, with weights
	packedDelayed  = 3 // the same, with delays too
)

// Pack returns the list as text: the differences of the sorted edges as variable-length numbers,
// compressed, in base64. Equal lists have equal texts.
func (l *List) Pack() string {
	head := byte(packed)
	if l.Weighted {
		head = packedWeighted
	}
	weighted, delayed := l.Weighted, l.Longest > 1 // a list with delays has weights
	if delayed {
		head, weighted = packedDelayed, true
	}
	b := binary.AppendUvarint([]byte{head}, uint64(len(l.Edges)))
	last := Edge{}
	for _, e := range l.Edges {
		b = binary.AppendUvarint(b, uint64(e.To-last.To))
		if e.To != last.To {
			last.From = 0
		}
		b = binary.AppendUvarint(b, uint64(e.From-last.From))
		if weighted {
			b = binary.AppendVarint(b, int64(e.Weight))
		}
		if delayed {
			b = append(b, e.Delay)
		}
		last = e
	}
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.DefaultCompression) // the level is valid
	_, _ = w.Write(b)                                       // a bytes.Buffer takes everything
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// Unpack reads what Pack has made, with at most most edges. The error is an ErrInvalid.
func Unpack(text string, most int) (*List, error) {
	bad := func(what string) (*List, error) {
		return nil, fmt.Errorf("%w: packed edges: %s: make the swarm anew from its file", ErrInvalid, what)
	}
	small, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return bad("no base64")
	}
	limit := 20 + 20*int64(most) // of the longest numbers
	b, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(small)), limit+1))
	if err != nil || int64(len(b)) > limit {
		return bad("they cannot be read, or are too many")
	}
	if len(b) == 0 || b[0] < packed || b[0] > packedDelayed {
		return bad("of another version")
	}
	weighted, delayed := b[0] >= packedWeighted, b[0] == packedDelayed
	b = b[1:]
	next := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	count, ok := next()
	if !ok || count > uint64(most) || count > uint64(len(b)) {
		return bad("a number of edges that is not theirs")
	}
	all := make([]Edge, 0, count)
	last := Edge{}
	for range count {
		to, ok := next()
		from, alsoOK := next()
		e := Edge{Weight: WeightOne, Delay: 1}
		switch {
		case !ok || !alsoOK || to > math.MaxUint32-1 || from > math.MaxUint32-1:
			return bad("an end is missing or too large")
		case to != 0:
			last.From = 0
		}
		if to, from = to+uint64(last.To), from+uint64(last.From); to >= math.MaxUint32 || from >= math.MaxUint32 {
			return bad("an agent is too large")
		}
		e.To, e.From = uint32(to), uint32(from)
		if weighted {
			v, n := binary.Varint(b)
			if n <= 0 || v > MaxWeight*WeightOne || v < -MaxWeight*WeightOne {
				return bad("a weight is missing or too large")
			}
			b, e.Weight = b[n:], int32(v)
		}
		if delayed {
			if len(b) == 0 || b[0] < 1 || b[0] > MaxDelay {
				return bad("a delay is missing or too large")
			}
			b, e.Delay = b[1:], b[0]
		}
		all, last = append(all, e), e
	}
	if len(b) > 0 {
		return bad("bytes behind the last one")
	}
	return newList(all, weighted), nil
}
