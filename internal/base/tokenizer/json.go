package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// file is a tokenizer.json of the library tokenizers. What concerns only batches is not read.
type file struct {
	Added     []addedToken    `json:"added_tokens"`
	Normalize json.RawMessage `json:"normalizer"`
	Split     json.RawMessage `json:"pre_tokenizer"`
	Template  json.RawMessage `json:"post_processor"`
	Decoder   json.RawMessage `json:"decoder"`
	Model     json.RawMessage `json:"model"`
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Special    bool   `json:"special"`
}

// model is the member model, of the type BPE.
type model struct {
	Type         string  `json:"type"`
	Dropout      float64 `json:"dropout"`
	Unknown      string  `json:"unk_token"` // of no use: each byte has a token
	Prefix       string  `json:"continuing_subword_prefix"`
	Suffix       string  `json:"end_of_word_suffix"`
	Fuse         bool    `json:"fuse_unk"` // of no use too
	ByteFallback bool    `json:"byte_fallback"`
	Ignore       bool    `json:"ignore_merges"`
	Vocabulary   unique  `json:"vocab"`
	Merges       []both  `json:"merges"`
}

// unique is an object of numbers whose names are there once.
type unique map[string]int

// UnmarshalJSON implements json.Unmarshaler.
func (u *unique) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(errors.New("vocab: an object is expected"), err)
	}
	*u = unique{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		var id int
		if err := dec.Decode(&id); err != nil {
			return fmt.Errorf("token %.100q: %w", name, err)
		}
		if _, again := (*u)[name]; again {
			return fmt.Errorf("token %.100q is there twice", name)
		}
		(*u)[name] = id
	}
	return nil
}

// both are the tokens of a merge, a text with one space or a list of two.
type both [2]string

// UnmarshalJSON implements json.Unmarshaler.
func (b *both) UnmarshalJSON(data []byte) error {
	var list []string
	if data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		list = strings.Split(text, " ")
	} else if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return fmt.Errorf("merge %.100q: two tokens are expected", list)
	}
	*b = both(list)
	return nil
}

// step is a normalizer, a pre_tokenizer, a post_processor or a decoder.
type step struct {
	Type           string            `json:"type"`
	Normalizers    []json.RawMessage `json:"normalizers"`
	Pretokenizers  []json.RawMessage `json:"pretokenizers"`
	Processors     []json.RawMessage `json:"processors"`
	Pattern        struct{ Regex string }
	Behavior       string           `json:"behavior"`
	Invert         bool             `json:"invert"`
	AddPrefixSpace bool             `json:"add_prefix_space"`
	UseRegex       *bool            `json:"use_regex"`
	Single         []map[string]any `json:"single"`
	Special        map[string]struct {
		IDs []int `json:"ids"`
	} `json:"special_tokens"`
}

// steps returns the steps of a member, without sequences around them; none of null.
func steps(member string, data json.RawMessage, depth int) (all []step, err error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	var s step
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, refuse("tokenizer.json: %s: %v", member, err)
	}
	if s.Type != "Sequence" {
		return []step{s}, nil
	}
	if depth == 0 {
		return nil, refuse("tokenizer.json: %s: sequences of sequences of sequences are not read", member)
	}
	for _, of := range slices.Concat(s.Normalizers, s.Pretokenizers, s.Processors) {
		more, err := steps(member, of, depth-1)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// Parse reads a tokenizer.json. It names no tokens of the end, so config.json does: ends, which may
// be beyond the vocabulary. The error is an ErrTokenizer with the member at fault.
func Parse(tokenizerJSON []byte, ends ...int32) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, refuse("tokenizer.json: %v", err)
	}
	var of struct{ Type string }
	if err := json.Unmarshal(f.Model, &of); err != nil {
		return nil, refuse("tokenizer.json: model: %v", err)
	}
	if of.Type != "BPE" && of.Type != "" {
		return nil, refuse("tokenizer.json: model of type %.100q: BPE is computed: convert the model to GGUF if it is "+
			"of SentencePiece", of.Type)
	}
	var m model
	dec := json.NewDecoder(bytes.NewReader(f.Model))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, refuse("tokenizer.json: model: %v", err)
	}
	switch {
	case m.ByteFallback:
		return nil, refuse("tokenizer.json: model: byte_fallback: BPE of SentencePiece is read from GGUF: convert " +
			"the model to GGUF")
	case m.Dropout != 0:
		return nil, refuse("tokenizer.json: model: dropout %v: set it to null", m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return nil, refuse("tokenizer.json: model: continuing_subword_prefix or end_of_word_suffix: only byte-level " +
			"BPE is computed")
	}
	t := &Tokenizer{begin: -1}
	if err := t.vocabulary(m.Vocabulary, f.Added); err != nil {
		return nil, err
	}
	if err := t.learn(m.Vocabulary, m.Merges, m.Ignore); err != nil {
		return nil, err
	}
	if err := t.steps(&f); err != nil {
		return nil, err
	}
	ends = slices.DeleteFunc(slices.Clone(ends), func(id int32) bool { return id < 0 || int(id) >= t.Size() })
	return t, t.finish(ends)
}

