package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// sentenceKeys are the keys of a tokenizer of SentencePiece: unknown, begin and end, all bytes, and
// words whose scores are their places.
func sentenceKeys() []gguf.Pair {
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{typeUnknown, typeControl, typeControl}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, typeByte)
	}
	words := strings.Fields("▁t he ▁the in er ▁a ed ▁▁ ▁▁▁▁ on ▁in ing ▁w ▁wor ld ▁world or ing. é 中 ▁ e t a o i n h " +
		"r w d g l .")
	for _, word := range words {
		tokens, types = append(tokens, word), append(types, typePlain)
	}
	tokens, types = append(tokens, "<tool>"), append(types, typeUser)
	scores := make([]float32, len(tokens))
	for i := range words {
		scores[259+i] = float32(-i)
	}
	return []gguf.Pair{
		{Key: at + "model", Value: "llama"},
		{Key: at + "tokens", Value: tokens},
		{Key: at + "token_type", Value: types},
		{Key: at + "scores", Value: scores},
		{Key: at + "bos_token_id", Value: uint32(1)},
		{Key: at + "eos_token_id", Value: uint32(2)},
		{Key: at + "unknown_token_id", Value: uint32(0)},
	}
}

// sentence returns a tokenizer of sentenceKeys and of keys in place of some, or beside them.
func sentence(tb testing.TB, more []gguf.Pair) *Tokenizer {
	tb.Helper()
	f, err := open(write(tb, with(sentenceKeys(), more)))
	var t *Tokenizer
	if err == nil {
		t, err = FromGGUF(f)
	}
	if err != nil {
		tb.Fatalf("FromGGUF: %v, want no error", err)
	}
	return t
}

// with returns keys with some in place of keys of the same name. A nil value removes a key.
func with(keys, more []gguf.Pair) (all []gguf.Pair) {
	for _, p := range keys {
		if !slices.ContainsFunc(more, func(of gguf.Pair) bool { return of.Key == p.Key }) {
			all = append(all, p)
		}
	}
	for _, p := range more {
		if p.Value != nil {
			all = append(all, p)
		}
	}
	return all
}

// TestSentence: BPE of SentencePiece by hand: the largest score first, bytes for characters that are
// no tokens, and a space before a text and behind an added token.
func TestSentence(t *testing.T) {
	tok := sentence(t, nil)
	for _, of := range []struct {
		text    string
		special bool
		want    string // pieces, apart
		back    string
	}{
		{"the world", false, " the| world", "the world"},
		{"the", false, " the", "the"},
		{" the", false, " | the", " the"},
		{"then", false, " the|n", "then"},
		{"\nthe", false, " |\n|t|he", "\nthe"},
		{"ß", false, " |\xc3|\x9f", "ß"},
		{"é中", false, " |é|中", "é中"},
		{"a<tool>the", false, " a|<tool>| the", "a<tool> the"},
		{"a</s>", false, " a|<|/|s|>", "a</s>"},
		{"a</s>the", true, " a|</s>| the", "a the"},
		{"", false, "", ""},
	} {
		ids := encode(t, tok, of.text, of.special)
		if got := strings.Join(quoted(tok, ids), "|"); got != of.want {
			t.Errorf("Encode of %q: %q, want %q", of.text, got, of.want)
		}
		if got := decode(tok, ids); got != of.back {
			t.Errorf("Decoder of %q: %q, want %q", of.text, got, of.back)
		}
	}
	if id, is := tok.Begin(); id != 1 || !is {
		t.Errorf("Begin: %d, %v, want 1", id, is)
	}
	bare := sentence(t, []gguf.Pair{
		{Key: at + "add_space_prefix", Value: false}, {Key: at + "add_bos_token", Value: false},
	})
	if got := strings.Join(quoted(bare, encode(t, bare, "the", false)), "|"); got != "t|he" {
		t.Errorf("Encode without a space before the text: %q, want t|he", got)
	}
	if _, is := bare.Begin(); is {
		t.Error("Begin: there is one, and add_bos_token is false")
	}
}

// member returns a tokenizer.json of testdata with one member changed, by a path.
func member(tb testing.TB, value any, path ...string) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/llama3.json")
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		tb.Fatal(err)
	}
	in := all
	for _, key := range path[:len(path)-1] {
		in = in[key].(map[string]any)
	}
	in[path[len(path)-1]] = value
	if data, err = json.Marshal(all); err != nil {
		tb.Fatal(err)
	}
	return data
}

type object = map[string]any

