// Command gpuagent is a GPU agent process: it serves swarms on one or several devices. Built with
// the tag cuda it can use a GPU.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/bucket"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/keyring"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

func main() { command.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpuagent --nats URL --data-dir DIR",
		Short: "Serve swarms on one or several devices until SIGTERM",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd) },
	}
	f := cmd.Flags()
	command.NATSFlags(f, false)
	f.Int("replicas", 1, "replicas of the streams: 3 in a NATS cluster")
	f.String("data-dir", "", "folder of this agent alone, for compiled kernels and for the checkpoints of the "+
		"shards of all its devices; empty for none: what starts then replays every log")
	f.String("key-file", "", "file with the key that encrypts checkpoints, tiers and snapshots, as 64 hexadecimal "+
		"digits, readable by its owner alone; further lines are former keys, which only decrypt; empty: not "+
		"encrypted")
	f.StringArray("tier", nil, "NAME=DIR[,codec=CODEC][,capacity=SIZE][,age=TIME]: a disk for the pages of swarms "+
		"and their checkpoints, in place of --data-dir; once for each, the fastest first. CODEC is raw, lz4 or "+
		"zstd:1 to zstd:22, by default lz4 for the name nvme, zstd:3 for ssd and zstd:9 for hdd; SIZE is for all "+
		"shards, by default what the disk has; after TIME out of memory (60s, 300s) a page goes to the next")
	f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, where snapshots of swarms are kept,"+
		" the same for all agents; empty: they are refused")
	f.Duration("lease-ttl", 10*time.Second, "how long the shards of an agent that died stay with it, at least 1s")
	f.String("device", "auto", "host, cuda:N, several of them between commas, all: every GPU, or auto: the first "+
		"GPU, or the host where there is none; a shard goes to the one with the most room for its pages")
	f.Bool("require-gpu", false, "end with an error where no GPU can be used, in place of the host device; a GPU "+
		"that fails later is not replaced by the host")
	f.Bool("allow-custom-cells", false, "serve swarms whose step their users have written: that code runs with all "+
		"rights of this process")
	command.MemoryFlag(f, "three quarters of what the machine has available")
	f.Int64("memory-limit", 0, "most bytes of device memory to use, of each device; 0 for all")
	f.Int64("page-memory", 0, "most bytes of device memory for pages of swarms, of each device; the others are in "+
		"host memory and with the checkpoints, and come when they are addressed; 0 for all but what batches need, "+
		"on the host device for what --memory leaves to pages")
	f.Int64("host-page-memory", -1, "most bytes of host memory for pages that are not on a device, for all devices "+
		"in equal parts; it is pinned; -1 for half of what --memory leaves to pages, and for none where --device is "+
		"the host")
	f.Duration("page-age", 0, "after how long without use a page goes from a device to host memory, such as 1s; 0: "+
		"when its frame is needed")
	f.Duration("host-page-age", 0, "after how long without use a page goes from host memory to the first tier or "+
		"the data folder, such as 10s; 0: when its frame is needed")
	f.String("prefetch", "off", "auto: pages of swarms that do not fit on a device are fetched from the data folder "+
		"or the tiers ahead of observations that go on in order; off: when an entry asks for them")
	f.Duration("batch-latency", 100*time.Millisecond, "how long a batch of several log entries may take on the "+
		"device; longer ones are cut")
	f.Int("max-shards", gpuagents.MaxShards, "most shards this agent takes; more are left to other agents")
	f.Int("open-shards", gpuagents.OpenShards, "shards without anything to do that stay open; of more, those that "+
		"are idle the longest are parked until there is an entry in their log")
	f.Int64("parked-memory", gpuagents.ParkedMemory, "most bytes of memory for the state of parked shards without a "+
		"data folder, and at most an eighth of the heap; when they are used up this agent takes no more shards")
	f.Duration("rebalance", gpuagents.DefaultRebalance, "for how long the GPU agents of the cluster must be the "+
		"same before this one hands shards to agents that have two less; 0: never by itself (exoswarm agent "+
		"rebalance)")
	f.String("name", command.AgentName("gpuagent"), "name of this agent in leases and logs")
	command.MetricsFlag(f)
	command.LogFlags(f)
	cmd.AddCommand(devicesCommand())
	return cmd
}

