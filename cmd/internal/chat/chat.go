// Package chat has the commands that talk with a language model, as clients of exoswarm serve
// --models: chat, and model run. In a folder where none runs they serve the model themselves.
package chat

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/openai"
)

// Command returns exoswarm chat.
func Command() *cobra.Command {
	return cli.Verb{
		Use: "chat MODEL", Short: "Talk with a language model",
		Long: `Talk with a language model. Each line of standard input is a message, and the answer is printed as it
comes. The end of the input (Ctrl-D) ends the command.

The conversation is an agent of the swarm of the model. With --conversation it has the id that you choose,
else a new one. When the connection or the server is lost, the answer continues at the next token.

The server is exoswarm serve --models in this folder, or at --api. If none runs in this folder, the
command serves the model itself until it ends.`,
		Flags: func(f *pflag.FlagSet) {
			f.String("system", "", "what the model is told first")
			flags(f)
		},
		Do: cli.Here(talk),
	}.Command()
}

// Run returns exoswarm model run.
func Run() cli.Verb {
	return cli.Verb{
		Use: "run NAME --prompt TEXT", Short: "Continue a text with a language model",
		Long: `Continue a text with a language model, and print what it makes as it comes. The text is --prompt, or
standard input. When the connection or the server is lost, the text continues at the next token.

The server is exoswarm serve --models in this folder, or at --api. If none runs in this folder, the
command serves the model itself until it ends.`,
		Flags: func(f *pflag.FlagSet) {
			f.String("prompt", "", "text to continue; empty: standard input")
			flags(f)
		},
		Do: cli.Here(run),
	}
}

func flags(f *pflag.FlagSet) {
	f.String("api", "", "address of the server, such as http://127.0.0.1:8228; empty: exoswarm serve in this folder, "+
		"or this command")
	f.String("token-file", "", "file with the token of programs; empty: program.token of exoswarm serve in this "+
		"folder")
	f.Duration("patience", 30*time.Second, "how long the server may be away")
	command.GroupFlags(f, command.Connection, "api", "token-file", "patience")
	f.String("conversation", "", "id of the conversation; empty: a new one")
	f.Int("max-tokens", 0, "most tokens of an answer; 0: as many as the context has room for")
	f.Float32("temperature", 1, "0 for the likeliest token, up to 2")
	f.Float32("top-p", 0, "draw from the likeliest tokens that together have this probability; 0: from all")
	f.Int("top-k", 0, "draw from this many likeliest tokens; 0: from all")
	f.Int64("seed", 0, "seed of the draws, which a conversation repeats with the same text; empty: from its id")
	f.StringArray("stop", nil, "text that ends an answer; up to four")
}

// connect returns a client of the server of the flags. Without one, this process serves the model
// until the caller calls end.
func connect(cmd *cobra.Command, model string) (c *client, end func() error, err error) {
	c, end = &client{}, func() error { return nil }
	c.api, _ = cmd.Flags().GetString("api")
	file, _ := cmd.Flags().GetString("token-file")
	c.patience, _ = cmd.Flags().GetDuration("patience")
	if c.api == "" {
		url, here := command.ServedPages()
		if url == "" {
			if url, here, end, err = serve(cmd, model); err != nil {
				return nil, nil, err
			}
		}
		c.api, file = url, cmp.Or(file, here)
	}
	if file == "" {
		return nil, nil, command.Usage("--token-file is missing: name the file with the token of programs of the "+
			"server at --api %s", c.api)
	}
	c.api = strings.TrimRight(c.api, "/") + "/v1/"
	token, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, errors.Join(command.Usage("--token-file: %v", err), end())
	}
	c.token = strings.TrimSpace(string(token))
	return c, end, nil
}

// sampled returns the fields of a request that the flags give. The conversation makes the request
// one that can be continued.
func sampled(cmd *cobra.Command, model string) (s openai.Sampled, err error) {
	f := cmd.Flags()
	s = openai.Sampled{Model: model, Stream: true}
	if s.Conversation, _ = f.GetString("conversation"); s.Conversation == "" {
		s.Conversation = cmd.Name() + "-" + rand.Text()
	}
	if n, _ := f.GetInt("max-tokens"); n != 0 {
		s.MaxTokens = &n
	}
	temperature, _ := f.GetFloat32("temperature")
	if math.IsNaN(float64(temperature)) {
		return s, command.Usage("--temperature: use 0 to 2")
	}
	s.Temperature = &temperature
	if p, _ := f.GetFloat32("top-p"); p != 0 && !math.IsNaN(float64(p)) {
		s.TopP = &p
	}
	s.TopK, _ = f.GetInt("top-k")
	if f.Changed("seed") {
		seed, _ := f.GetInt64("seed")
		s.Seed = &seed
	}
	if stops, _ := f.GetStringArray("stop"); len(stops) > 0 {
		if s.Stop, err = json.Marshal(stops); err != nil {
			return s, fmt.Errorf("--stop: %w", err)
		}
	}
	return s, nil
}

// told says on standard error why an answer has ended before its end.
func told(cmd *cobra.Command, why string) {
	if why == "length" {
		cmd.PrintErrln("(cut: --max-tokens or the context is full)")
	}
}

func run(cmd *cobra.Command, args []string) (err error) {
	c, end, err := connect(cmd, args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	text, _ := cmd.Flags().GetString("prompt")
	if text == "" {
		data, err := io.ReadAll(cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		text = string(data)
	}
	r := openai.CompletionRequest{}
	if r.Sampled, err = sampled(cmd, args[0]); err != nil {
		return err
	}
	if r.Prompt, err = json.Marshal(text); err != nil {
		return fmt.Errorf("--prompt: %w", err)
	}
	out := cmd.OutOrStdout()
	why, err := c.stream(cmd.Context(), "completions", r, func(text string) error {
		_, err := io.WriteString(out, text)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	told(cmd, why)
	return nil
}

func talk(cmd *cobra.Command, args []string) (err error) {
	c, end, err := connect(cmd, args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	r := openai.ChatRequest{}
	if r.Sampled, err = sampled(cmd, args[0]); err != nil {
		return err
	}
	if system, _ := cmd.Flags().GetString("system"); system != "" {
		r.Messages = append(r.Messages, openai.Message{Role: "system", Content: openai.Content(system)})
	}
	out, lines := cmd.OutOrStdout(), bufio.NewScanner(cmd.InOrStdin())
	lines.Buffer(nil, maxEvent)
	for cmd.PrintErr("> "); lines.Scan(); cmd.PrintErr("> ") {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		r.Messages = append(r.Messages, openai.Message{Role: "user", Content: openai.Content(lines.Text())})
		var said strings.Builder
		why, err := c.stream(cmd.Context(), "chat/completions", r, func(text string) error {
			said.WriteString(text)
			_, err := io.WriteString(out, text)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
		told(cmd, why)
		r.Messages = append(r.Messages, openai.Message{Role: "assistant", Content: openai.Content(said.String())})
	}
	cmd.PrintErrln()
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}
