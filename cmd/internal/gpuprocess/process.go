// Package gpuprocess composes the process of a GPU agent, for the command gpuagent and for exoswarm
// serve. Built with the tag cuda it can use GPUs.
//
// process.go has the flags, settings.go their values, and serve.go the life of the process.
// tiers.go, checkpoints.go and keys.go keep state on disks, devices.go and memory.go choose devices
// and divide memory, and metrics.go describes the devices to Prometheus.
package gpuprocess

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Command returns the command gpuagent. Without a sub-command it serves until a signal. Each call
// returns a command with new flags, so exoswarm serve may run several. readSettings checks the
// values; the devices and the memory decide whether they fit.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpuagent --nats URL --data-dir DIR",
		Short: "Serve swarms on one or several devices until SIGTERM",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := readSettings(cmd)
			if err != nil {
				return err
			}
			return serve(cmd, s)
		},
	}
	f := cmd.Flags()
	command.AgentFlags(f, "gpuagent", "leases and logs")
	f.String("data-dir", "", "folder of this agent alone, for compiled kernels and the checkpoints of the shards of "+
		"all its devices; empty: no checkpoints, and a restart replays every log")
	f.String("key-file", "", "file with the key that encrypts checkpoints, tiers and snapshots, as 64 hexadecimal "+
		"digits, readable by its owner alone; further lines are former keys, which only decrypt; empty: not "+
		"encrypted")
	SharedFlags(f)
	f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX for snapshots of swarms, the same "+
		"for all agents; empty: snapshots are refused")
	f.Duration("lease-ttl", 10*time.Second, "how long an agent that ended without notice keeps its shards, at least "+
		"1s")
	f.String("device", "auto", "host, cuda:N, several of them separated by commas, all (every GPU), or auto (the "+
		"first GPU, or the host if there is none); a shard is placed on the device with the most room for its pages")
	f.Bool("require-gpu", false, "fail if no GPU can be used, in place of using the host device; a GPU that fails "+
		"later is not replaced by the host device")
	f.Bool("allow-custom-cells", false, "serve swarms whose step is code of their users: that code runs with all "+
		"rights of this process")
	command.MemoryFlag(f, "three quarters of what the machine has available")
	f.Int64("memory-limit", 0, "most bytes of device memory to use, of each device; 0: all")
	f.Int64("page-memory", 0, "most bytes of device memory for pages of swarms, of each device; other pages are in "+
		"host memory or in the checkpoints, and move to the device when they are addressed; 0: all memory except for "+
		"batches, and on the host device the part of --memory for pages")
	f.Int64("host-page-memory", -1, "most bytes of pinned host memory for pages that are not on a device, for all "+
		"devices in equal parts; -1: half of the part of --memory for pages, or 0 with --device host")
	f.Duration("batch-latency", 100*time.Millisecond, "longest time of a batch of several log entries on the device; "+
		"longer batches are cut")
	f.Int("max-shards", gpuagents.MaxShards, "most shards that this agent takes; it leaves more to other agents")
	f.Int64("parked-memory", gpuagents.ParkedMemory, "most bytes of memory for the state of parked shards without a "+
		"data folder, at most an eighth of the heap; when they are used up, this agent takes no more shards")
	f.Duration("rebalance", gpuagents.DefaultRebalance, "time for which the GPU agents of the cluster must be the "+
		"same before this one hands shards to agents that have at least two fewer. An idle agent asks for shards, and "+
		"gets them at once; 0: never by itself (exoswarm agent rebalance)")
	f.Int("gpu-jobs", 2, "jobs of pool gpu that run at once beside the shards; 0: this agent takes no jobs")
	f.Int64("gpu-job-memory", gpujobs.DefaultMemory, "most bytes of the arrays of one job, inputs and outputs")
	f.Int64("circuit-memory", gpujobs.DefaultCircuitMemory, "most bytes of the states and the arrays of one job of "+
		"kind circuit, if more than --gpu-job-memory: 8 and a little more for each of 2^qubits amplitudes")
	f.Duration("gpu-job-timeout", gpujobs.DefaultTimeout, "longest time of one job")
	f.Duration("train-checkpoint", gpujobs.DefaultTrainCheckpoint, "time between two checkpoints of a job of kind "+
		"train, from which another attempt goes on")
	f.Bool("allow-kernels", false, "execute jobs of kind kernel, which are code of their submitters: it runs in "+
		"processes of their own, on the same GPU")
	cmd.AddCommand(devicesCommand())
	return cmd
}

// SharedFlags adds the flags of gpuagent that exoswarm serve has too: how many shards are open, how
// pages move between the tiers, and how models are trained.
func SharedFlags(f *pflag.FlagSet) {
	f.Int("train-jobs", 1, "jobs of kind train that run at once beside the shards and the other jobs; 0: this agent "+
		"trains no models, as without --snapshots, the place of the models")
	f.Duration("train-timeout", gpujobs.DefaultTrainTimeout, "longest time of one attempt at a job of kind train")
	f.Int("open-shards", gpuagents.OpenShards, "idle shards that stay open; of more, the longest idle ones "+
		"are parked until their log has an entry")
	f.StringArray("tier", nil, "NAME=DIR[,codec=CODEC][,capacity=SIZE][,age=TIME]: a disk for the pages of swarms "+
		"and their checkpoints, in place of --data-dir; once for each disk, the fastest first. CODEC is raw, lz4 or "+
		"zstd:1 to zstd:22, by default lz4 for the name nvme, zstd:3 for ssd and zstd:9 for hdd. SIZE is for all "+
		"shards, by default the free space of the disk. After TIME without use (60s, 300s) a page moves to the next "+
		"tier")
	f.Duration("page-age", pager.AgingThresholds[0], "time without use after which a page moves from a device to "+
		"host memory; 0: when its frame is needed, which is the default without --tier")
	f.Duration("host-page-age", pager.AgingThresholds[1], "time without use after which a page moves from host "+
		"memory to the first tier or the data folder; 0: when its frame is needed, which is the default without --tier")
	f.String("prefetch", "auto", "auto: read pages of swarms that do not fit on a device from the tiers before "+
		"observations that continue in order need them; off: when an entry needs them, which is the default "+
		"without --tier")
}

// SharedArguments returns the arguments of gpuagent for the flags of SharedFlags that were set.
func SharedArguments(f *pflag.FlagSet) (args []string) {
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	SharedFlags(shared)
	shared.VisitAll(func(own *pflag.Flag) {
		flag := f.Lookup(own.Name)
		switch {
		case !flag.Changed:
		case own.Name == "tier":
			values, _ := f.GetStringArray(own.Name)
			for _, v := range values {
				args = append(args, "--tier", v)
			}
		default:
			args = append(args, "--"+own.Name, flag.Value.String())
		}
	})
	return args
}
