package gpuprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/exoswarm/exoswarm/internal/app/agentview"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// drainTime bounds the end of the process after the reason to drain: jobs, hand-overs and the last
// checkpoints together. What is not done by then is left to the ends of leases.
const drainTime = time.Minute

// serve is the life of the process: it opens disks and devices, connects, serves shards until the
// reason to drain, and gives them back. Checkpoints and devices are opened before the connection,
// so that an agent that cannot work does not take shards. All settings are valid. The deferred
// calls close the parts in the reverse order: the agent drains first, then its connection ends, and
// the devices and stores are closed last, because shards write checkpoints while they drain.
func serve(cmd *cobra.Command, s *settings) (err error) {
	log, err := command.Logger(cmd)
	if err != nil {
		return err
	}
	owned := folders{}
	defer func() { err = errors.Join(err, owned.Close()) }()
	if err := openDataDir(s.dataDir, owned); err != nil {
		return err
	}
	if err := checkMounts(s.dataDir, s.tiers, deviceOf); err != nil {
		return err
	}
	// After checkMounts: nothing is written to the folder of a disk that is not mounted.
	if err := openTiers(s.tiers, owned, log); err != nil {
		return err
	}
	checkpoints, disks := makeCheckpoints(s.dataDir, s.tiers, s.keys, log)
	if checkpoints != nil {
		if err := checkpoints.locked(); err != nil {
			return command.Usage("--key-file: %v", err)
		}
	}
	// The limit of the heap is set before the devices are opened: the host device allocates from
	// it.
	total, err := command.Memory(cmd, 3.0/4, 1<<30)
	if err != nil {
		return err
	}
	mem, err := divide(total)
	if err != nil {
		return err
	}
	command.LimitHeap(mem.heap, log)
	opts := cuda.Options{MemoryLimit: s.memoryLimit, HostMemoryLimit: mem.device(), Logger: log}
	// Compiled kernels survive a restart, which is otherwise slow on a GPU.
	opts.CacheDir = s.kernelCache()
	opened, err := openDevices(cmd.Context(), s.devices, s.requireGPU, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDevices(opened)) }()
	process, err := command.NewAgentProcess(cmd, log)
	if err != nil {
		return err
	}
	defer process.Close()
	// The metrics are served before the agent has started, and ask it through this pointer.
	var agent atomic.Pointer[gpuagents.Agent]
	counts, err := observeAgent(process.Metrics, &agent, opened)
	if err != nil {
		return err
	}
	snapshots, modelFiles, closeSnapshots, err := openSnapshots(cmd.Context(), s, log)
	if err != nil {
		return err
	}
	defer closeSnapshots()
	if err := process.Connect("exoswarm-gpuagent"); err != nil {
		return err
	}
	inHost, err := mem.hostPages(opened, s.pageMemory, s.hostPageMemory)
	if err != nil {
		return err
	}
	own, err := accelerators(opened, s, mem, inHost, opts)
	if err != nil {
		return err
	}
	o := gpuagents.Options{
		Name: process.Name, Device: own[0].Device, Open: own[0].Open, PageMemory: own[0].PageMemory,
		Shared: own[0].Shared, Others: own[1:], HostPageMemory: inHost, PageAge: s.pageAge, HostPageAge: s.hostPageAge,
		Prefetch: s.prefetch, Queue: process.Conn.Swarms, Logger: log, Snapshots: snapshots, Models: modelFiles,
		LeaseTTL:    s.leaseTTL,
		Emissions:   gateway.NewEmissions(process.Conn.Conn),
		Submissions: gateway.NewRules(process.Conn.Conn),
		CustomCells: s.customCells, Metrics: counts, Tracing: process.Tracing.Provider(), BatchLatency: s.batchLatency,
		MaxShards: s.maxShards, OpenShards: s.openShards, Rebalance: s.rebalance,
		ParkedMemory: min(s.parkedMemory, mem.rest/2),
	}
	// A shard on a GPU that has failed continues on the host device, with the same results.
	if !s.requireGPU {
		o.OpenHost = func(ctx context.Context) (device.Device, error) {
			return cuda.Open(ctx, "host", cuda.Options{HostMemoryLimit: mem.device(), Logger: log})
		}
	}
	if checkpoints != nil { // a nil *checkpoints would be a Checkpoints that is not nil
		o.Checkpoints = checkpoints
	}
	serving, err := gpuagents.Start(o)
	if err != nil {
		return err
	}
	agent.Store(serving)
	taker, err := takeJobs(process, s, serving, snapshots)
	if err != nil {
		serving.Stop()
		return err
	}
	var names []string
	for _, d := range opened {
		names = append(names, d.Properties().Name)
	}
	if err := process.Announce(func() jobs.Agent {
		r := record(serving, opened, names, disks, s.maxShards)
		r.Kinds = taker.kinds() // Running and MaxShards are of shards
		r.JobsRunning, r.JobSlots = taker.slots()
		return r
	}); err != nil {
		last, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		err = errors.Join(err, taker.drain(last))
		serving.Stop()
		return err
	}
	seen := gpuagents.ViewsOf(serving)
	silent, err := process.Conn.Telemetry.AnswerView(process.Name, func(ctx context.Context, v telemetry.View) (any,
		error,
	) {
		return agentview.Answer(ctx, process.Name, seen, v)
	})
	if err != nil { // the agent serves without
		log.Warn("nobody can look at this agent", "error", err)
	} else {
		defer silent()
	}
	deaf, err := process.Conn.Telemetry.AnswerModels(process.Name, func(ctx context.Context,
		c telemetry.ModelChange,
	) (any, error) {
		return agentview.Change(ctx, process.Name, seen, serving, c)
	})
	if err != nil {
		log.Warn("nobody can have this agent hold a model", "error", err)
	} else {
		defer deaf()
	}
	log.Info("gpuagent is ready", "name", process.Name, "nats", process.URL(), "memory", total, "device",
		strings.Join(names, ","), "model", models(opened), "page_memory", own[0].PageMemory, "host_page_memory", inHost,
		"tiers", described(disks))

	if refused := process.Wait(); refused != nil {
		defer func() { err = errors.Join(refused, err) }()
	}
	// Jobs go back to the queue first, because they use the devices of the shards. Then the shards
	// are handed over or given back; the registry shows the agent until then.
	last, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err = errors.Join(taker.drain(last), serving.Drain(last))
	process.Leave()
	return err
}

