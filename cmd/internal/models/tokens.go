package models

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

var tokensVerb = cli.Verb{
	Use: "tokens NAME [--text TEXT|--file FILE]", Short: "Show the tokens of a text, as a language model reads it",
	Long: `Show the tokens of a text, as a language model reads it: ids and their pieces. Byte-level BPE with the
rules of gpt2, llama3 and qwen2 is computed, and the BPE of SentencePiece in GGUF files. Texts of
special tokens are text as any other, unless --special says that they become the tokens.`,
	Lists: true,
	Flags: func(f *pflag.FlagSet) {
		PlaceFlags(f)
		f.String("text", "", "the text")
		f.String("file", "", "file with the text; - is standard input")
		f.Bool("special", false, "texts of special tokens, such as <|end|>, become the tokens")
	},
	Do: cli.Here(func(cmd *cobra.Command, args []string) (err error) {
		b, err := OpenPlace(cmd)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		return modelTokens(cmd, b, args[0])
	}),
}

// tokenItem is a token of a text.
type tokenItem struct {
	Token int32  `json:"token"`
	Piece string `json:"piece"`           // with U+FFFD for bytes that are no characters
	Bytes []byte `json:"bytes,omitempty"` // of such a piece
}

var tokenTable = cli.Table[tokenItem]{
	Columns: []string{"TOKEN", "PIECE"},
	Row: func(t tokenItem) []any {
		if t.Bytes != nil {
			return []any{t.Token, fmt.Sprintf("%+q", t.Bytes)}
		}
		return []any{t.Token, fmt.Sprintf("%q", t.Piece)}
	},
}

// modelTokens prints one item for each token of a text, and their number to stderr.
//
// Fields: token, its id; piece; and bytes, of a piece that is no whole characters.
func modelTokens(cmd *cobra.Command, b bucket.Bucket, name string) error {
	text, err := textOf(cmd)
	if err != nil {
		return err
	}
	m, _, err := model.ReadManifest(cmd.Context(), b, name)
	if err != nil {
		return err
	}
	t, err := model.Tokenizer(cmd.Context(), b, m)
	if errors.Is(err, tokenizer.ErrTokenizer) || errors.Is(err, model.ErrMismatch) {
		return command.Usage("%v", err)
	}
	if err != nil {
		return err
	}
	special, _ := cmd.Flags().GetBool("special")
	ids, err := t.Encode(text, special)
	if err != nil {
		return command.Usage("model tokens: %v", err)
	}
	err = tokenTable.Stream(cmd, 0, func(fn func(tokenItem) bool) error {
		for _, id := range ids {
			item := tokenItem{Token: id, Piece: string(t.Piece(id))}
			if !utf8.ValidString(item.Piece) {
				item.Bytes = t.Piece(id)
			}
			if !fn(item) {
				break
			}
		}
		return nil
	})
	if err == nil {
		cmd.PrintErrf("%s: %d tokens of %d bytes\n", name, len(ids), len(text))
	}
	return err
}

// textOf returns the text of --text or --file.
func textOf(cmd *cobra.Command) (string, error) {
	file, _ := cmd.Flags().GetString("file")
	if cmd.Flags().Changed("text") == (file != "") {
		return "", command.Usage("model tokens: name a text with --text, or a file with --file")
	}
	if file == "" {
		return cmd.Flags().GetString("text")
	}
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", command.Usage("--file: %v", err)
		}
		defer func() { _ = f.Close() }() // it is only read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, tokenizer.MaxText+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return string(data), nil
}

// FirstTokens returns the first token of each candidate of a vote, as the specification of a swarm of
// conversations has them.
func FirstTokens(words *tokenizer.Tokenizer, candidates []string) (first []int32, err error) {
	for _, text := range candidates {
		ids, err := words.Encode(text, false)
		if err == nil && len(ids) == 0 {
			err = errors.New("it has no token")
		}
		if err != nil {
			return nil, fmt.Errorf("candidate %.100q: %w", text, err)
		}
		first = append(first, ids[0])
	}
	return first, nil
}
