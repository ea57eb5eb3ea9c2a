package swarm

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// modelOf returns a model pinned by its digest, which is given, or is read from --snapshots. In the
// latter case the model must fit the specification.
func modelOf(cmd *cobra.Command, spec *swarm.Spec, name, digest string) (ref swarms.ModelRef, err error) {
	ref = swarms.ModelRef{Name: name, SHA256: digest}
	if err := spec.TakesModel(); err != nil {
		return ref, err
	}
	place, _ := cmd.Flags().GetString("snapshots")
	if place == "" {
		if digest == "" {
			return ref, command.Usage("model %s: name its place with --snapshots, or its digest, which exoswarm model "+
				"load has printed", name)
		}
		return ref, ref.Validate()
	}
	b, err := models.OpenBucket(cmd, place)
	if err != nil {
		return ref, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	m, found, err := model.ReadManifest(cmd.Context(), b, name)
	if errors.Is(err, model.ErrNotFound) {
		err = fmt.Errorf("%w: train or load it first; exoswarm model list --snapshots %s has the others", err, place)
	}
	if err != nil {
		return ref, err
	}
	if digest != "" && digest != found {
		return ref, command.Usage("model %s has the digest %s, and not %s", name, found, digest)
	}
	ref.SHA256 = found
	cell, err := spec.Address()
	if err != nil {
		return ref, err
	}
	if err := m.Fits(cell); err != nil {
		return ref, command.Usage("%v", err)
	}
	return ref, nil
}

// pinModel returns a specification with the digest of its model, and what conversations need of it;
// it does nothing without a model.
func pinModel(cmd *cobra.Command, spec *swarm.Spec) (_ *swarm.Spec, err error) {
	if spec.Cell.Model == "" {
		return spec, nil
	}
	if spec.Conversations() {
		spec, err = pinLanguage(cmd, spec)
	} else {
		var ref swarms.ModelRef
		ref, err = modelOf(cmd, spec, spec.Cell.Model, spec.Cell.ModelSHA256)
		spec.Cell.ModelSHA256 = ref.SHA256
	}
	if err != nil {
		return nil, fmt.Errorf("swarm create: %w", err)
	}
	return spec, nil
}

var adoptVerb = cli.Verb{
	Use: "adopt NAME --model MODEL", Short: "Change the weights of all agents to a model; their states stay",
	Long: `Change the weights of all agents of a gru to the weights of a model, from the next entry of the log
on. The states of the agents stay. The change is in the log, so it survives restarts, moves and
snapshots. Keep the model as long as the swarm has its weights, or its log has the entry: an agent
process that replays the log reads it again.

Name the place of the models with --snapshots, as the GPU agents do. If you cannot reach the place, use
--digest with the digest that exoswarm model load printed.`,
	Flags: func(f *pflag.FlagSet) {
		f.String("model", "", "name of the model (required)")
		f.String("snapshots", "", "place of the models, as for gpuagent --snapshots")
		f.String("digest", "", "SHA-256 of the manifest of the model, in place of --snapshots")
		models.KeyFileFlag(f)
		timeoutFlag(f)
	},
	Do: recordedOnSwarm("swarm.adopt", swarmAdopt),
}

// swarmAdopt changes the weights of a swarm. Its only output is a line on stderr.
func swarmAdopt(cmd *cobra.Command, s *swarmclient.Swarm) error {
	name, _ := cmd.Flags().GetString("model")
	digest, _ := cmd.Flags().GetString("digest")
	if name == "" {
		return command.Usage("swarm adopt: --model is missing: exoswarm model list shows those there are")
	}
	if err := s.Spec().Adopts(); err != nil {
		return err
	}
	ref, err := modelOf(cmd, s.Spec(), name, digest)
	if err != nil {
		return fmt.Errorf("swarm adopt: %w", err)
	}
	if err := s.Adopt(cmd.Context(), ref); err != nil {
		return err
	}
	cmd.PrintErrf("swarm %s has the weights of model %s, digest %s\n", s.ID(), ref.Name, ref.SHA256)
	return nil
}
