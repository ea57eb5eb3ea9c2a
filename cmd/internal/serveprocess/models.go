package serveprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	modelcmds "github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/internal/app/openai"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

func modelFlags(f *pflag.FlagSet) {
	f.StringSlice("models", nil, "language models to serve below /v1, in the form of the API of OpenAI; each has a "+
		"swarm of its name, which is made")
	f.Int("model-agents", 64, "conversations of a swarm that --models makes")
	f.Int("model-context", 0, "most tokens of a conversation of a swarm that --models makes; 0: as the model was made "+
		"for, at most 8192")
	f.StringSlice("model-candidates", []string{"yes", "no"}, "texts that conversations of a swarm that --models makes "+
		"vote for, by the likeliest first token")
	f.StringArray("chat-template", nil, "MODEL=FORM: the form of conversations of a model whose chat template is not "+
		"known: "+strings.Join(openai.FormNames(), ", "))
}

// models serves language models. Its part of the process makes their swarms, which takes as long as
// their weights need; requests are told to wait meanwhile.
type models struct {
	*openai.Server
	conn  *natsq.Conn
	log   *slog.Logger
	all   []*openai.Model
	specs []*swarm.Spec
}

// maxServedContext is the largest context that --models chooses.
const maxServedContext = 8192

// serveModels lets the dashboard serve language models; nil: there are none. Wrong names and flags
// are errors of usage.
func (l *listener) serveModels(cmd *cobra.Command, c *natsq.Conn, dir string, store bucket.Bucket) (*models, error) {
	names, _ := cmd.Flags().GetStringSlice("models")
	if len(names) == 0 {
		return nil, nil
	}
	agents, _ := cmd.Flags().GetInt("model-agents")
	context, _ := cmd.Flags().GetInt("model-context")
	if agents < 1 {
		return nil, command.Usage("--model-agents %d: use 1 or more", agents)
	}
	forms, err := chatTemplates(cmd, names)
	if err != nil {
		return nil, err
	}
	m := &models{conn: c, log: l.options.Log}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, command.Usage("--models: %s is there twice", name)
		}
		one, spec, err := prepare(cmd, store, snapshotFolder(dir), name, forms[name], agents, context)
		if err != nil {
			return nil, err
		}
		m.all, m.specs = append(m.all, one), append(m.specs, spec)
	}
	if m.Server, err = openai.New(openai.Options{Models: m.all, Log: m.log}); err != nil {
		return nil, command.Usage("--models: %v", err)
	}
	l.options.Models = m
	return m, l.admitPrograms(cmd, dir, "models", "OPENAI_BASE_URL", "/v1")
}

// chatTemplates returns the forms of --chat-template by model.
func chatTemplates(cmd *cobra.Command, names []string) (map[string]string, error) {
	forms := map[string]string{}
	given, _ := cmd.Flags().GetStringArray("chat-template")
	for _, text := range given {
		name, form, found := strings.Cut(text, "=")
		if !found || !slices.Contains(names, name) {
			return nil, command.Usage("--chat-template %s: use MODEL=FORM, with a model of --models", text)
		}
		forms[name] = form
	}
	return forms, nil
}