func serve(cmd *cobra.Command) (err error) {
	f := cmd.Flags()
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	url, login := command.NATS(cmd)
	replicas, _ := f.GetInt("replicas")
	data, _ := f.GetString("data-dir")
	deviceList, _ := f.GetString("device")
	limit, _ := f.GetInt64("memory-limit")
	onDevice, _ := f.GetInt64("page-memory")
	inHost, _ := f.GetInt64("host-page-memory")
	if onDevice < 0 || inHost < -1 {
		return command.Usage("--page-memory %d, --host-page-memory %d: use a number of bytes", onDevice, inHost)
	}
	custom, _ := f.GetBool("allow-custom-cells")
	name, _ := f.GetString("name")
	ttl, _ := f.GetDuration("lease-ttl")
	if ttl < time.Second {
		return command.Usage("--lease-ttl %v: use 1s or more", ttl)
	}
	maxShards, _ := f.GetInt("max-shards")
	openShards, _ := f.GetInt("open-shards")
	parked, _ := f.GetInt64("parked-memory")
	if maxShards < 1 || openShards < 1 || parked < 1 {
		return command.Usage("--max-shards %d, --open-shards %d, --parked-memory %d: use 1 or more", maxShards,
			openShards, parked)
	}

	rebalance, _ := f.GetDuration("rebalance")
	if rebalance < 0 || rebalance > 0 && rebalance < time.Second {
		return command.Usage("--rebalance %v: use 1s or more, or 0 for never", rebalance)
	}
	pageAge, _ := f.GetDuration("page-age")
	hostAge, _ := f.GetDuration("host-page-age")
	if pageAge < 0 || hostAge < 0 {
		return command.Usage("--page-age %v, --host-page-age %v: use a duration, or 0 for a page to stay until its "+
			"frame is needed", pageAge, hostAge)
	}
	prefetch, _ := f.GetString("prefetch")
	if prefetch != "auto" && prefetch != "off" {
		return command.Usage("--prefetch %q: use auto or off", prefetch)
	}
	latency, _ := f.GetDuration("batch-latency")
	if latency <= 0 {
		return command.Usage("--batch-latency %v: use a duration above 0", latency)
	}

	tierFlags, _ := f.GetStringArray("tier")
	disks, err := parseTiers(tierFlags)
	if err != nil {
		return err
	}
	if err := openTiers(disks, log); err != nil {
		return err
	}

	var keys *keyring.Ring
	if file, _ := f.GetString("key-file"); file != "" {
		if keys, err = keyring.Read(file); err != nil {
			return command.Usage("--key-file: %v", err)
		}
	}
	checkpoints, disks := makeCheckpoints(data, disks, keys, log)
	if checkpoints != nil {
		if err := checkpoints.locked(); err != nil {
			return command.Usage("--key-file: %v", err)
		}
	}

	total, err := command.Memory(cmd, 3.0/4, 1<<30)
	if err != nil {
		return err
	}
	mem, err := divide(total)
	if err != nil {
		return err
	}
	command.LimitHeap(mem.heap, log)
	opts := cuda.Options{MemoryLimit: limit, HostMemoryLimit: mem.device(), Logger: log}
	if data != "" {
		opts.CacheDir = filepath.Join(data, "kernels")
		if err := os.MkdirAll(opts.CacheDir, 0o755); err != nil {
			return command.Usage("--data-dir: %v", err)
		}
	}
	requireGPU, _ := f.GetBool("require-gpu")
	opened, err := openDevices(cmd.Context(), deviceList, requireGPU, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDevices(opened)) }()
	var agent atomic.Pointer[gpuagents.Agent] // nil until it has started
	current := func() []device.Device {
		if a := agent.Load(); a != nil {
			return a.Devices()
		}
		return opened
	}
	metrics, err := command.NewMetrics(cmd, log)
	if err != nil {
		return err
	}
	defer metrics.Close()
	metrics.Require("devices", healthy(current, &agent))
	metrics.Require("residency", func(context.Context) error {
		if a := agent.Load(); a != nil {
			return a.Residency()
		}
		return nil
	})
	for i := range opened {
		metrics.MustRegister(newDeviceMetrics(func() device.Device { return current()[i] }))
	}
	metrics.MustRegister(newFallbackMetric(fallback(opened) != ""))
	counts, err := gpuagents.NewMetrics(metrics)
	if err != nil {
		return err
	}
	tracing, err := command.NewTracing(cmd.Context(), "exoswarm-gpuagent", name, log)
	if err != nil {
		return err
	}
	defer tracing.Close()
	var snapshots snapshot.Store // nil: none
	if place, _ := f.GetString("snapshots"); place != "" {
		b, err := bucket.Open(cmd.Context(), place)
		if err != nil {
			return command.Usage("--snapshots: %v", err)
		}
		defer func() {
			if err := b.Close(); err != nil {
				log.Warn("closing the place of snapshots", "error", err)
			}
		}()
		snapshots = bucket.Seal(b, keys)
	}
	conn, err := command.Connect(cmd, natsconn.Options{
		URL: url, Login: login, Name: name, Replicas: replicas,
		Logger: log, Tracing: tracing.Provider(),
	}, metrics)
	if err != nil {
		return err
	}
	defer conn.Close()
	if inHost, err = mem.hostPages(opened, onDevice, inHost); err != nil {
		return err
	}
	var own []pool.Accelerator
	for _, d := range opened {
		pages, err := mem.pages(d, onDevice, inHost, limit)
		if err != nil {
			return err
		}
		own = append(own, pool.Accelerator{
			Device: d, PageMemory: pages, Shared: isHost(d),
			Open: func(ctx context.Context) (device.Device, error) {
				return cuda.Open(ctx, d.Properties().Name, opts)
			},
		})
	}
	o := gpuagents.Options{
		Name: name, Device: own[0].Device, Open: own[0].Open, PageMemory: own[0].PageMemory, Shared: own[0].Shared,
		Others: own[1:], HostPageMemory: inHost, PageAge: pageAge, HostPageAge: hostAge, Prefetch: prefetch == "auto",
		Queue: conn.Swarms, Logger: log, Snapshots: snapshots, LeaseTTL: ttl, CustomCells: custom, Metrics: counts,
		Tracing: tracing.Provider(), BatchLatency: latency,
		MaxShards: maxShards, OpenShards: openShards, Rebalance: rebalance, ParkedMemory: min(parked, mem.rest/2),
	}
	if !requireGPU {
		o.OpenHost = func(ctx context.Context) (device.Device, error) {
			return cuda.Open(ctx, "host", cuda.Options{HostMemoryLimit: mem.device(), Logger: log})
		}
	}
	if checkpoints != nil {
		o.Checkpoints = checkpoints
	}
	serving, err := gpuagents.Start(o)
	if err != nil {
		return err
	}
	agent.Store(serving)
	var names []string
	memory := int64(0)
	for _, d := range opened {
		names = append(names, d.Properties().Name)
		memory += d.Properties().MemoryBytes
	}
	ctx, end := context.WithCancelCause(cmd.Context())
	defer end(nil)
	started := time.Now().UTC()
	entry, err := conn.Registry.Announce(cmd.Context(), func() jobs.Agent {
		a := jobs.Agent{
			Name: name, Pool: jobs.PoolGPU, Device: models(opened), Fallback: fallback(opened), Memory: memory,
			Room:    roomOf(serving, disks),
			Running: serving.Shards(), Parked: serving.Parked(), MaxShards: maxShards, State: "serving",
			Started: started, Recovering: serving.Recoveries(),
		}
		if serving.Full() {
			a.State = "full"
		}
		if serving.Level() != pool.Normal {
			a.State = levels(names, serving.Levels())
		}
		if ctx.Err() != nil {
			a.State = "draining"
		}
		return a
	}, log)
	if err != nil {
		serving.Stop()
		return err
	}
	log.Info("gpuagent is ready", "name", name, "nats", natsconn.Redact(url), "memory", total, "device",
		strings.Join(names, ","), "model", models(opened), "page_memory", own[0].PageMemory, "host_page_memory", inHost,
		"tiers", described(disks))

	select {
	case <-ctx.Done():
	case <-entry.Drained():
		end(errors.New("an operator asked for it"))
	case <-conn.Refused():
		refused := fmt.Errorf("the NATS server does not let this agent in any more: its credentials expired or were "+
			"revoked (exoswarm auth user add): %w", jobs.ErrDenied)
		end(refused)
		defer func() { err = errors.Join(refused, err) }()
	}
	log.Info("draining", "reason", context.Cause(ctx))
	metrics.Require("drain", func(context.Context) error {
		return fmt.Errorf("this agent drains: %w", context.Cause(ctx))
	})
	last, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = serving.Drain(last)
	if cerr := entry.Close(last); cerr != nil {
		log.Warn("the registry forgets this agent by itself", "error", cerr)
	}
	return err
}

// makeCheckpoints keeps checkpoints in the tiers, or in a folder below the data folder where there
// are none; nil without either. It returns the tiers in use.
func makeCheckpoints(data string, disks []*storeTier, keys *keyring.Ring,
	log *slog.Logger,
) (*checkpoints, []*storeTier) {
	switch {
	case len(disks) > 0:
		if data != "" {
			abandoned(filepath.Join(data, "checkpoints"), disks, log)
		}
	case data != "":
		disks = append(disks, folderTier(filepath.Join(data, "checkpoints")))
	default:
		return nil, nil
	}
	c := newCheckpoints(disks...)
	c.keys = keys
	return c, disks
}