// vocabulary places all tokens by their ids, which are from 0 on without a gap.
func (t *Tokenizer) vocabulary(of unique, added []addedToken) error {
	n := len(of) + len(added)
	if n > maxSize {
		return refuse("%d tokens: at most %d are read", n, maxSize)
	}
	pieces, kinds, size := make([]string, n), make([]kind, n), 0
	there := make([]bool, n)
	put := func(id int, text string, k kind) error {
		if id < 0 || id >= n {
			return refuse("token %.100q has the id %d: ids of %d tokens are below that", text, id, n)
		}
		if len(text) > maxPiece {
			return refuse("token %d has %d bytes: at most %d are read", id, len(text), maxPiece)
		}
		pieces[id], kinds[id], there[id] = text, k, true
		size = max(size, id+1)
		return nil
	}
	for text, id := range of {
		if id >= 0 && id < n && there[id] {
			return refuse("tokens %.100q and %.100q have the same id %d", text, pieces[id], id)
		}
		raw, is := unmap(text)
		if !is {
			raw = text
		}
		if err := put(id, raw, plain); err != nil {
			return err
		}
	}
	for _, a := range added {
		id, is := of[a.Content]
		switch {
		case a.Lstrip || a.Rstrip || a.SingleWord:
			return refuse("added token %.100q: lstrip, rstrip and single_word are not computed: set them to false",
				a.Content)
		case is && id != a.ID || !is && a.ID >= 0 && a.ID < n && there[a.ID]:
			return refuse("added token %.100q has the id %d, and the vocabulary says otherwise", a.Content, a.ID)
		}
		k := literal
		if a.Special {
			k = control
		}
		if err := put(a.ID, a.Content, k); err != nil {
			return err
		}
	}
	if i := slices.Index(there[:size], false); i >= 0 {
		return refuse("id %d has no token, and %d has: name one for each", i, size-1)
	}
	t.pieces, t.kinds = pieces[:size], kinds[:size]
	return nil
}

// learn fills in what byte-level BPE computes with. of are the ids of tokens by their texts in the
// file; the tokens that merges make are among them.
func (t *Tokenizer) learn(of map[string]int, merges []both, ignore bool) error {
	for b := range t.bytes {
		id, is := of[string(alphabet[b])]
		if !is {
			return refuse("the byte %#02x has no token %q: only byte-level BPE with all bytes is computed", b,
				alphabet[b])
		}
		t.bytes[b] = int32(id)
	}
	t.merges = make(map[[2]int32]merged, len(merges))
	for rank, pair := range merges {
		left, a := of[pair[0]]
		right, b := of[pair[1]]
		to, c := of[pair[0]+pair[1]]
		if !a || !b || !c {
			return refuse("merge %d, of %.100q and %.100q: the vocabulary lacks one of them, or both together", rank,
				pair[0], pair[1])
		}
		key := [2]int32{int32(left), int32(right)}
		if _, again := t.merges[key]; again {
			return refuse("merge %d, of %.100q and %.100q, is there twice: remove one", rank, pair[0], pair[1])
		}
		t.merges[key] = merged{int32(to), int32(rank)}
	}
	if !ignore {
		return nil
	}
	t.whole = map[string]int32{}
	for text, id := range of {
		if raw, is := unmap(text); is {
			t.whole[raw] = int32(id)
		}
	}
	return nil
}