// TestRefused: what is not computed is refused by its name, with a cure.
func TestRefused(t *testing.T) {
	level := func(use bool) object { return object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": use} }
	split := func(expression string) object {
		return object{"type": "Split", "pattern": object{"Regex": expression}, "behavior": "Isolated"}
	}
	sequence := func(of ...any) object { return object{"type": "Sequence", "pretokenizers": of} }
	added := func(more object) []object {
		a := object{"id": 901, "content": "<x>", "special": true}
		for key, value := range more {
			a[key] = value
		}
		return []object{{"id": 0, "content": "<|begin|>", "special": true}, a}
	}
	for _, of := range []struct {
		data []byte
		want string
	}{
		{nil, "tokenizer.json: "},
		{[]byte("[]"), "tokenizer.json: "},
		{[]byte("{}"), "tokenizer.json: model: "},
		{[]byte(`{"model":{"type":"BPE","vocab":{"a":0,"a":1}}}`), `token "a" is there twice`},
		{[]byte(`{"model":{"type":"BPE","vocab":{"a":7}}}`), `token "a" has the id 7`},
		{[]byte(`{"model":{"type":"BPE","vocab":{"a":-1}}}`), `token "a" has the id -1`},
		{[]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":0}}}`), "have the same id 0"},
		{[]byte(`{"model":{"type":"BPE","vocab":{"a":0}}}`), "the byte 0x00 has no token"},
		{[]byte(`{"model":{"type":"BPE","vocab":{},"merges":[["a"]]}}`), "two tokens are expected"},
		{[]byte(`{"model":{"type":"BPE","vocab":{},"merges":["a b c"]}}`), "two tokens are expected"},
		{member(t, "Unigram", "model", "type"), `"Unigram": BPE is computed: convert the model to GGUF`},
		{member(t, true, "model", "byte_fallback"), "byte_fallback: BPE of SentencePiece is read from GGUF"},
		{member(t, 0.1, "model", "dropout"), "dropout 0.1: set it to null"},
		{member(t, "</w>", "model", "end_of_word_suffix"), "end_of_word_suffix"},
		{member(t, 1, "model", "depth"), `unknown field "depth"`},
		{member(t, []any{[]string{"a", "x"}, []string{"a", "x"}}, "model", "merges"), "the vocabulary lacks one"},
		{member(t, []any{[]string{"r", "e"}, []string{"r", "e"}}, "model", "merges"), "is there twice"},
		{member(t, object{"type": "Lowercase"}, "normalizer"), `normalizer "Lowercase": NFC or none`},
		{member(t, object{"type": "Metaspace"}, "pre_tokenizer"), `pre_tokenizer "Metaspace"`},
		{member(t, nil, "pre_tokenizer"), "the expressions of gpt2, llama3 and qwen2"},
		{member(t, sequence(split(`\d`), level(false)), "pre_tokenizer"), `Split by "\\d"`},
		{member(t, sequence(split(`\d`), level(true)), "pre_tokenizer"), "two expressions"},
		{member(t, sequence(level(true), level(true)), "pre_tokenizer"), `pre_tokenizer "ByteLevel" at this place`},
		{member(t, sequence(sequence(sequence(level(true)))), "pre_tokenizer"), "sequences of sequences of sequences"},
		{member(t, object{"type": "ByteLevel", "add_prefix_space": true}, "pre_tokenizer"), "set it to false"},
		{member(t, object{"type": "WordPiece"}, "decoder"), `decoder "WordPiece"`},
		{member(t, object{"type": "BertProcessing"}, "post_processor"), `post_processor "BertProcessing"`},
		{
			member(t, object{
				"type": "TemplateProcessing", "special_tokens": object{"x": object{"ids": []int{1}}},
				"single": []object{{"Sequence": object{}}, {"SpecialToken": object{"id": "x"}}},
			}, "post_processor"), `token "x" behind a text`,
		},
		{
			member(t, object{"type": "TemplateProcessing", "single": []object{{"SpecialToken": object{"id": "x"}}}},
				"post_processor"), `token "x": one token of the vocabulary`,
		},
		{member(t, added(object{"lstrip": true}), "added_tokens"), "lstrip, rstrip and single_word"},
		{member(t, added(object{"id": 7}), "added_tokens"), "the vocabulary says otherwise"},
		{member(t, added(nil), "added_tokens"), "id 900 has no token"},
		{member(t, added(object{"id": 900, "content": ""}), "added_tokens"), "token 900 is added, and empty"},
		{member(t, added(object{"id": 900, "content": strings.Repeat("x", 5000)}), "added_tokens"), "5000 bytes"},
		{member(t, added(object{"id": 1 << 40}), "added_tokens"), "ids of 902 tokens are below that"},
	} {
		_, err := Parse(of.data)
		if !errors.Is(err, ErrTokenizer) || !strings.Contains(err.Error(), of.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse: %v, want an ErrTokenizer with %q", err, of.want)
		}
	}
}

// TestRefusedKeys: the same for the keys of a GGUF file.
func TestRefusedKeys(t *testing.T) {
	bytes := ggufOf(t, "gpt2")
	for _, of := range []struct {
		keys  []gguf.Pair
		key   string
		value any
		want  string
	}{
		{nil, "model", nil, "model is missing: the file has no tokenizer"},
		{bytes, "model", "bert", `model: "bert": gpt2 and llama`},
		{bytes, "model", uint32(1), "model has the type uint64: string is expected"},
		{bytes, "pre", "chatglm-bpe", `pre: "chatglm-bpe": the rules gpt-2, llama-bpe and qwen2`},
		{bytes, "pre", nil, `pre: ""`},
		{bytes, "tokens", nil, "eos_token_id is 1, of 0 tokens"},
		{bytes, "tokens", []float32{1}, "tokens has the type []float32"},
		{bytes, "token_type", []int32{1}, "token_type: 1 types of 901 tokens"},
		{bytes, "merges", []string{"ab"}, `merge 0 is "ab"`},
		{bytes, "merges", []string{"a x"}, "the vocabulary lacks one"},
		{bytes, "add_space_prefix", true, "add_space_prefix"},
		{bytes, "bos_token_id", uint32(901), "bos_token_id is 901, of 901 tokens"},
		{bytes, "eos_token_id", int32(-1), "eos_token_id has the type int64"},
		{sentenceKeys(), "scores", nil, "scores: 0 scores of"},
		{sentenceKeys(), "token_type", nil, "the byte 0x00 has no token <0x00> of the type byte"},
		{sentenceKeys(), "remove_extra_whitespaces", true, "remove_extra_whitespaces"},
	} {
		f, err := open(write(t, with(of.keys, []gguf.Pair{{Key: at + of.key, Value: of.value}})))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = FromGGUF(f); !errors.Is(err, ErrTokenizer) || !strings.Contains(err.Error(), of.want) {
			t.Errorf("FromGGUF with %s = %v: %v, want an ErrTokenizer with %q", of.key, of.value, err, of.want)
		}
	}
	for key, place := range map[string]func(any){
		"token_type": func(v any) { v.([]int32)[5] = 7 },
		"scores":     func(v any) { v.([]float32)[5] = float32(math.NaN()) },
	} {
		keys := sentenceKeys()
		place(keys[slices.IndexFunc(keys, func(p gguf.Pair) bool { return p.Key == at+key })].Value)
		f, err := open(write(t, keys))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromGGUF(f); !errors.Is(err, ErrTokenizer) || !strings.Contains(err.Error(), key) {
			t.Errorf("FromGGUF with a bad value in %s: %v, want an ErrTokenizer", key, err)
		}
	}
}

// TestMemory: memory is in proportion to a file.
func TestMemory(t *testing.T) {
	for _, data := range [][]byte{
		[]byte(`{"added_tokens":[{"id":2147483647,"content":"x"}],"model":{"vocab":{"a":4000000}}}`),
		[]byte(`{"model":` + strings.Repeat("[", 100000)),
		member(t, nil, "normalizer"),
	} {
		if got := allocated(func() { _, _ = Parse(data) }); got > 100*uint64(len(data))+64<<10 {
			t.Errorf("Parse of %d bytes takes %d bytes", len(data), got)
		}
	}
}

// FuzzParse: any bytes are an ErrTokenizer, or a tokenizer that gives the bytes of a text back.
func FuzzParse(f *testing.F) {
	for _, rule := range []string{"gpt2", "llama3", "qwen2"} {
		data, err := os.ReadFile("testdata/" + rule + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		use(t, tok, err)
	})
}

// FuzzFromGGUF: the same for the bytes of a GGUF file.
func FuzzFromGGUF(f *testing.F) {
	f.Add(write(f, sentenceKeys()))
	f.Add(write(f, ggufOf(f, "gpt2")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if of, err := open(data); err == nil {
			tok, err := FromGGUF(of)
			use(t, tok, err)
		}
	})
}

// use encodes and decodes with what a fuzzer has made.
func use(t *testing.T, tok *Tokenizer, err error) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, ErrTokenizer) {
			t.Fatalf("%v, want an ErrTokenizer", err)
		}
		return
	}
	const text = "the  World's\n\t 123 \x00\xff<|end|></s>中"
	for _, special := range []bool{false, true} {
		ids := encode(t, tok, text, special)
		decode(tok, ids)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Fatalf("token %d of %d", id, tok.Size())
			}
		}
	}
	decode(tok, append(tok.Ends(), 0, 1, 2, -1))
}
