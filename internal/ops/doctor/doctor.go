// Package doctor checks a cluster and names a cure for each thing that is wrong.
//
// A check is a pure function of Facts, so what it sees can be stored and checked again elsewhere.
package doctor

import (
	"cmp"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/internal/ops/cluster"
)

// Level says how bad a result is. Levels are ordered.
type Level string

// The levels, the worst first.
const (
	Failed Level = "error" // work is not done, or is at risk: act now
	Warn   Level = "warn"  // it works, and somebody should look
	Info   Level = "info"  // worth knowing
	OK     Level = "ok"
	Skip   Level = "skip" // the facts that the check needs are missing
)

// rank orders levels, the worst first.
func (l Level) rank() int { return slices.Index([]Level{Failed, Warn, Info, Skip, OK}, l) }

// Result is what a check found.
type Result struct {
	ID       string `json:"id"`
	Category string `json:"category"`
	Level    Level  `json:"level"`
	// Summary is one sentence. Details are one line a thing that is wrong, at most 20. Cure is what to
	// do; it is empty where nothing is.
	Summary string   `json:"summary"`
	Details []string `json:"details,omitempty"`
	Cure    string   `json:"cure,omitempty"`
	// Value and Unit are the number that the check judged, where there is one.
	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
}

// Facts are what the checks see. A nil field is a fact that could not be had.
type Facts struct {
	At    time.Time      `json:"at"`
	State *cluster.State `json:"state,omitempty"`
	// Error says why the cluster could not be asked.
	Error string `json:"error,omitempty"`
	// Drift are the settings of streams that differ from what this version wants.
	Drift *[]string `json:"drift,omitempty"`
	// URL is that of the NATS server as it was given, without credentials.
	URL string `json:"url,omitempty"`
	// Local are the limits of the machine that the doctor runs on.
	Local *Local `json:"local,omitempty"`
	// Version is that of this program.
	Version string `json:"version,omitempty"`
}

// Local are limits of a machine.
type Local struct {
	OpenFiles    uint64 `json:"open_files"`         // soft limit of this process
	LockedMemory uint64 `json:"locked_memory"`      // bytes; the largest value: no limit
	FreeDisk     uint64 `json:"free_disk_bytes"`    // of the working folder
	SharedMemory uint64 `json:"shared_memory_size"` // bytes of /dev/shm; 0: there is none
}

// check is a check: it returns a result without ID and category.
type check struct {
	id, category string
	run          func(f *Facts) Result
}

// mostDetails bounds Result.Details.
const mostDetails = 20

// Categories lists the categories of checks, in the order of the results.
func Categories() []string {
	return []string{"nats", "agents", "devices", "queues", "swarms", "security", "machine"}
}

// Checks lists the ids of all checks with their categories.
func Checks() (all [][2]string) {
	for _, c := range checks() {
		all = append(all, [2]string{c.id, c.category})
	}
	return all
}

// Examine runs the checks of these categories or ids, all without any, and returns their results, the
// worst first.
func Examine(f *Facts, only ...string) []Result {
	all := []Result{}
	for _, c := range checks() {
		if len(only) > 0 && !slices.Contains(only, c.category) && !slices.Contains(only, c.id) {
			continue
		}
		r := c.run(f)
		r.ID, r.Category = c.id, c.category
		if n := len(r.Details); n > mostDetails {
			r.Details = append(r.Details[:mostDetails:mostDetails], "and more: "+count(n-mostDetails))
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b Result) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return all
}

// Worst returns the worst level of results: OK without any.
func Worst(all []Result) Level {
	worst := OK
	for _, r := range all {
		if r.Level != Skip && r.Level.rank() < worst.rank() {
			worst = r.Level
		}
	}
	return worst
}

func checks() []check {
	return slices.Concat(natsChecks, agentChecks, deviceChecks, queueChecks, swarmChecks, securityChecks, machineChecks)
}
