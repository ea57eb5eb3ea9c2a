package tokenizer

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// atoms are parts of random texts: all classes of characters, what the rules name, and bytes that
// are no UTF-8.
var atoms = []string{
	" ", "  ", "\t", "\n", "\r\n", "\v", "\u0085", "\u00a0", "\u2028", "\u3000", "a", "Ab", "é", "e\u0301", "\u0301",
	"中文", "🙂", "'", "'s", "'S", "'ſ", "'re", "'VE", "'ll", "'x", "1", "12", "1234", "٣", "Ⅷ", ".", "...", "_", "{\n",
	"\x00", "\xff", "\xe4\xb8", "\xf0\x9f", "\ufffd", "▁", "<|end|>", "<|en", "<tool>", "<0x41>",
}

func text(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(16) {
		b.WriteString(atoms[r.IntN(len(atoms))])
	}
	return b.String()
}

// Twins of the rules, by package regexp. It has no lookahead, so the last two alternatives, for
// spaces alone, are code. Its \s is ASCII alone.
const twinSpaces = `\p{Z}\t-\r\x{85}`

var (
	twinGPT2 = regexp.MustCompile(`^(?:'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^` + twinSpaces + `\p{L}\p{N}]+)`)
	twinOf   = func(digits string) *regexp.Regexp {
		return regexp.MustCompile(`^(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + digits +
			`| ?[^` + twinSpaces + `\p{L}\p{N}]+[\r\n]*|[` + twinSpaces + `]*[\r\n]+)`)
	}
	twins  = map[rule]*regexp.Regexp{gpt2: twinGPT2, llama3: twinOf("{1,3}"), qwen2: twinOf("")}
	spaces = regexp.MustCompile(`^[` + twinSpaces + `]+`)
)

func twinNext(u rule, text string) int {
	if part := twins[u].FindString(text); part != "" {
		return len(part)
	}
	part := spaces.FindString(text)
	if _, last := utf8.DecodeLastRuneInString(part); len(part) < len(text) && len(part) > last {
		return len(part) - last
	}
	return len(part)
}

// TestRules compares the rules with their twins on random texts.
func TestRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		for u := range twins {
			for rest := text(r); rest != ""; {
				got, want := u.next(rest), twinNext(u, rest)
				if got != want {
					t.Fatalf("rule %v of %q: %q, want %q", u, rest, rest[:got], rest[:want])
				}
				rest = rest[got:]
			}
		}
	}
}

// twinMerge merges one pair at a time: the best of all, the first of equal ones.
func twinMerge(t *Tokenizer, text string) (out []int32) {
	var parts []string
	for rest := text; rest != ""; {
		n := 1
		if t.sentence {
			_, n = utf8.DecodeRuneInString(rest)
		}
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	id := func(part string) int32 {
		switch {
		case t.sentence:
			return t.id(part)
		case len(part) == 1:
			return t.bytes[part[0]]
		}
		return int32(slices.Index(t.pieces, part))
	}
	for {
		best, rank := -1, 0.0
		for i := range len(parts) - 1 {
			var of float64
			if t.sentence {
				to := t.id(parts[i] + parts[i+1])
				if to < 0 {
					continue
				}
				of = -float64(t.scores[to])
			} else {
				to, is := t.merges[[2]int32{id(parts[i]), id(parts[i+1])}]
				if !is {
					continue
				}
				of = float64(to.rank)
			}
			if best < 0 || of < rank {
				best, rank = i, of
			}
		}
		if best < 0 {
			break
		}
		parts[best] += parts[best+1]
		parts = slices.Delete(parts, best+1, best+2)
	}
	for _, part := range parts {
		if to := id(part); to >= 0 {
			out = append(out, to)
			continue
		}
		for _, b := range []byte(part) {
			out = append(out, t.bytes[b])
		}
	}
	return out
}

// TestMerges compares merges with their twin on random texts that no rule cuts.
func TestMerges(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for name, tok := range all(t) {
		for range 3000 {
			text := text(r)
			got, want := (&merger{t: tok}).merge(nil, text), twinMerge(tok, text)
			if !slices.Equal(got, want) {
				t.Fatalf("%s: merges of %q: %q, want %q", name, text, quoted(tok, got), quoted(tok, want))
			}
		}
	}
}

// all returns one tokenizer of each kind.
func all(tb testing.TB) map[string]*Tokenizer {
	tb.Helper()
	of := map[string]*Tokenizer{"sentence": sentence(tb, nil)}
	for _, rule := range []string{"gpt2", "llama3", "qwen2"} {
		of[rule] = parse(tb, rule)
	}
	return of
}

// back checks that the tokens of a text are the text.
func back(t *testing.T, name string, tok *Tokenizer, text string) {
	t.Helper()
	for _, special := range []bool{false, true} {
		ids := encode(t, tok, text, special)
		var joined []byte
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Fatalf("%s: Encode of %q: token %d of %d", name, text, id, tok.Size())
			}
			if _, is := tok.Special(string(tok.Piece(id))); is && !special {
				t.Fatalf("%s: Encode of %q gives the special token %d", name, text, id)
			}
			joined = append(joined, tok.Piece(id)...)
		}
		want := text
		switch {
		case tok.compose:
			want = norm.NFC.String(text)
		case tok.sentence && strings.Contains(text, "<"):
			continue // spaces are put behind added tokens
		case tok.sentence && text != "":
			want = " " + strings.ReplaceAll(text, space, " ")
		}
		if string(joined) != want && (!tok.compose || !strings.Contains(text, "<")) {
			t.Fatalf("%s: the tokens of %q are %q", name, text, joined)
		}
		if got := decode(tok, ids); !special && utf8.ValidString(want) && got != strings.TrimPrefix(want, " ") &&
			got != want {
			t.Fatalf("%s: Decoder of %q: %q", name, want, got)
		}
	}
}

// FuzzEncode: the tokens of any text are its bytes.
func FuzzEncode(f *testing.F) {
	for _, text := range append(readGolden(f).Texts, atoms...) {
		f.Add(text)
	}
	of := all(f)
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range of {
			back(t, name, tok, text)
		}
	})
}

func TestBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	of := all(t)
	for range 3000 {
		text := text(r)
		for name, tok := range of {
			back(t, name, tok, text)
		}
	}
}

// TestLong: the work for a long word is not quadratic, and a text has a limit.
func TestLong(t *testing.T) {
	for name, tok := range all(t) {
		for _, part := range []string{"a", "ab", " ", "<|", "é", "1"} {
			text := strings.Repeat(part, 1<<16/len(part))
			if got := decode(tok, encode(t, tok, text, true)); got != text {
				t.Errorf("%s: a text of %d times %q is another one", name, 1<<16/len(part), part)
			}
		}
		if _, err := tok.Encode(strings.Repeat("a", MaxText+1), false); !errors.Is(err, ErrText) {
			t.Errorf("%s: Encode of %d bytes: %v, want an ErrText", name, MaxText+1, err)
		}
	}
}

// TestDecoder: characters are whole, and each longest beginning of one that does not go on is one
// U+FFFD.
func TestDecoder(t *testing.T) {
	tok := parse(t, "gpt2")
	for _, of := range []struct {
		bytes string
		want  []string // after each byte, and of Flush
	}{
		{"aé", []string{"a", "", "é", ""}},
		{"\xf0\x9f\x99\x82", []string{"", "", "", "🙂", ""}},
		{"\xe4\xb8", []string{"", "", "\ufffd"}},
		{"\xe4\xb8a", []string{"", "", "\ufffda", ""}},
		{"\xffa", []string{"\ufffd", "a", ""}},
		{"\xf0\x9f\xe4\xb8\xad", []string{"", "", "\ufffd", "", "中", ""}},
		{"\xed\xa0\x80", []string{"", "\ufffd\ufffd", "\ufffd", ""}},
		{"\xc3\xc3\xc3", []string{"", "\ufffd", "\ufffd", "\ufffd"}},
	} {
		d := tok.NewDecoder()
		var got []string
		for _, b := range []byte(of.bytes) {
			got = append(got, d.Add(tok.bytes[b]))
		}
		if got = append(got, d.Flush()); !slices.Equal(got, of.want) {
			t.Errorf("Decoder of %q: %q, want %q", of.bytes, got, of.want)
		}
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat(strings.Join(readGolden(b).Texts, "\n"), 20)
	for name, tok := range all(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				encode(b, tok, text, true)
			}
		})
	}
}