// kernelCache returns the folder of compiled kernels, empty if there is none.
func (s *settings) kernelCache() string {
	if s.dataDir == "" {
		return ""
	}
	return filepath.Join(s.dataDir, kernelsFolder)
}

const kernelsFolder = "kernels"

// folders are the folders that this process owns, by name: two agents on one folder would remove
// each other's checkpoints. They are closed after the last checkpoint.
type folders map[string]io.Closer

// own takes a folder, unless the process has it already. Its errors are the errors of vfs.Own.
func (f folders) own(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || f[dir] != nil {
		return err
	}
	lock, err := vfs.Own(dir)
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%w: give every agent a folder of its own", err)
	}
	if err == nil {
		f[dir] = lock
	}
	return err
}

// Close gives the folders back.
func (f folders) Close() error {
	var errs []error
	for _, lock := range f {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}

// openDataDir makes the data folder with the folder of compiled kernels, and takes it for this
// process. An agent with an unwritable volume would otherwise serve until its first checkpoint. An
// empty name is no folder.
func openDataDir(dir string, owned folders) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, kernelsFolder), 0o755); err != nil {
		return command.Usage("--data-dir: %v", err)
	}
	if err := owned.own(dir); err != nil {
		return command.Usage("--data-dir %v", err)
	}
	return nil
}

