package swarm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// sayVerb is exoswarm swarm say, for swarms of the cell transformer.
var sayVerb = cli.Verb{
	Use: "say NAME AGENT [TEXT]", Short: "Say something to an agent that is a conversation, and print its answer",
	Long: `Give an agent a text to read, behind what it has read and said before, and print its answer as it
comes. Without TEXT it goes on from where it is. The text is encoded here, by the tokenizer of the model in
the place of --snapshots; special tokens may be in it.

The answer ends with a token that ends texts, after --max tokens, or when the context is full. An interrupt
(Ctrl-C) ends it too. What the agent has read and said stays in either case. An answer is drawn by the
seed, the number of the agent and the position of each token, so the same conversation gives the same
answer.

If this command was killed, or the connection is lost, the answer stays where it is: --from POSITION prints
the tokens from a position on and continues, without a text. The last line, on stderr, has the position
behind the answer.

--rewind POSITION first shortens the conversation to that many tokens: 0 begins anew. --fork AGENT first
makes the agent a copy of another one of the same shard, or with --rewind of its first tokens. --read
reads the text and makes no answer.`,
	Flags: func(f *pflag.FlagSet) {
		f.Int("max", 256, "most tokens of the answer")
		f.Float32("temperature", 0, "temperature of the draws; 0: the likeliest token each time")
		f.Int("top-k", 0, "draw from this number of the likeliest tokens; 0: from all")
		f.Float32("top-p", 0, "draw from the likeliest tokens that have this share together; 0: from all")
		f.Float32("min-p", 0, "draw from tokens with this share of the likelihood of the likeliest; 0: from all")
		f.Float32("repetition", 0, "divide the logits of the last 64 tokens; 0: do not")
		f.Uint64("seed", 0, "seed of the draws; 0: the seed of the swarm")
		f.Int("from", -1, "print and continue an answer from this position on")
		f.Int("rewind", -1, "shorten the conversation to this number of tokens first")
		f.Int64("fork", -1, "copy this agent first")
		f.Bool("read", false, "read the text, and make no answer")
		models.PlaceFlags(f)
		timeoutFlag(f)
	},
	Do: cli.Queue(say),
}

func say(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	id, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return command.Usage("swarm say: AGENT %.100q: use the number of an agent", args[1])
	}
	agent := uint32(id)
	s, err := openSwarm(cmd, c, args[0])
	if err != nil {
		return err
	}
	if !s.Spec().Conversations() {
		return command.Usage("swarm say: agents of swarm %s are no conversations: use one of the cell transformer",
			s.ID())
	}
	words, err := tokenizerOf(cmd, s.Spec())
	if err != nil {
		return err
	}
	noteUnserved(cmd, c)
	text := ""
	if len(args) > 2 {
		text = args[2]
	}
	at, err := prompt(cmd, s, words, agent, text)
	if err != nil {
		return err
	}
	return answer(cmd, s, words, agent, at)
}

// prompt gives an agent what the command line says, and returns the position of the answer.
func prompt(cmd *cobra.Command, s *swarmclient.Swarm, words *tokenizer.Tokenizer, agent uint32, text string) (at int,
	err error,
) {
	ctx, f := cmd.Context(), cmd.Flags()
	from, _ := f.GetInt("from")
	rewind, _ := f.GetInt("rewind")
	fork, _ := f.GetInt64("fork")
	switch {
	case from >= 0 && (text != "" || rewind >= 0 || fork >= 0):
		return 0, command.Usage("swarm say: --from %d continues an answer: leave the text, --rewind and --fork out",
			from)
	case from >= 0:
		return from, nil
	case fork >= 0:
		var to *int
		if rewind >= 0 {
			to = &rewind
		}
		if fork > 1<<32-1 {
			return 0, command.Usage("swarm say: --fork %d: use the number of an agent", fork)
		}
		if _, err := s.Fork(ctx, uint32(fork), agent, to); err != nil {
			return 0, err
		}
	case rewind >= 0:
		if err := s.Rewind(ctx, agent, rewind); err != nil {
			return 0, err
		}
	}
	p := swarms.Prompt{Agent: agent, Stop: words.Ends()}
	if p.Tokens, err = words.Encode(text, true); err != nil {
		return 0, command.Usage("swarm say: %v", err)
	}
	now, err := s.Text(ctx, agent, 0)
	if err != nil {
		return 0, err
	}
	if begin, is := words.Begin(); is && now.At == 0 && (len(p.Tokens) == 0 || p.Tokens[0] != begin) {
		p.Tokens = slices.Insert(p.Tokens, 0, begin)
	}
	if len(p.Stop) > swarms.MaxStopTokens {
		p.Stop = p.Stop[:swarms.MaxStopTokens]
	}
	p.Max, _ = f.GetInt("max")
	if read, _ := f.GetBool("read"); read {
		p.Max = 0
	}
	p.Sampling.Temperature, _ = f.GetFloat32("temperature")
	p.Sampling.TopK, _ = f.GetInt("top-k")
	p.Sampling.TopP, _ = f.GetFloat32("top-p")
	p.Sampling.MinP, _ = f.GetFloat32("min-p")
	p.Sampling.Repetition, _ = f.GetFloat32("repetition")
	p.Sampling.Seed, _ = f.GetUint64("seed")
	if err := p.Validate(); err != nil {
		return 0, command.Usage("swarm say: %v", err)
	}
	return s.Prompt(ctx, p)
}