// steps reads what is done before and behind the model.
func (t *Tokenizer) steps(f *file) error {
	all, err := steps("normalizer", f.Normalize, 2)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Type != "NFC" {
			return refuse("tokenizer.json: normalizer %.100q: NFC or none is computed", s.Type)
		}
		t.compose = true
	}
	if all, err = steps("decoder", f.Decoder, 2); err != nil {
		return err
	}
	for _, s := range all {
		if s.Type != "ByteLevel" {
			return refuse("tokenizer.json: decoder %.100q: only byte-level BPE is computed, whose decoder is ByteLevel",
				s.Type)
		}
	}
	if all, err = steps("pre_tokenizer", f.Split, 2); err != nil {
		return err
	}
	if t.rule, err = splitting(all); err != nil {
		return err
	}
	if all, err = steps("post_processor", f.Template, 2); err != nil {
		return err
	}
	for _, s := range all {
		switch s.Type {
		case "ByteLevel": // it changes offsets alone
		case "TemplateProcessing":
			if err := t.template(s); err != nil {
				return err
			}
		default:
			return refuse("tokenizer.json: post_processor %.100q: ByteLevel and TemplateProcessing are read", s.Type)
		}
	}
	return nil
}

// splitting returns the rule of a pre_tokenizer.
func splitting(all []step) (rule, error) {
	expression, by := "", 0
	for i, s := range all {
		switch {
		case s.Type == "Split" && i == 0:
			expression = s.Pattern.Regex
			if s.Behavior != "Isolated" || s.Invert {
				return rule{}, refuse("tokenizer.json: pre_tokenizer: Split with the behavior %.100q, invert %v: only "+
					"Isolated without invert is computed", s.Behavior, s.Invert)
			}
		case s.Type == "ByteLevel" && s.AddPrefixSpace:
			return rule{}, refuse("tokenizer.json: pre_tokenizer: add_prefix_space: a space before a text is not " +
				"computed: set it to false")
		case s.Type == "ByteLevel":
			by++
			if s.UseRegex == nil || *s.UseRegex {
				if i > 0 {
					return rule{}, refuse("tokenizer.json: pre_tokenizer: two expressions, one behind the other: set " +
						"use_regex of ByteLevel to false if that is meant")
				}
				return gpt2, last(all[1:])
			}
		default:
			return rule{}, last(all[i:])
		}
	}
	u, known := expressions[expression]
	if !known || by != 1 {
		return rule{}, refuse("tokenizer.json: pre_tokenizer: Split by %.300q: the expressions of gpt2, llama3 and "+
			"qwen2 before one ByteLevel are computed", expression)
	}
	return u, nil
}

// last refuses the first of steps that are more than a rule of splitting has.
func last(all []step) error {
	if len(all) == 0 {
		return nil
	}
	return refuse("tokenizer.json: pre_tokenizer %.100q at this place: the rules of gpt2, llama3 and qwen2 are "+
		"computed, which are Split and ByteLevel", all[0].Type)
}

// template reads the token before each text.
func (t *Tokenizer) template(s step) error {
	text := false
	for _, of := range s.Single {
		part, is := of["SpecialToken"].(map[string]any)
		if !is {
			text = true
			continue
		}
		name, _ := part["id"].(string)
		ids := s.Special[name].IDs
		switch {
		case text:
			return refuse("tokenizer.json: post_processor: token %.100q behind a text: only one before it is computed",
				name)
		case t.begin >= 0 || len(ids) != 1 || ids[0] < 0 || ids[0] >= len(t.pieces):
			return refuse("tokenizer.json: post_processor: token %.100q: one token of the vocabulary before a text is "+
				"computed", name)
		}
		t.begin = int32(ids[0])
	}
	return nil
}

// alphabet has the characters that stand for bytes in texts of tokens: printable bytes of Latin-1
// stand for themselves, and the others are U+0100 and on in their order, as in bytes_to_unicode of
// encoder.py of github.com/openai/gpt-2.
var alphabet, unalphabet = func() (to [256]rune, from map[rune]byte) {
	from = map[rune]byte{}
	next := rune(256)
	for b := range to {
		if r := rune(b); r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' {
			to[b] = r
		} else {
			to[b] = next
			next++
		}
		from[to[b]] = byte(b)
	}
	return to, from
}()

// unmap returns the bytes that a text of the alphabet stands for, and whether it is one.
func unmap(text string) (raw string, is bool) {
	b := make([]byte, 0, utf8.RuneCountInString(text))
	for _, r := range text {
		c, is := unalphabet[r]
		if !is {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}
