package tokenizer

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// Types of tokens of a GGUF file.
const (
	typePlain   = 1
	typeUnknown = 2
	typeControl = 3
	typeUser    = 4
	typeUnused  = 5
	typeByte    = 6
)

const at = "tokenizer.ggml." // the beginning of all keys of a tokenizer

// keys reads the keys of a file, and keeps the first error.
type keys struct {
	f   *gguf.File
	err error
}

// value returns the value of a key; without it the default.
func value[T any](k *keys, key string, otherwise T) T {
	v, err := k.f.Get(at + key)
	if err != nil && k.err == nil {
		k.err = refuse("%v", err)
	}
	if v == nil || k.err != nil {
		return otherwise
	}
	of, is := v.(T)
	if !is {
		k.err = refuse("key %s%s has the type %T: %T is expected", at, key, v, otherwise)
	}
	return of
}

// token returns the token that a key names, of n; -1 without the key.
func (k *keys) token(key string, n int) int32 {
	id := value[uint64](k, key, math.MaxUint64)
	if id == math.MaxUint64 {
		return -1
	}
	if id >= uint64(n) && k.err == nil {
		k.err = refuse("key %s%s is %d, of %d tokens", at, key, id, n)
		return -1
	}
	return int32(id)
}

// FromGGUF reads the keys of a tokenizer in a GGUF file: of the model gpt2, byte-level BPE, or llama,
// BPE of SentencePiece. The error is an ErrTokenizer with the key at fault.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	k := &keys{f: f}
	family := value(k, "model", "")
	switch {
	case k.err != nil:
		return nil, k.err
	case family == "":
		return nil, refuse("key %smodel is missing: the file has no tokenizer", at)
	case family != "gpt2" && family != "llama":
		return nil, refuse("key %smodel: %.100q: gpt2 and llama are computed", at, family)
	}
	t := &Tokenizer{sentence: family == "llama"}
	tokens := value[[]string](k, "tokens", nil)
	types := value[[]int32](k, "token_type", nil)
	n := len(tokens)
	ends := []int32{k.token("eos_token_id", n), k.token("eot_token_id", n), k.token("eom_token_id", n)}
	ends = slices.DeleteFunc(ends, func(id int32) bool { return id < 0 })
	begin := k.token("bos_token_id", n)
	if t.begin = begin; !value(k, "add_bos_token", t.sentence || rules[value(k, "pre", "")] == llama3) {
		t.begin = -1
	}
	switch {
	case k.err != nil:
		return nil, k.err
	case n == 0 || n > maxSize:
		return nil, refuse("key %stokens: %d tokens: use 1 to %d", at, n, maxSize)
	case types != nil && len(types) != n:
		return nil, refuse("key %stoken_type: %d types of %d tokens", at, len(types), n)
	}
	t.pieces, t.kinds = tokens, make([]kind, n)
	for i, of := range types {
		switch of {
		case typePlain, typeUnused:
		case typeControl, typeUnknown:
			t.kinds[i] = control
		case typeUser:
			t.kinds[i] = literal
		case typeByte:
			t.kinds[i] = single
		default:
			return nil, refuse("key %stoken_type: type %d of token %d: 1 to 6 are known", at, of, i)
		}
	}
	for _, id := range append(slices.Clone(ends), begin) {
		if id >= 0 {
			t.kinds[id] = control
		}
	}
	ids := make(map[string]int, n)
	for i, text := range tokens {
		if len(text) > maxPiece {
			return nil, refuse("key %stokens: token %d has %d bytes: at most %d are read", at, i, len(text), maxPiece)
		}
		if t.kinds[i] != plain && (!t.sentence || t.kinds[i] != single) {
			continue
		}
		if other, again := ids[text]; again {
			return nil, refuse("key %stokens: tokens %d and %d are both %.100q", at, other, i, text)
		}
		ids[text] = i
	}
	var err error
	if t.sentence {
		err = t.sentencePiece(k, ids)
	} else {
		err = t.byteLevel(k, ids)
	}
	if err != nil {
		return nil, err
	}
	return t, t.finish(ends)
}

// byteLevel reads the keys of the model gpt2.
func (t *Tokenizer) byteLevel(k *keys, ids map[string]int) error {
	pre, known := value(k, "pre", ""), false
	if t.rule, known = rules[pre]; !known && k.err == nil {
		return refuse("key %spre: %.100q: the rules gpt-2, llama-bpe and qwen2 are computed", at, pre)
	}
	texts := value[[]string](k, "merges", nil)
	if value(k, "add_space_prefix", false) {
		return refuse("key %sadd_space_prefix: a space before a text is not computed for gpt2", at)
	}
	if k.err != nil {
		return k.err
	}
	merges := make([]both, len(texts))
	for i, text := range texts {
		left, right, is := strings.Cut(text, " ")
		if !is {
			return refuse("key %smerges: merge %d is %.100q: two tokens with a space between are expected", at, i, text)
		}
		merges[i] = both{left, right}
	}
	t.pieces = slices.Clone(t.pieces)
	for text, id := range ids {
		if raw, is := unmap(text); is {
			t.pieces[id] = raw
		}
	}
	return t.learn(ids, merges, t.rule == llama3)
}

// sentencePiece reads the keys of the model llama.
func (t *Tokenizer) sentencePiece(k *keys, ids map[string]int) error {
	t.scores = value[[]float32](k, "scores", nil)
	t.prefix = value(k, "add_space_prefix", true)
	switch {
	case k.err != nil:
		return k.err
	case len(t.scores) != len(t.pieces):
		return refuse("key %sscores: %d scores of %d tokens", at, len(t.scores), len(t.pieces))
	case slices.ContainsFunc(t.scores, func(v float32) bool { return v != v }):
		return refuse("key %sscores: a score is no number", at)
	case value(k, "remove_extra_whitespaces", false):
		return refuse("key %sremove_extra_whitespaces: it is not computed: texts keep their spaces", at)
	}
	t.pieces, t.ids = slices.Clone(t.pieces), make(map[string]int32, len(ids))
	for b := range t.bytes {
		text := "<0x" + strings.ToUpper(strconv.FormatUint(uint64(b)+256, 16)[1:]) + ">"
		id, is := ids[text]
		if !is || t.kinds[id] != single {
			return refuse("key %stokens: the byte %#02x has no token %s of the type byte", at, b, text)
		}
		t.bytes[b], t.pieces[id] = int32(id), string([]byte{byte(b)})
	}
	for text, id := range ids {
		if t.kinds[id] == plain {
			t.ids[text], t.longest = int32(id), max(t.longest, len(text))
			t.pieces[id] = strings.ReplaceAll(text, space, " ")
		}
	}
	return k.err
}
