package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// golden is testdata/golden.json, which testdata/goldens.py makes with the library tokenizers.
type golden struct {
	Texts []string
	Rules map[string]struct {
		Plain, Special [][]int32 // of the texts, without and with special tokens
		Decoded        []string  // of Special
		Rows           [][]int32 // any tokens
		RowsDecoded    []string  `json:"rows_decoded"`
	}
}

func readGolden(tb testing.TB) (g golden) {
	tb.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// parse reads a tokenizer of testdata.
func parse(tb testing.TB, rule string) *Tokenizer {
	tb.Helper()
	data, err := os.ReadFile("testdata/" + rule + ".json")
	if err != nil {
		tb.Fatal(err)
	}
	t, err := Parse(data)
	if err != nil {
		tb.Fatalf("Parse of %s: %v, want no error", rule, err)
	}
	return t
}

func encode(tb testing.TB, t *Tokenizer, text string, special bool) []int32 {
	tb.Helper()
	ids, err := t.Encode(text, special)
	if err != nil {
		tb.Fatalf("Encode of %.40q: %v, want no error", text, err)
	}
	return ids
}

// decode joins tokens, one at a time.
func decode(t *Tokenizer, ids []int32) string {
	d := t.NewDecoder()
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Add(id))
	}
	return b.String() + d.Flush()
}

// quoted returns the pieces of tokens, for messages.
func quoted(t *Tokenizer, ids []int32) (all []string) {
	for _, id := range ids {
		all = append(all, string(t.Piece(id)))
	}
	return all
}

// TestGolden: ids and texts are equal to the library tokenizers', from a tokenizer.json and from the
// keys of a GGUF file that say the same.
func TestGolden(t *testing.T) {
	g := readGolden(t)
	for name, want := range g.Rules {
		of := map[string]*Tokenizer{"tokenizer.json": parse(t, name)}
		if name != "qwen2" { // GGUF has no normalizer
			f, err := open(write(t, ggufOf(t, name)))
			if err == nil {
				of["GGUF"], err = FromGGUF(f)
			}
			if err != nil {
				t.Fatalf("FromGGUF of %s: %v, want no error", name, err)
			}
		}
		for form, tok := range of {
			for i, text := range g.Texts {
				if got := encode(t, tok, text, false); !slices.Equal(got, want.Plain[i]) {
					t.Errorf("%s of %s: Encode of %q: %q, want %q", form, name, text, quoted(tok, got),
						quoted(tok, want.Plain[i]))
				}
				got := encode(t, tok, text, true)
				if !slices.Equal(got, want.Special[i]) {
					t.Errorf("%s of %s: Encode of %q with special tokens: %q, want %q", form, name, text,
						quoted(tok, got), quoted(tok, want.Special[i]))
				}
				if got := decode(tok, got); got != want.Decoded[i] {
					t.Errorf("%s of %s: Decoder of %q: %q, want %q", form, name, text, got, want.Decoded[i])
				}
			}
			for i, row := range want.Rows {
				if got := decode(tok, row); got != want.RowsDecoded[i] {
					t.Errorf("%s of %s: Decoder of %v: %q, want %q", form, name, row, got, want.RowsDecoded[i])
				}
			}
		}
	}
}

// TestNamed: begin, ends, special tokens and pieces.
func TestNamed(t *testing.T) {
	for rule, wantBegin := range map[string]bool{"gpt2": false, "llama3": true, "qwen2": false} {
		tok := parse(t, rule)
		if id, is := tok.Begin(); is != wantBegin || is && id != 0 {
			t.Errorf("%s: Begin: %d, %v, want %v", rule, id, is, wantBegin)
		}
		if got := tok.Ends(); !slices.Equal(got, []int32{1}) {
			t.Errorf("%s: Ends: %v, want the token <|end|>", rule, got)
		}
		if id, is := tok.Special("<|agent|>"); id != 3 || !is {
			t.Errorf("%s: Special: %d, %v, want 3", rule, id, is)
		}
		if _, is := tok.Special("<tool>"); is {
			t.Errorf("%s: <tool> is special, want a literal token", rule)
		}
		beyond := tok.Piece(int32(tok.Size()))
		if got := string(tok.Piece(2)); got != "<|user|>" || tok.Piece(-1) != nil || beyond != nil {
			t.Errorf("%s: Piece: %q of 2, and pieces beyond the vocabulary", rule, got)
		}
		if got := tok.NewDecoder().Add(2) + tok.NewDecoder().Add(1<<30) + tok.NewDecoder().Add(-1); got != "" {
			t.Errorf("%s: Decoder gives %q for a special token and ids that are none, want nothing", rule, got)
		}
	}
}

// ggufOf returns the keys of a GGUF file that say what a tokenizer.json of testdata says.
func ggufOf(tb testing.TB, rule string) []gguf.Pair {
	tb.Helper()
	data, err := os.ReadFile("testdata/" + rule + ".json")
	var f file
	var m model
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil {
		err = json.Unmarshal(f.Model, &m)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tokens, types := make([]string, len(m.Vocabulary)), make([]int32, len(m.Vocabulary))
	for text, id := range m.Vocabulary {
		tokens[id], types[id] = text, typePlain
	}
	for _, a := range f.Added {
		if a.ID == len(tokens) {
			tokens, types = append(tokens, a.Content), append(types, 0)
		}
		if types[a.ID] = typeUser; a.Special {
			types[a.ID] = typeControl
		}
	}
	var merges []string
	for _, pair := range m.Merges {
		merges = append(merges, pair[0]+" "+pair[1])
	}
	pre := map[string]string{"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2"}[rule]
	return []gguf.Pair{
		{Key: at + "model", Value: "gpt2"},
		{Key: at + "pre", Value: pre},
		{Key: at + "tokens", Value: tokens},
		{Key: at + "token_type", Value: types},
		{Key: at + "merges", Value: merges},
		{Key: at + "bos_token_id", Value: uint32(0)},
		{Key: at + "eos_token_id", Value: uint32(1)},
	}
}

// write returns a file with keys and no tensors.
func write(tb testing.TB, keys []gguf.Pair) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := gguf.Write(&b, keys, nil); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func open(data []byte) (*gguf.File, error) { return gguf.Open(bytes.NewReader(data), int64(len(data))) }