// prepare reads what a server needs of a model in a place, and returns the specification of its swarm.
func prepare(cmd *cobra.Command, store bucket.Bucket, place, name, form string, agents, context int) (
	*openai.Model, *swarm.Spec, error,
) {
	ctx := cmd.Context()
	if err := jobs.CheckID("model", name); err != nil {
		return nil, nil, command.Usage("--models: %v", err)
	}
	m, digest, err := model.ReadManifest(ctx, store, name)
	switch {
	case errors.Is(err, model.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		at := ""
		if place != snapshotFolder(command.DataFolder()) {
			at = " --snapshots " + place
		}
		return nil, nil, command.Usage("--models: model %s is not stored yet: load it with exoswarm model load "+
			"%[1]s%s --file FILE", name, at)
	case err != nil:
		return nil, nil, err
	case m.Parameters == nil:
		return nil, nil, command.Usage("--models: model %s is the weights of a cell, and not a language model", name)
	}
	words, err := model.Tokenizer(ctx, store, m)
	if err != nil {
		return nil, nil, command.Usage("--models: %v", err)
	}
	one := &openai.Model{Name: name, Created: time.Now(), Tokenizer: words}
	if form != "" {
		one.Form, err = openai.FormNamed(form)
	} else {
		var template string
		if template, err = model.Template(ctx, store, m); err == nil {
			one.Form, err = openai.FormOf(template, words)
		}
	}
	if err != nil {
		return nil, nil, command.Usage("--models: model %s: %v: --chat-template %s=FORM", name, err, name)
	}
	if context == 0 {
		context = min(m.Parameters.Context, maxServedContext)
	}
	if context > m.Parameters.Context {
		return nil, nil, command.Usage("--model-context %d: model %s was made for %d tokens", context, name,
			m.Parameters.Context)
	}
	position := transformer.PositionBytes(*m.Parameters)
	// A page has some positions of a conversation, and the tokens of one.
	page := int64(256 << 10)
	for page < 16*position || page < 8*int64(context) {
		page *= 2
	}
	vote, err := voteOf(cmd, words)
	if err != nil {
		return nil, nil, err
	}
	spec, err := swarm.Parse("--models "+name, fmt.Appendf(nil, "name: %s\naddressed: agent\nagents: %d\n"+
		"cell: {kind: transformer, model: %s, model_sha256: %s, exact: true, cache_bytes: %d, params: {context: %d}}\n"+
		"page_size: %d\nvote: %s\n", name, agents, name, digest, position, context, page, vote))
	if err != nil {
		return nil, nil, command.Usage("--models: %v", err)
	}
	return one, spec, nil
}

// voteOf returns the vote of a specification for --model-candidates. Without the flag, candidates that
// the tokenizer cannot tell apart have no tokens, and the swarm no votes.
func voteOf(cmd *cobra.Command, words *tokenizer.Tokenizer) (string, error) {
	candidates, _ := cmd.Flags().GetStringSlice("model-candidates")
	first, err := modelcmds.FirstTokens(words, candidates)
	unique := slices.Compact(slices.Sorted(slices.Values(first)))
	if !cmd.Flags().Changed("model-candidates") && (err != nil || len(unique) < len(first)) {
		return "{}", nil
	}
	if err != nil {
		return "", command.Usage("--model-candidates: %v", err)
	}
	data, err := json.Marshal(map[string]any{"candidates": candidates, "tokens": first}) // YAML has JSON
	return string(data), err
}

// run makes the swarms that are missing, and serves the models until ctx ends.
func (m *models) run(ctx context.Context) error {
	client, err := swarmclient.New(swarmclient.Options{
		Swarms: m.conn.Swarms, Agents: m.conn.Registry, Beside: state.BesideBytes,
	})
	if err != nil {
		return err
	}
	for i, one := range m.all {
		g, err := m.open(ctx, client, one, m.specs[i])
		if err != nil {
			return fmt.Errorf("model %s: %w", one.Name, err)
		}
		defer g.Close()
		one.Ready(g)
		m.log.Info("a model is served", "model", one.Name)
	}
	<-ctx.Done()
	return nil
}

// open opens the swarm of a model, or makes it.
func (m *models) open(ctx context.Context, client *swarmclient.Client, one *openai.Model, spec *swarm.Spec) (
	*generation.Generator, error,
) {
	s, err := client.Open(ctx, spec.Name)
	if errors.Is(err, jobs.ErrNotFound) {
		s, err = client.Create(ctx, spec, nil)
		var late *jobs.Error
		if errors.As(err, &late) && late.Code == jobs.CodeDeadline { // its weights take longer
			s, err = client.Open(ctx, spec.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	has, record := s.Spec(), s.Record()
	switch {
	case !has.Conversations() || *has.Model() != *spec.Model():
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm %s is there, and has not the model %s with the digest %s: "+
			"delete it (exoswarm swarm delete %[1]s), or load the model under another name", record.ID, spec.Cell.Model,
			spec.Cell.ModelSHA256)
	case record.ShardCount() > 1:
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm %s has %d shards, and a swarm that serves a model has one",
			record.ID, record.ShardCount())
	}
	cell, err := has.Fit()
	if err != nil {
		return nil, err
	}
	log := m.conn.Swarms.Log
	return generation.Open(ctx, generation.Options{
		In: log(record.Key(), 0, swarms.In), Out: log(record.Key(), 0, swarms.Out),
		Keys:   statelog.NewKeys(log(record.Key(), statelog.KeyShard, swarms.In)),
		Agents: int(has.Agents), Context: int(cell.Value("context")), Log: m.log,
		Decoder: func() generation.Decoder { return one.Tokenizer.NewDecoder() },
	})
}
