package gpuprocess

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

// settings are the values of the flags of gpuagent, checked one by one. Whether they fit the
// devices and the memory of the machine is known when serve has opened those.
type settings struct {
	dataDir   string // folder for kernels and, without tiers, for checkpoints; empty for none
	devices   string // the list of --device
	snapshots string // place of snapshots; empty: they are refused
	// keys encrypt checkpoints, tiers and snapshots; nil: nothing is encrypted.
	keys *keyring.Ring
	// tiers are the values of --tier, the fastest first; openTiers has not checked their folders
	// yet.
	tiers []*storeTier

	memoryLimit    int64 // bytes of each device; 0: all
	pageMemory     int64 // bytes of each device; 0: the default of budget.pages
	hostPageMemory int64 // bytes of the machine; -1: the default of budget.hostPages
	parkedMemory   int64 // bytes for parked shards without a data folder

	// requireGPU refuses the host device, at the start and after a fault of a GPU.
	requireGPU bool
	// customCells allows cells whose step is code of their users.
	customCells bool
	// prefetch reads pages from disks before an entry needs them.
	prefetch bool
	// maxShards bounds the shards of the agent, and openShards the idle shards that are not parked.
	maxShards, openShards int

	// jobSlots is the number of jobs of pool gpu that run at once; 0: none is taken.
	jobSlots int
	// jobMemory bounds the arrays of one job in bytes, circuitMemory the arrays and states of a
	// circuit, and jobTimeout the time of a job.
	jobMemory, circuitMemory int64
	jobTimeout               time.Duration
	// trainJobs is the number of jobs of kind train that run at once, trainTimeout bounds the time of
	// one, and trainCheckpoint is the time between its checkpoints.
	trainJobs                     int
	trainTimeout, trainCheckpoint time.Duration
	// allowKernels executes kernels of submitters.
	allowKernels bool

	// leaseTTL is the time that the shards stay with an agent that says nothing, 1s or more.
	leaseTTL time.Duration
	// rebalance is the time without a change of agents before a hand-over; 0: there is none.
	rebalance time.Duration
	// batchLatency bounds a batch of several entries on the device.
	batchLatency time.Duration
	// pageAge and hostPageAge are the times without use after which a page leaves the device and
	// host memory; 0: when its frame is needed.
	pageAge, hostPageAge time.Duration
}

// readSettings reads the flags. A value out of its range is an error of usage.
func readSettings(cmd *cobra.Command) (s *settings, err error) {
	f := cmd.Flags()
	s = &settings{}
	s.dataDir, _ = f.GetString("data-dir")
	s.devices, _ = f.GetString("device")
	s.snapshots, _ = f.GetString("snapshots")
	s.memoryLimit, _ = f.GetInt64("memory-limit")
	s.pageMemory, _ = f.GetInt64("page-memory")
	s.hostPageMemory, _ = f.GetInt64("host-page-memory")
	s.parkedMemory, _ = f.GetInt64("parked-memory")
	s.requireGPU, _ = f.GetBool("require-gpu")
	s.customCells, _ = f.GetBool("allow-custom-cells")
	s.maxShards, _ = f.GetInt("max-shards")
	s.openShards, _ = f.GetInt("open-shards")
	s.leaseTTL, _ = f.GetDuration("lease-ttl")
	s.rebalance, _ = f.GetDuration("rebalance")
	s.batchLatency, _ = f.GetDuration("batch-latency")
	s.pageAge, _ = f.GetDuration("page-age")
	s.hostPageAge, _ = f.GetDuration("host-page-age")
	s.jobSlots, _ = f.GetInt("gpu-jobs")
	s.jobMemory, _ = f.GetInt64("gpu-job-memory")
	s.circuitMemory, _ = f.GetInt64("circuit-memory")
	s.jobTimeout, _ = f.GetDuration("gpu-job-timeout")
	s.trainJobs, _ = f.GetInt("train-jobs")
	s.trainTimeout, _ = f.GetDuration("train-timeout")
	s.trainCheckpoint, _ = f.GetDuration("train-checkpoint")
	s.allowKernels, _ = f.GetBool("allow-kernels")
	prefetch, _ := f.GetString("prefetch")
	s.prefetch = prefetch == "auto"
	switch {
	case s.pageMemory < 0 || s.hostPageMemory < -1:
		return nil, command.Usage("--page-memory %d, --host-page-memory %d: use a number of bytes", s.pageMemory,
			s.hostPageMemory)
	case s.leaseTTL < time.Second:
		return nil, command.Usage("--lease-ttl %v: use 1s or more", s.leaseTTL)
	case s.maxShards < 1 || s.openShards < 1 || s.parkedMemory < 1:
		return nil, command.Usage("--max-shards %d, --open-shards %d, --parked-memory %d: use 1 or more", s.maxShards,
			s.openShards, s.parkedMemory)
	case s.rebalance < 0 || s.rebalance > 0 && s.rebalance < time.Second:
		return nil, command.Usage("--rebalance %v: use 1s or more, or 0 for never", s.rebalance)
	case s.pageAge < 0 || s.hostPageAge < 0:
		return nil, command.Usage("--page-age %v, --host-page-age %v: use a duration, or 0 for a page to stay until "+
			"its frame is needed", s.pageAge, s.hostPageAge)
	case prefetch != "auto" && prefetch != "off":
		return nil, command.Usage("--prefetch %q: use auto or off", prefetch)
	case s.jobSlots < 0 || s.jobSlots > 1000:
		return nil, command.Usage("--gpu-jobs %d: use 0 to 1000", s.jobSlots)
	case s.jobMemory < 1 || s.circuitMemory < 1 || s.jobTimeout <= 0:
		return nil, command.Usage("--gpu-job-memory %d, --circuit-memory %d, --gpu-job-timeout %v: use more than 0",
			s.jobMemory, s.circuitMemory, s.jobTimeout)
	case s.trainJobs < 0 || s.trainJobs > 1000:
		return nil, command.Usage("--train-jobs %d: use 0 to 1000", s.trainJobs)
	case s.trainTimeout <= 0 || s.trainCheckpoint <= 0:
		return nil, command.Usage("--train-timeout %v, --train-checkpoint %v: use more than 0", s.trainTimeout,
			s.trainCheckpoint)
	case s.batchLatency <= 0:
		return nil, command.Usage("--batch-latency %v: use a duration above 0", s.batchLatency)
	}
	// Folders and keys last: their errors are about the machine, and not about the command line
	// alone.
	tiers, _ := f.GetStringArray("tier")
	if s.tiers, err = parseTiers(tiers); err != nil {
		return nil, err
	}
	if len(s.tiers) == 0 { // pages that age leave memory for a folder that may be slow
		s.withoutTiers(f)
	}
	if file, _ := f.GetString("key-file"); file != "" {
		if s.keys, err = keyring.Read(file); err != nil {
			return nil, command.Usage("--key-file: %v", err)
		}
	}
	return s, nil
}

// withoutTiers turns off what the flags do by default where there are tiers.
func (s *settings) withoutTiers(f *pflag.FlagSet) {
	if !f.Changed("page-age") {
		s.pageAge = 0
	}
	if !f.Changed("host-page-age") {
		s.hostPageAge = 0
	}
	if !f.Changed("prefetch") {
		s.prefetch = false
	}
}