// observeAgent registers the metrics and the checks of the agent and its devices. The agent may
// replace a device by another one of the same name after a fault, so both ask the agent, once it
// has started, for the devices of the moment. The order and the number of devices never change.
func observeAgent(m *command.Metrics, agent *atomic.Pointer[gpuagents.Agent],
	opened []device.Device,
) (*gpuagents.Metrics, error) {
	current := func() []device.Device {
		if a := agent.Load(); a != nil {
			return a.Devices()
		}
		return opened
	}
	m.Require("devices", healthy(current, agent))
	m.Require("residency", func(context.Context) error {
		if a := agent.Load(); a != nil {
			return a.Residency()
		}
		return nil
	})
	for i := range opened {
		m.MustRegister(newDeviceMetrics(func() device.Device { return current()[i] }))
	}
	m.MustRegister(newFallbackMetric(fallback(opened) != ""))
	return gpuagents.NewMetrics(m)
}

// openSnapshots opens the place of snapshots and models, encrypted with the keys of the agent, and
// the files of the models in it. Both are nil when there is none. The caller calls done after the
// agent has ended. An address that cannot be opened is an error of usage. Without keys the snapshots are not encrypted.
func openSnapshots(ctx context.Context, s *settings, log *slog.Logger) (
	_ snapshot.Store, models snapshot.Files, done func(), err error,
) {
	if s.snapshots == "" {
		return nil, nil, func() {}, nil
	}
	b, err := bucket.Open(ctx, s.snapshots)
	if err != nil {
		return nil, nil, nil, command.Usage("--snapshots: %v", err)
	}
	copies := ""
	if s.dataDir != "" {
		copies = filepath.Join(s.dataDir, "models")
	}
	files := bucket.NewFiles(b, s.keys, copies)
	return bucket.Seal(b, s.keys), files, func() {
		if err := errors.Join(files.Close(), b.Close()); err != nil {
			log.Warn("closing the place of snapshots", "error", err)
		}
	}, nil
}

// accelerators returns the devices with the bytes that pages may take on each, and a function that
// opens the device again after a fault. Open uses the options of the first opening, so the new
// device has the same limits and cache.
func accelerators(opened []device.Device, s *settings, mem budget, inHost int64,
	opts cuda.Options,
) (own []pool.Accelerator, err error) {
	for _, d := range opened {
		pages, err := mem.pages(d, s.pageMemory, inHost, s.memoryLimit)
		if err != nil {
			return nil, err
		}
		own = append(own, pool.Accelerator{
			Device: d, PageMemory: pages, Shared: isHost(d),
			Open: func(ctx context.Context) (device.Device, error) {
				return cuda.Open(ctx, d.Properties().Name, opts)
			},
		})
	}
	return own, nil
}

// record returns the record of the agent for the registry, as it is now. State names the worst
// level of the devices, if one is not normal. It is called for each heartbeat and must not wait for
// a device.
func record(a *gpuagents.Agent, opened []device.Device, names []string, disks []*storeTier,
	maxShards int,
) jobs.Agent {
	memory := int64(0)
	for _, d := range opened {
		memory += d.Properties().MemoryBytes
	}
	r := jobs.Agent{
		Pool: jobs.PoolGPU, Device: models(opened), Fallback: fallback(opened), Memory: memory,
		Room: roomOf(a, disks), Running: a.Shards(), Parked: a.Parked(), MaxShards: maxShards, State: "serving",
		Recovering: a.Recoveries(), Teams: a.Teams(),
	}
	if a.Full() {
		r.State = "full"
	}
	if a.Level() != pool.Normal {
		r.State = levels(names, a.Levels())
	}
	return r
}

// makeCheckpoints returns the checkpoints of the agent, in the tiers or, without tiers, in a folder
// below the data folder, and the tiers in use. Both are nil without tiers and data folder.
// Checkpoints of the data folder are not moved to the tiers: a warning names them, and their shards
// replay their logs.
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