// answer prints an answer as it comes. After an interrupt it cancels it.
func answer(cmd *cobra.Command, s *swarmclient.Swarm, words *tokenizer.Tokenizer, agent uint32, at int) error {
	d, out := words.NewDecoder(), cmd.OutOrStdout()
	ends, n := words.Ends(), 0
	ended, err := s.Answer(cmd.Context(), agent, at, func(token int32) error {
		if n++; slices.Contains(ends, token) {
			return nil
		}
		_, err := io.WriteString(out, d.Add(token))
		return err
	})
	if n > 0 {
		_, werr := io.WriteString(out, d.Flush()+"\n")
		err = errors.Join(err, werr)
	}
	if err != nil {
		if errors.Is(context.Cause(cmd.Context()), command.ErrInterrupted) {
			_, cerr := s.Cancel(context.WithoutCancel(cmd.Context()), agent)
			err = errors.Join(err, cerr)
		}
		cmd.PrintErrf("agent %d: the answer is at position %d\n", agent, at+n)
		return err
	}
	if ended == "" {
		ended = "cancelled"
	}
	cmd.PrintErrf("agent %d: %d tokens, at position %d, ended: %s\n", agent, n, at+n, ended)
	return nil
}

// tokenizerOf returns the tokenizer of the model of a swarm.
func tokenizerOf(cmd *cobra.Command, spec *swarm.Spec) (_ *tokenizer.Tokenizer, err error) {
	b, err := models.OpenPlace(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	m, err := model.Find(cmd.Context(), b, *spec.Model())
	if err != nil {
		return nil, err
	}
	return model.Tokenizer(cmd.Context(), b, m)
}

// pinLanguage fills in what a specification of conversations has of its model: the digest, the bytes
// of a position, and the first tokens of the candidates if the model has a tokenizer.
func pinLanguage(cmd *cobra.Command, spec *swarm.Spec) (_ *swarm.Spec, err error) {
	place, _ := cmd.Flags().GetString("snapshots")
	if c := spec.Cell; place == "" && c.ModelSHA256 != "" && c.CacheBytes > 0 {
		return spec, nil
	}
	b, err := models.OpenPlace(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := describeLanguage(cmd.Context(), b, spec); err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the specification: %w", err)
	}
	return swarm.FromJSON(data) // pages and tokens are checked again
}

func describeLanguage(ctx context.Context, b bucket.Bucket, spec *swarm.Spec) error {
	c := &spec.Cell
	m, digest, err := model.ReadManifest(ctx, b, c.Model)
	if err != nil {
		return err
	}
	cell, err := spec.Fit()
	switch {
	case err != nil:
		return err
	case c.ModelSHA256 != "" && c.ModelSHA256 != digest:
		return jobs.Errorf(jobs.CodeInvalid, "model %s has the digest %s, and not %s", c.Model, digest, c.ModelSHA256)
	case m.Parameters == nil:
		return jobs.Errorf(jobs.CodeInvalid, "model %s is the weights of a cell, and not a language model", c.Model)
	case int(cell.Value("context")) > m.Parameters.Context:
		return jobs.Errorf(jobs.CodeInvalid, "context %v: model %s was made for %d tokens: write params: {context: "+
			"%[3]d}", cell.Value("context"), c.Model, m.Parameters.Context)
	}
	c.ModelSHA256, c.CacheBytes = digest, transformer.PositionBytes(*m.Parameters)
	if m.Tokenizer == "" || len(spec.Vote.Tokens) > 0 {
		return nil
	}
	words, err := model.Tokenizer(ctx, b, m)
	if err != nil {
		return err
	}
	spec.Vote.Tokens, err = models.FirstTokens(words, spec.Vote.Candidates)
	return err
}
