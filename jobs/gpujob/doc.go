// Package gpujob is the contract of the jobs of pool gpu that every GPU agent executes: kinds,
// specifications, arrays and outputs. It executes nothing; gpuagents/gpujobs does. docs/gpu-jobs.md
// describes each kind for clients in other languages.
package gpujob

import (
	"encoding/json"
	"slices"

	"github.com/exoswarm/exoswarm/jobs"
)

// The kinds of job.
const (
	KindReduce    = "reduce"    // one number of an array: ReduceSpec, ReduceOutput
	KindSort      = "sort"      // an array in order: SortSpec, SortOutput
	KindHistogram = "histogram" // counts by bins of equal width: HistogramSpec, HistogramOutput
	KindTally     = "tally"     // a round of votes over ballots: TallySpec, TallyOutput
	KindFuse      = "fuse"      // embeddings into nodes: FuseSpec, FuseOutput
	KindGemm      = "gemm"      // a matrix product: GemmSpec, GemmOutput
	KindKernel    = "kernel"    // CUDA C++ or PTX of the submitter: KernelSpec, KernelOutput
	KindAllreduce = "allreduce" // arrays added on all devices of an agent: AllreduceSpec, AllreduceOutput
)

// Kinds returns all kinds in alphabetical order. The caller may change the result.
func Kinds() []string {
	return slices.Sorted(slices.Values([]string{
		KindReduce, KindSort, KindHistogram, KindTally, KindFuse, KindGemm, KindKernel,
		KindAllreduce, KindCompute, KindChain, KindCircuit, KindTrain, KindTrainProgram,
	}))
}

// Spec is the specification of a job of one kind.
type Spec interface {
	// Kind returns the kind of job that the specification is of.
	Kind() string
	// Check returns an error of code invalid for a specification that no agent can execute. It
	// names the field, its value and the cure. It does not read arrays that are objects.
	Check() error
}

// NewSpec returns a pointer to an empty specification of a kind, or nil for another kind.
func NewSpec(kind string) Spec {
	switch kind {
	case KindReduce:
		return new(ReduceSpec)
	case KindSort:
		return new(SortSpec)
	case KindHistogram:
		return new(HistogramSpec)
	case KindTally:
		return new(TallySpec)
	case KindFuse:
		return new(FuseSpec)
	case KindGemm:
		return new(GemmSpec)
	case KindKernel:
		return new(KernelSpec)
	case KindAllreduce:
		return new(AllreduceSpec)
	case KindCompute:
		return new(ComputeSpec)
	case KindChain:
		return new(ChainSpec)
	case KindCircuit:
		return new(CircuitSpec)
	case KindTrain:
		return new(TrainSpec)
	case KindTrainProgram:
		return new(TrainProgramSpec)
	}
	return nil
}

// NewJob returns a job of pool gpu with an id and a specification, which it has checked.
func NewJob(id string, s Spec) (jobs.Job, error) {
	if err := s.Check(); err != nil {
		return jobs.Job{}, err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return jobs.Job{}, invalid("spec: %v", err)
	}
	j := jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolGPU, Kind: s.Kind(), Spec: data}
	switch {
	case Trains(j.Kind):
		j.MaxAttempts, j.ResultTTL = TrainAttempts, TrainResult
	case j.Kind == KindKernel:
		// A kernel that faults breaks its device, so it must not do so on every agent in turn. The
		// second attempt is for jobs that another one's fault has ended.
		j.MaxAttempts = 2
	}
	return j, j.Validate()
}

func invalid(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInvalid, format, args...)
}
