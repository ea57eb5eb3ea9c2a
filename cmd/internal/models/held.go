package models

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// withCluster calls fn with a connection to the cluster that the flags name; nil: they name none.
func withCluster(cmd *cobra.Command, fn func(c *natsq.Conn) error) error {
	if !command.NamesServer(cmd) {
		return fn(nil)
	}
	return cli.Queue(func(_ *cobra.Command, _ []string, c *natsq.Conn) error { return fn(c) }).Run(cmd, nil)
}

// heldItem is a model on a device of an agent.
type heldItem struct {
	Agent string `json:"agent"`
	telemetry.HeldModel
}

// place names the agent and the device.
func (h heldItem) place() string { return strings.TrimSpace(h.Agent + " " + h.Device) }

// heldText is what a table shows of a model: where it is, with bytes, or why it is not.
func heldText(all []heldItem) string {
	var parts []string
	for _, h := range all {
		what := h.State
		if h.State == telemetry.ModelHeld {
			what = command.Size(h.DeviceBytes)
		}
		if h.Step > 0 {
			what += fmt.Sprintf(" (%d of %d layers pass, %v a step)", h.Passing, h.Layers, stepTime(h))
		}
		parts = append(parts, h.place()+" "+what)
	}
	return strings.Join(parts, ", ")
}

func stepTime(h heldItem) time.Duration {
	return time.Duration(h.Step).Round(10 * time.Microsecond)
}

// printHeld writes a line to stderr for each device that holds a model.
func printHeld(cmd *cobra.Command, all []heldItem) {
	for _, h := range all {
		if h.State != telemetry.ModelHeld {
			cmd.PrintErrf("%s: %s: %s %s\n", h.Name, h.place(), h.State, h.Error)
			continue
		}
		cmd.PrintErrf("%s: %s holds %s for %d users\n", h.Name, h.place(), command.Size(h.DeviceBytes), h.Users)
		if h.Step > 0 {
			cmd.PrintErrf("%s: %s: %d of %d layers pass in each step, %s from pinned memory and %s from the file, "+
				"in %v at least\n", h.Name, h.place(), h.Passing, h.Layers, command.Size(h.PinnedBytes),
				command.Size(h.FileBytes), stepTime(h))
		}
	}
}

// gpuAgents returns the names of the GPU agents that are there.
func gpuAgents(ctx context.Context, c *natsq.Conn) (names []string, err error) {
	all, err := c.Registry.Agents(ctx)
	for _, a := range all {
		if a.Pool == jobs.PoolGPU && a.Lost == nil {
			names = append(names, a.Name)
		}
	}
	return names, err
}

// heldModels returns what the agents of a cluster hold, by the name of the model. Without a cluster
// it is nothing. An agent that does not answer is named on stderr.
func heldModels(cmd *cobra.Command, c *natsq.Conn) (map[string][]heldItem, error) {
	held := map[string][]heldItem{}
	if c == nil {
		return held, nil
	}
	names, err := gpuAgents(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	for _, agent := range names {
		var m telemetry.Models
		err := c.Telemetry.AskView(cmd.Context(), agent, telemetry.View{What: telemetry.ViewModels}, &m)
		if cmd.Context().Err() != nil {
			return nil, err
		}
		if err != nil {
			cmd.PrintErrf("what agent %s holds is not known: %v\n", agent, err)
		}
		for _, one := range m.Models {
			held[one.Name] = append(held[one.Name], heldItem{agent, one})
		}
	}
	return held, nil
}

// holdModel has all GPU agents hold a model, and waits until they do or cannot.
func holdModel(cmd *cobra.Command, c *natsq.Conn, ref swarms.ModelRef) (held []heldItem, err error) {
	timeout, _ := cmd.Flags().GetDuration("timeout")
	if timeout <= 0 {
		return nil, command.Usage("model load: --timeout %v: use more than 0", timeout)
	}
	names, err := gpuAgents(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		cmd.PrintErrf("no GPU agent holds model %s: there is none: start one (gpuagent --nats URL)\n", ref.Name)
	}
	change := telemetry.ModelChange{Do: telemetry.HoldModel, Name: ref.Name, SHA256: ref.SHA256}
	change.Exact, _ = cmd.Flags().GetBool("exact")
	if err := cli.Recorded(cmd, c, "model.load", ref.Name, func() (err error) {
		for _, agent := range names {
			_, aerr := c.Telemetry.ChangeModel(cmd.Context(), agent, change)
			err = errors.Join(err, aerr)
		}
		return err
	}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	for {
		all, err := heldModels(cmd, c)
		if err != nil {
			return nil, err
		}
		loading := false
		var failed []error
		held = all[ref.Name]
		for _, h := range held {
			loading = loading || h.State == telemetry.ModelLoading
			if h.State == telemetry.ModelFailed {
				failed = append(failed, jobs.Errorf(jobs.CodeDevice, "agent %s: %s", h.Agent, h.Error))
			}
		}
		if !loading {
			return held, errors.Join(failed...)
		}
		if err := retry.Sleep(ctx, 100*time.Millisecond); err != nil {
			return held, fmt.Errorf("wait for the agents to load model %s: %w", ref.Name, err)
		}
	}
}

// checkClaims has the agents compare what they hold with the claims.
func checkClaims(cmd *cobra.Command, c *natsq.Conn) error {
	if c == nil {
		return nil
	}
	names, err := gpuAgents(cmd.Context(), c)
	for _, agent := range names {
		m, aerr := c.Telemetry.ChangeModel(cmd.Context(), agent, telemetry.ModelChange{Do: telemetry.CheckModels})
		claims := 0
		for _, one := range m.Models {
			claims += one.Claims
		}
		if aerr == nil {
			cmd.PrintErrf("agent %s: %d claims hold\n", agent, claims)
		}
		err = errors.Join(err, aerr)
	}
	return err
}

var unloadVerb = cli.Verb{
	Use: "unload NAME", Short: "Free the memory of a language model on the devices of a cluster",
	Long: `Free the memory of a language model on the devices of a cluster. It ends what exoswarm model load
asked the GPU agents for. A model that shards of swarms use stays until they end. The stored files
stay too.`,
	Flags: func(*pflag.FlagSet) {},
	Do:    cli.Queue(modelUnload),
}

// modelUnload ends the hold of a model on all GPU agents. Its only output is a line on stderr for
// each of them.
func modelUnload(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	if err := jobs.CheckID("model", args[0]); err != nil {
		return command.Usage("model unload: %v", err)
	}
	names, err := gpuAgents(cmd.Context(), c)
	if err != nil {
		return err
	}
	return cli.Recorded(cmd, c, "model.unload", args[0], func() (err error) {
		held := 0
		for _, agent := range names {
			m, aerr := c.Telemetry.ChangeModel(cmd.Context(), agent,
				telemetry.ModelChange{Do: telemetry.ReleaseModel, Name: args[0]})
			if errors.Is(aerr, jobs.ErrNotFound) {
				continue
			}
			if err = errors.Join(err, aerr); aerr != nil {
				continue
			}
			held++
			used := ""
			for _, one := range m.Models {
				if one.Name == args[0] && one.State == telemetry.ModelHeld {
					used = fmt.Sprintf(": it stays on %s for %d users", one.Device, one.Users)
				}
			}
			cmd.PrintErrf("agent %s has unloaded model %s%s\n", agent, args[0], used)
		}
		if held == 0 && err == nil {
			return fmt.Errorf("no GPU agent was asked to hold model %s: %w", args[0], jobs.ErrNotFound)
		}
		return err
	})
}
