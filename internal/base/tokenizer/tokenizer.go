// Package tokenizer cuts a text into the tokens of a language model, and joins tokens to a text. It
// computes byte-level BPE, of a tokenizer.json (Parse) or of the keys of a GGUF file (FromGGUF), and
// the BPE of SentencePiece, of GGUF alone. Other models, rules of splitting and normalizers are
// refused by their names. A Tokenizer gives the ids that the libraries tokenizers and llama.cpp give.
package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Errors of this package.
var (
	// ErrTokenizer is a tokenizer that is damaged, beyond a limit, or of a kind that is not computed.
	ErrTokenizer = errors.New("tokenizer that cannot be used")
	// ErrText is a text of more than MaxText bytes.
	ErrText = errors.New("text is too long")
)

// Limits of a tokenizer. Memory of a Tokenizer is in proportion to the bytes of its file.
const (
	MaxText  = 16 << 20 // bytes of a text; Encode takes up to 100 bytes of memory for each
	maxSize  = 4 << 20  // tokens
	maxPiece = 4096     // bytes of a token
	maxEnds  = 64
)

// kind is what a token is for.
type kind byte

const (
	plain   kind = iota // a text becomes it by merges
	literal             // a text with its bytes becomes it, before all merges
	control             // a special token: the same, if a caller of Encode asks for it
	single              // one byte that no other token has
)

// Tokenizer holds the vocabulary of a model. It does not change, and may be used concurrently.
type Tokenizer struct {
	pieces  []string // by id: the bytes of a token, or the text of a special one
	kinds   []kind
	begin   int32 // -1: none
	ends    []int32
	added   map[string]int32 // literal and control tokens by their text
	lengths [256][]int       // of added by their first byte, the longest first
	compose bool             // a text is brought to the form NFC first

	// Of byte-level BPE.
	rule   rule
	bytes  [256]int32 // the token of each byte
	merges map[[2]int32]merged
	whole  map[string]int32 // tokens that a part of a text becomes without merges; nil: none

	// Of the BPE of SentencePiece, which is sentence. Its bytes are tokens of kind single.
	sentence bool
	prefix   bool // a space is put before a text
	ids      map[string]int32
	scores   []float32
	longest  int // bytes of a key of ids
}

// merged is the token of a pair, and the place of the pair in the list of merges.
type merged struct{ id, rank int32 }

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTokenizer, fmt.Sprintf(format, args...))
}

// Size returns the number of tokens. Ids are below it. The vocabulary of a model may be larger.
func (t *Tokenizer) Size() int { return len(t.pieces) }

// Begin returns the token before each text that the model reads. Encode does not add it.
func (t *Tokenizer) Begin() (id int32, is bool) { return t.begin, t.begin >= 0 }

// Ends returns the sorted tokens after which a text or a turn of a conversation is complete: those
// that the file names, and special tokens with one of the usual texts.
func (t *Tokenizer) Ends() []int32 { return slices.Clone(t.ends) }

// Special returns the id of the special token with a text.
func (t *Tokenizer) Special(text string) (id int32, is bool) {
	id, is = t.added[text]
	return id, is && t.kinds[id] == control
}

// Piece returns the bytes of a token, which may be a part of a character; of a special token its
// text; nil of an id that is none.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return []byte(t.pieces[id])
}

// Encode returns the tokens of a text. With special the texts of special tokens become their ids;
// without it they are text as any other, so text of a user never has a special token. Bytes that are
// no UTF-8 are kept. The pieces of the tokens are the text; but a tokenizer that composes characters
// has them composed, and one of SentencePiece puts a space before a text and behind an added token,
// and reads ▁ as a space. A text of more than MaxText bytes is an ErrText.
func (t *Tokenizer) Encode(text string, special bool) ([]int32, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w: %d bytes, of at most %d: split it", ErrText, len(text), MaxText)
	}
	var out []int32
	m := merger{t: t}
	for len(text) > 0 {
		at, id := t.find(text, special)
		out = m.segment(out, text[:at])
		if id < 0 {
			break
		}
		out = append(out, id)
		text = text[at+len(t.pieces[id]):]
	}
	return out, nil
}

// find returns the first place of a literal token, or of a special one if they are wanted, and the
// longest token there; without one the length of the text and -1.
func (t *Tokenizer) find(text string, special bool) (at int, id int32) {
	for at := range len(text) {
		for _, n := range t.lengths[text[at]] {
			if n > len(text)-at {
				continue
			}
			if id, there := t.added[text[at:at+n]]; there && (special || t.kinds[id] != control) {
				return at, id
			}
		}
	}
	return len(text), -1
}

// segment appends the tokens of a text without added tokens. In front of each one of SentencePiece
// is a space, as llama.cpp puts it.
func (m *merger) segment(out []int32, text string) []int32 {
	t := m.t
	if text == "" {
		return out
	}
	if t.sentence {
		if t.prefix {
			text = " " + text
		}
		return m.merge(out, strings.ReplaceAll(text, " ", space))
	}
	if t.compose {
		text = norm.NFC.String(text)
	}
	for len(text) > 0 {
		n := t.rule.next(text)
		if id, is := t.whole[text[:n]]; is {
			out = append(out, id)
		} else {
			out = m.merge(out, text[:n])
		}
		text = text[n:]
	}
	return out
}

// space stands for a space in the tokens of SentencePiece.
const space = "▁"

// usualEnds are texts of special tokens that end a text or a turn, in the families that are computed
// and in models of this project.
var usualEnds = []string{
	"</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>",
}

// finish fills in what follows from pieces and kinds. named are tokens of the end that the file
// names. Each added text is there once.
func (t *Tokenizer) finish(named []int32) error {
	t.added = map[string]int32{}
	for i, k := range t.kinds {
		id, text := int32(i), t.pieces[i]
		switch {
		case k != literal && k != control:
			continue
		case text == "":
			return refuse("token %d is added, and empty: remove it", id)
		}
		if other, again := t.added[text]; again {
			return refuse("tokens %d and %d have the same text %.100q: remove one", other, id, text)
		}
		t.added[text] = id
		if n := &t.lengths[text[0]]; !slices.Contains(*n, len(text)) {
			*n = append(*n, len(text))
		}
		if k == control && slices.Contains(usualEnds, text) {
			named = append(named, id)
		}
	}
	for _, n := range t.lengths {
		slices.SortFunc(n, func(a, b int) int { return b - a })
	}
	slices.Sort(named)
	if t.ends = slices.Compact(named); len(t.ends) > maxEnds {
		return refuse("%d tokens end a text: at most %d are used", len(t.ends), maxEnds)
	}
	return nil
}
